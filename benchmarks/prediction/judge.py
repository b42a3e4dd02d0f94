"""Judge predictions by measured times: one command rebuilds the tables of docs/prediction.md.

    python -m benchmarks.prediction.judge --traces FOLDER --write

Estimates of models take minutes the first time; FOLDER keeps them. Constants are fitted on operations, never on rows of
whole models. Without --write the tables are only printed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.prediction import own_models, public_operations
from benchmarks.prediction.tables import Judged, grouped, markdown, summary

RESULTS = Path(__file__).parents[1] / "results" / "prediction.json"
PAGE = Path(__file__).parents[2] / "docs" / "prediction.md"
BEGIN, END = "<!-- judge.py: begin -->", "<!-- judge.py: end -->"

Key = Callable[[Judged], tuple[str, ...]]
TABLES: tuple[tuple[str, tuple[str, ...], Callable[[Judged], bool], Key], ...] = (
    (
        "Image models on an H200, eager, models never looked at",
        ("level", "step", "waits for"),
        lambda row: row.source == "own H200" and not row.seen,
        lambda row: (row.level, row.family, row.regime),
    ),
    (
        "The same, by element type and batch (inference)",
        ("level", "dtype", "batch"),
        lambda row: row.source == "own H200" and not row.seen and row.family == "inference",
        lambda row: (row.level, *row.key.split()[1:3]),
    ),
    (
        "Operations of language models in fp16 (Vidur), from 20 us",
        ("level", "device", "operation"),
        lambda row: row.source == "Vidur",
        lambda row: (row.level, row.device, row.regime),
    ),
    (
        "Operations in fp32 (NeuSight)",
        ("level", "device", "family"),
        lambda row: row.source == "NeuSight",
        lambda row: (row.level, row.device, "batched product" if row.regime == "batched" else row.family),
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    given.traces.mkdir(parents=True, exist_ok=True)
    rows = [*public_operations.rows(), *own_models.image_models(given.traces)]
    parts, data = [], {}
    for title, names, chosen, key in TABLES:
        groups = grouped(filter(chosen, rows), key)
        parts.append(f"### {title}\n\n{markdown(groups, names)}")
        data[title] = summary(groups)
    text = "\n\n".join(parts)
    print(text)
    if given.write:
        RESULTS.write_text(json.dumps(data, indent=1) + "\n")
        page = PAGE.read_text(encoding="utf-8")
        before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
        PAGE.write_text(f"{before}\n\n{text}\n\n{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
