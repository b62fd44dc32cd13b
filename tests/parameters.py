"""Names for the parameters of tests, which are the same in every process that collects them."""

from __future__ import annotations

import msgspec


def named(value: object) -> str | None:
    """Name an op by its kind and what it says; what is no op is named as pytest does it.

    Where the payload of an op lies in memory, as its `repr` has it, differs from run to run.
    """
    if not isinstance(value, msgspec.Struct):
        return None
    fields = msgspec.structs.fields(value)
    said = {one.name: getattr(value, one.name) for one in fields}
    shown = [f"{name}={_shown(field)}" for name, field in said.items() if _told(field)]
    return f"{type(value).__name__}({', '.join(shown)})"[:80]


def _told(field: object) -> bool:
    return field is not None and field is not False


def _shown(field: object) -> str:
    return ascii(bytes(field) if isinstance(field, msgspec.Raw) else field)
