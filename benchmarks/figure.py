"""Figures: what repetitions gave, what they promise, and tables that say both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median


@dataclass(frozen=True)
class Figure:
    """The median of several repetitions, with the smallest and the largest."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    def show(self, digits: int = 2) -> str:
        """The median, and the spread when there is one."""
        text = f"{self.median:,.{digits}f}"
        if len(self.values) > 1:
            text += f" ({min(self.values):,.{digits}f} to {max(self.values):,.{digits}f})"
        return text


def figure(values: Sequence[float]) -> Figure:
    """A figure from the values of its repetitions."""
    return Figure(tuple(values))


def ratio(above: Figure, below: Figure) -> Figure:
    """Divide repetition by repetition: what disturbed both at once falls out."""
    return figure([a / b for a, b in zip(above.values, below.values, strict=True)])


def best_ratio(above: Figure, below: Figure, best: Callable[[tuple[float, ...]], float]) -> float:
    """Divide the best by the best: what disturbed some repetitions falls out."""
    return best(above.values) / best(below.values)


@dataclass(frozen=True)
class Chart:
    """A picture of several tables."""

    file: str
    title: str
    # How the names of the bars begin that it is about; the others are there to compare with.
    ours: str = "Chappe"
    # Whether one measurement makes all tables of it.
    whole: bool = False

    def markdown(self) -> str:
        """How a report shows it."""
        return f"![{self.title}]({self.file})\n"


@dataclass(frozen=True)
class Promise:
    """A bound that a figure must keep, and where it should get to."""

    what: str
    bound: float
    aim: float | None = None
    at_most: bool = False

    def judge(self, found: Figure) -> str:
        """One line: what was promised, what was found, whether it holds."""
        value = found.median
        kept = value <= self.bound if self.at_most else value >= self.bound
        aim = f" (aim {self.aim:g})" if self.aim is not None else ""
        side = "at most" if self.at_most else "at least"
        verdict = "kept" if kept else "NOT KEPT"
        return f"Promise: {self.what} {side} {self.bound:g}{aim}. Found {value:.2f}: **{verdict}**."


@dataclass
class Table:
    """One measurement as it is shown."""

    title: str
    about: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    # What the chart draws: a bar for each of these names.
    bars: dict[str, float] = field(default_factory=dict)
    chart: Chart | None = None

    def markdown(self) -> str:
        """The table in Markdown, its promises below it."""
        lines = [f"## {self.title}", "", self.about, ""]
        lines.append("| " + " | ".join(self.header) + " |")
        lines.append("|---" + "|---:" * (len(self.header) - 1) + "|")
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        for verdict in self.verdicts:
            lines += ["", verdict]
        return "\n".join(lines) + "\n"
