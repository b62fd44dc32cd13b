"""What a run is told: the promises that it measures against, and how long it waits for a word.

All runs over one set of tables must be told the same: what one of them called late and another did
not could not be told apart. So the first run writes its options beside the tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from chappe.errors import ConfigError
from chappe.pipeline.notes import write_note

_FILE = "_options.json"
# A thousand years: in microseconds, and with a time added, still a number of 64 bits.
_MS_MAX = 1_000 * 366 * 86_400_000
# So often a node says that it is alive, if there is nothing else to say.
_SIGN_OF_LIFE_MS = 1_000
# An hour of sessions is looked at with those beside it, and no others.
_HOUR_MS = 3_600_000


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a run; the same for all runs over one set of tables.

    Raises ConfigError for one that makes no sense.
    """

    # What is delivered later than this after it came to its first node is late.
    sla_ms: int = 1_000
    # A queue is there to let messages wait: what nobody was handed for this long is late.
    queue_sla_ms: int = 60_000
    # Lanes of one queue proceed apart from each other. Only when messages this much younger were
    # handed out is one that was not, and whose node never died, called lost.
    overtaken_ms: int = 3_600_000
    # Nodes tell late: segments are sealed, copied, moved. One that told nothing while others tell
    # of times this much later is dead. At least as long as a node that lives may be silent.
    grace_ms: int = 120_000
    # A user who is back this soon after a session ended came back, rather than came. An hour at
    # most: who went earlier is not looked for.
    reconnect_ms: int = 60_000
    # What is told this much later than the latest that was told before is put aside. Nodes seal
    # files within seconds; a machine that is repaired, and its disk read then, may take days.
    watermark_ms: int = 7 * 86_400_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value, flag = getattr(self, field.name), _flag(field.name)
            if type(value) is not int:
                raise ConfigError(f"{flag}: {value!r} is not a whole number")
            if value <= 0:
                raise ConfigError(f"{flag}: {value} is not above 0")
            if value > _MS_MAX:
                raise ConfigError(f"{flag}: {value} is more than a thousand years")
        if self.grace_ms < _SIGN_OF_LIFE_MS:
            raise ConfigError(
                f"--grace-ms: {self.grace_ms} is less than {_SIGN_OF_LIFE_MS}: a node that "
                "lives may say nothing for a second"
            )
        if self.reconnect_ms > _HOUR_MS:
            raise ConfigError(
                f"--reconnect-ms: {self.reconnect_ms} is more than {_HOUR_MS}, an hour: who "
                "went earlier is not looked for"
            )


def choose(tables: Path, given: Mapping[str, int]) -> Options:
    """The options of the tables, or those that are usual if no run has made any; with the given.

    Raises ConfigError where the tables were made with others than those.
    """
    options = replace(_written(tables) or Options(), **given)
    _check_same(tables, options)
    return options


def agree(tables: Path, options: Options | None) -> Options:
    """The options of a run over these tables, from now on the same for all; those of the tables if
    there are none. Raises ConfigError where the tables were made with others."""
    if options is not None:
        _check_same(tables, options)
    written = _written(tables)
    if written is not None:
        return written
    options = options or Options()
    tables.mkdir(parents=True, exist_ok=True)
    write_note(tables / _FILE, json.dumps(asdict(options), indent=2))
    return options


def _flag(name: str) -> str:
    """An option, as the command calls it."""
    return f"--{name.replace('_', '-')}"


def _check_same(tables: Path, options: Options) -> None:
    written = _written(tables) or options
    for name, value in asdict(options).items():
        made = getattr(written, name)
        if value != made:
            flag = _flag(name)
            raise ConfigError(
                f"{flag}: {tables} was made with {made}, and now it is {value}; "
                f"leave {flag} out to go on with {made}, or make tables in another folder"
            )


def _written(tables: Path) -> Options | None:
    """The options that the tables were made with; None if no run has made any."""
    file = tables / _FILE
    try:
        told = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: {error}") from None
    names = {field.name for field in fields(Options)}
    if not isinstance(told, dict) or not told.keys() <= names:
        raise ConfigError(f"{file}: these are not the options of tables: {told!r:.200}")
    try:
        return Options(**told)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
