"""The page around what was explored: one HTML file that asks nothing of any host and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, ClassVar

from rooflens.report.case_names import shared
from rooflens.report.charts.colours import on_dark
from rooflens.report.escape import printable
from rooflens.report.explorer.explored import explored
from rooflens.report.figures.palette import OTHER, device_colour, group_colours
from rooflens.report.figures.saving import Savable
from rooflens.report.html_tables import in_frame
from rooflens.report.study.causes import TIME_COLOURS
from rooflens.results import RecordSet

SCRIPTS = ("data", "choices", "roofline", "tables", "bars", "main")
"""The files of the script, in the order in which they run as one."""
_FEW = 2
"""Names that a title has room for."""
COLOURS, _DEVICES = 16, 10
"""How many values have a colour of their own, and how many devices."""


@dataclass(frozen=True)
class Explorer(Savable):
    """A page on which records are explored, which saves itself as ``.html``. Equal records give equal pages."""

    records: RecordSet
    title: str | None = None
    suffixes: ClassVar[tuple[str, ...]] = ("html",)

    @cached_property
    def data(self) -> dict[str, Any]:
        """All that the page holds, as JSON takes it."""
        return explored(self.records)

    @property
    def without_marks(self) -> str:
        """Why no mark is on its roofline, "" where one is."""
        reasons = filter(None, self.data["without"]["cells"])
        return "" if self.data["marks"]["row"] else "; ".join(reasons) or "there are no records"

    def drawn(self, suffix: str = "html", width: float | None = None) -> bytes:
        """Return the contents of the file."""
        return _page(self.title or _title(self.data), self.records, self.data).encode()

    def _repr_html_(self) -> str:
        """Return the page as a notebook shows it: in a frame of its own."""
        return in_frame(self.drawn().decode(), self.title or "Explorer")


def _title(data: dict[str, Any]) -> str:
    """Return what is explored: models and devices, by name where they are few."""
    values = {facet["key"]: [value for value in facet["values"] if value] for facet in data["facets"]}
    models, devices = (
        ", ".join(names) if len(names) <= _FEW else f"{len(names)} {noun}"
        for names, noun in ((values["model"], "models"), (values["device"], "devices"))
    )
    return f"Explore {models}{f' on {devices}' if devices else ''}" if models else "Nothing to explore"


def _page(title: str, records: RecordSet, data: dict[str, Any]) -> str:
    from jinja2 import Environment, StrictUndefined

    ours = files("rooflens.report.explorer") / "page"
    report = files("rooflens.report.study") / "templates" / "page.css"
    style = "\n".join([report.read_text(encoding="utf-8"), (ours / "page.css").read_text(encoding="utf-8"), _colours()])
    script = "\n".join((ours / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return template.from_string((ours / "page.html").read_text(encoding="utf-8")).render(
        title=printable(title),
        subtitle=printable(shared(records.cases)) if records.cases else "",
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
        data=as_text(data),
    )


def as_text(data: object) -> str:
    """Return data as JSON inside of a page: no character of it can end the element or begin another."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _hash(text: str) -> str:
    """Return what a content policy calls a style or a script: nothing else is applied or run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _colours() -> str:
    """Return the classes of colours, on light and on dark paper: of values and all others, of devices and causes."""
    values = list(group_colours([f"{number}" for number in range(COLOURS)]).values())
    values.append(group_colours([OTHER])[OTHER])
    devices = [device_colour(number, _DEVICES) for number in range(_DEVICES)]
    return "\n".join(
        f".{kind}{number} {{ --l: {colour}; --k: {on_dark(colour)} }}"
        for kind, colours in (("g", values), ("v", devices), ("t", TIME_COLOURS.values()))
        for number, colour in enumerate(colours)
    )
