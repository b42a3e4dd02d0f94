"""Text from users and files made harmless for each format. Names may hold anything: markup, escapes, formulas."""

from __future__ import annotations

import re

from rooflens.reported.csv_file import FORMULA_SIGNS

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    # After the \\ of the row before, these would be its arguments.
    "[": "{[}",
    "*": "{*}",
} | {character: f"\\{character}" for character in "{}$&#%_"}
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_UNIT = re.compile(r"(?<=\d) (?=[^\W\d_]|%)(?!to\b)")
_MARKDOWN = re.compile(r"[\\|*`\[\]~$#]|(?<![^\W_])_|_(?![^\W_])")
_MARKDOWN_BLOCK = re.compile(r"^(\d*)([-+=]|[.)](?=\s|$))")


def printable(text: str) -> str:
    r"""`text` with an escape for each character that is not shown: control, line break, direction override.

    >>> printable("a\x1b[31m")
    'a\\x1b[31m'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def unbroken(text: str) -> str:
    r"""Text in which no line ends between a number and its unit.

    >>> unbroken("3.4 ms to 5.6 ms").replace("\N{NO-BREAK SPACE}", "_")
    '3.4_ms to 5.6_ms'
    """
    return _UNIT.sub("\N{NO-BREAK SPACE}", text)


def markdown(text: str) -> str:
    """Text for a cell or heading: neither Markdown nor HTML. Underscores inside of words stay readable."""
    safe = _MARKDOWN.sub(lambda match: f"\\{match[0]}", printable(text).strip())
    return "".join(_HTML.get(c, c) for c in safe)


def markdown_block(text: str) -> str:
    """Text for a list item: as :func:`markdown`, and no list or rule of its own."""
    return _MARKDOWN_BLOCK.sub(r"\1\\\2", markdown(text))


def latex(text: str) -> str:
    """Text for LaTeX: no command, no argument, no ligature of hyphens."""
    safe = "".join(_LATEX.get(c, c) for c in printable(text))
    return safe.replace("--", "-{}-")


def spreadsheet(text: str) -> str:
    """Text that a spreadsheet does not run as a formula: a leading = + - @ gets an apostrophe, as OWASP advises.

    So does one that follows apostrophes, so that the first can be taken away again
    (:func:`rooflens.reported.csv_file.as_typed`).
    """
    safe = printable(text)
    return f"'{safe}" if safe.lstrip().lstrip("'").lstrip()[:1] in FORMULA_SIGNS else safe
