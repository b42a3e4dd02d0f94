"""A figure that saves itself: the data, set on a page and drawn by matplotlib or plotly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rooflens.errors import InvalidValue
from rooflens.records import write_atomically
from rooflens.report.figures.page_layout import SCREEN, arrange
from rooflens.report.figures.roofline_data import RooflineData

SUFFIXES = ("png", "svg", "pdf", "html")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(RooflineData):
    """A roofline that saves itself. Nothing is drawn before."""

    def save(self, path: str | Path) -> Path:
        """Draw to a file, which appears whole or not at all.

        Args:
            path: ends in .png, .svg or .pdf (matplotlib) or in .html (plotly, one file that asks nothing of any host).

        Returns:
            The path written.

        Raises:
            InvalidValue: another suffix.
            OutputError: the file cannot be written.
        """
        target = Path(path)
        suffix = target.suffix.lower().removeprefix(".")
        if suffix not in SUFFIXES:
            raise InvalidValue(
                f"cannot draw {str(target)!r}: its suffix is {target.suffix!r}, known are "
                + ", ".join(f".{known}" for known in SUFFIXES)
            )
        write_atomically(target, self.drawn(suffix))
        return target

    def drawn(self, suffix: str) -> bytes:
        """Return the contents of a file; equal figures give equal files."""
        if suffix == "html":
            from rooflens.report.figures.html_page import render_html

            return render_html(arrange(self, SCREEN)).encode()
        from rooflens.report.figures.matplotlib_files import file_bytes
        from rooflens.report.figures.with_matplotlib import draw

        return file_bytes(lambda: draw(arrange(self)), suffix)

    def _repr_png_(self) -> bytes:
        """Return the picture that a notebook shows."""
        return self.drawn("png")
