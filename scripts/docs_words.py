"""Count the words of README and docs/ that somebody wrote: `.venv/bin/python scripts/docs_words.py`.

A word has a letter. Blocks of code and their output do not count, nor what a program writes: the pages of `MADE`, and
what stands between `<!-- a name -->` and `<!-- end -->`. Tests hold the limits.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MADE = ("cli.md", "benchmark-counting.md", "decoder-floors.md", "prediction-tables.md")
MOST_OF_A_PAGE = 1500
MOST_OF_ALL = 20_300
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_WRITTEN = re.compile(r"^<!-- (?!end)[^\n]*-->$.*?^<!-- ([\w.]+: )?end -->$", re.MULTILINE | re.DOTALL)


def pages() -> tuple[Path, ...]:
    """README, and the pages of docs/."""
    return ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))


def words(text: str) -> list[str]:
    """The words of a page outside of its blocks."""
    return [word for word in _BLOCK.sub("", text).split() if re.search("[A-Za-z]", word)]


def by_hand(page: Path) -> int:
    """How many words of a page somebody wrote."""
    return 0 if page.name in MADE else len(words(_WRITTEN.sub("", page.read_text())))


if __name__ == "__main__":
    counted = {page.name: by_hand(page) for page in pages()}
    for name, count in sorted(counted.items(), key=lambda item: -item[1]):
        print(f"{count:6,}  {name}")
    print(f"{sum(counted.values()):6,}  together, of at most {MOST_OF_ALL:,}")
