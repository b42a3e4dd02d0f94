"""Pictures that save themselves: the data, set on a page and drawn by matplotlib or plotly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rooflens.errors import InvalidValue
from rooflens.records import write_atomically
from rooflens.report.figures.page_layout import arrange
from rooflens.report.figures.roofline_data import RooflineData

_MOST_REASONS = 3
_LEAST_MM, _MOST_MM = 60, 1000
_POINTS = 72 / 25.4
"""In a millimetre."""
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
    def drawn(self, suffix: str, width: float | None = None) -> bytes:
        """Return the contents of a file, which is `width` points wide; equal data give equal files."""

    def save(self, path: str | Path, width: float | None = None) -> Path:
        """Draw to a file, which appears whole or not at all.

        Args:
            path: ends in .png, .svg, .pdf (matplotlib) or .html (one file that loads nothing from elsewhere).
            width: in millimetres, as a column of a paper is: 85. Letters keep their size. Default: what the picture
                needs. A page (.html) takes the width of its window.

        Returns:
            The path written.

        Raises:
            InvalidValue: another suffix, or a width of a page or beyond 60 to 1,000 mm.
            OutputError: the file cannot be written.
        """
        target = Path(path)
        suffix = target.suffix.lower().removeprefix(".")
        if suffix not in self.suffixes:
            raise InvalidValue(
                f"cannot draw {str(target)!r}: its suffix is {target.suffix!r}, known are "
                + ", ".join(f".{known}" for known in self.suffixes)
            )
        if width is not None and (suffix == "html" or not _LEAST_MM <= width <= _MOST_MM):
            why = "its page takes that of the window" if suffix == "html" else f"from {_LEAST_MM} to {_MOST_MM} mm fit"
            raise InvalidValue(f"cannot draw {str(target)!r} {width:g} mm wide: {why}")
        write_atomically(target, self.drawn(suffix, None if width is None else width * _POINTS))
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

    def save(self, path: str | Path, width: float | None = None) -> Path:
        """Draw to a file, as every picture; InvalidValue too where it would show neither a roof nor a mark."""
        if not self.ceilings and self.without_marks:
            raise InvalidValue(
                f"{str(path)!r} would be an empty picture: {self.without_marks} Name a known device for its roofs"
                " (--device NAME, or a device file: docs/devices.md), and add an estimate or counters for marks"
            )
        return Savable.save(self, path, width)  # super() knows a dataclass with slots by its earlier class only

    def drawn(self, suffix: str, width: float | None = None) -> bytes:
        """Return the contents of a file; equal figures give equal files."""
        if suffix == "html":
            from rooflens.report.figures.html_page import render_html

            return render_html(self).encode()
        from rooflens.report.figures.matplotlib_files import file_bytes
        from rooflens.report.figures.with_matplotlib import draw

        return file_bytes(lambda: draw(arrange(self, width=width)), suffix)
