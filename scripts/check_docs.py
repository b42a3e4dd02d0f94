"""Write the table of findings of docs/check.md from the checks themselves: `.venv/bin/python scripts/check_docs.py`."""

from __future__ import annotations

import re
from pathlib import Path

from rooflens.checks import CHECKS

PAGE = Path(__file__).parents[1] / "docs" / "check.md"
_BLOCK = re.compile(r"(<!-- of the code: checks -->\n).*?(<!-- end -->\n)", re.DOTALL)


def table() -> str:
    """A row for each code, in their order in the alphabet: severity, and what it says."""
    rows = [f"| `{code}` | {check.severity} | {check.means} |" for code, check in sorted(CHECKS.items())]
    return "\n".join(("| code | severity | means |", "|---|---|---|", *rows, ""))


def refreshed(page: str) -> str:
    """The page with the table as it is now."""
    return _BLOCK.sub(lambda block: f"{block[1]}{table()}{block[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text()))
