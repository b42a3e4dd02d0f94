"""Pictures that save themselves: the data, set on a page and drawn by matplotlib or plotly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rooflens.errors import InvalidValue
from rooflens.records import write_atomically
from rooflens.report.figures.page_layout import SCREEN, arrange
from rooflens.report.figures.roofline_data import RooflineData

_MOST_REASONS = 3
SUFFIXES = ("png", "svg", "pdf", "html")


class Savable(ABC):
    """Data that draw themselves to files. Nothing is drawn before."""

    __slots__ = ()
    suffixes: ClassVar[tuple[str, ...]]
    """Of the files, without their dots."""

    @property
    def without_marks(self) -> str:
        """Why no mark is in it, "" where one is."""
        return ""

    @abstractmethod
    def drawn(self, suffix: str) -> bytes:
        """Return the contents of a file; equal data give equal files."""

    def save(self, path: str | Path) -> Path:
        """Draw to a file, which appears whole or not at all.

        Args:
            path: ends in .png, .svg or .pdf (matplotlib); a roofline also in .html (plotly, one file that loads
                nothing from elsewhere).

        Returns:
            The path written.

        Raises:
            InvalidValue: another suffix.
            OutputError: the file cannot be written.
        """
        target = Path(path)
        suffix = target.suffix.lower().removeprefix(".")
        if suffix not in self.suffixes:
            raise InvalidValue(
                f"cannot draw {str(target)!r}: its suffix is {target.suffix!r}, known are "
                + ", ".join(f".{known}" for known in self.suffixes)
            )
        write_atomically(target, self.drawn(suffix))
        return target


class Picture(Savable):
    """What is also a picture for a notebook."""

    __slots__ = ()

    def _repr_png_(self) -> bytes:
        """Return the picture that a notebook shows."""
        return self.drawn("png")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(RooflineData, Picture):
    """A roofline that saves itself."""

    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES

    @property
    def without_marks(self) -> str:
        """Why no mark is in it, "" where one is, or only roofs were asked for."""
        if self.marks or self.rug or (self.ceilings and not self.unplaced):
            return ""
        reasons = [f"{its.label}: {its.reason}." for its in self.unplaced[:_MOST_REASONS]]
        return " ".join([*reasons, *(() if self.ceilings else self.notes)])

    def save(self, path: str | Path) -> Path:
        """Draw to a file, as every picture; InvalidValue too where it would show neither a roof nor a mark."""
        if not self.ceilings and self.without_marks:
            raise InvalidValue(
                f"{str(path)!r} would be an empty picture: {self.without_marks} Name a known device for its roofs"
                " (--device NAME, or a device file: docs/devices.md), and add an estimate or counters for marks"
            )
        return Savable.save(self, path)  # super() knows a dataclass with slots by its earlier class only

    def drawn(self, suffix: str) -> bytes:
        """Return the contents of a file; equal figures give equal files."""
        if suffix == "html":
            from rooflens.report.figures.html_page import render_html

            return render_html(arrange(self, SCREEN)).encode()
        from rooflens.report.figures.matplotlib_files import file_bytes
        from rooflens.report.figures.with_matplotlib import draw

        return file_bytes(lambda: draw(arrange(self)), suffix)
