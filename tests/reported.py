"""The reported figures of the five hand-made studies, as the studies of this repository keep them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp

STUDIES = Path(__file__).parents[1] / "studies"


@cache
def reported() -> Path:
    """Return one CSV file with the figures of all five, each row as its study has it."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(STUDIES.glob("*/reported.csv"))]
    (header,) = {text.partition("\n")[0] for text in texts}
    file = Path(mkdtemp(prefix="rooflens-tests-")) / "reported.csv"
    file.write_text("\n".join([header, *(text.partition("\n")[2].rstrip("\n") for text in texts)]) + "\n")
    return file
