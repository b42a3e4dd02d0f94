"""What a page of `explore` holds, read as a browser reads it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

from rooflens.report.explorer import Explorer


class Parsed(HTMLParser):
    """The scripts and styles of a page, its content policy and the names of its elements."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": [], "title": [], "json": []}
        self.policy = ""
        self._open = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        self.elements.append(tag)
        if about.get("http-equiv") == "Content-Security-Policy":
            self.policy = about["content"] or ""
        self._open = "json" if about.get("type") == "application/json" else tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in self.inside:
            self.inside[self._open].append(data)

    @property
    def data(self) -> Any:
        (text,) = self.inside["json"]
        return json.loads(text)


def parsed(page: Explorer) -> Parsed:
    return Parsed(page.drawn())


def cells(column: dict[str, Any], rows: int) -> list[list[Any]]:
    """The cells of a column: value and text."""
    return [column["cells"][number] for number in column["of"] or [0] * rows]
