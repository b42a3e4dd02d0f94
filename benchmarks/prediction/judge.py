"""Judge predictions by measured times: one command rebuilds the tables of docs/prediction.md.

    python -m benchmarks.prediction.judge --traces FOLDER --write
    python -m benchmarks.prediction.judge --traces FOLDER --bands

Estimates of models take minutes the first time; FOLDER keeps them. Constants are fitted on operations, never on rows of
whole models. Without --write the tables are only printed. --bands writes the bands of predictions from one half of the
rows; their coverage in the tables is that of the other half.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.prediction import own_models, public_operations
from benchmarks.prediction.tables import FITTED, Judged, grouped, markdown, quantile, summary

RESULTS = Path(__file__).parents[1] / "results" / "prediction.json"
PAGE = Path(__file__).parents[2] / "docs" / "prediction.md"
BEGIN, END = "<!-- judge.py: begin -->", "<!-- judge.py: end -->"

LEVELS = ("datasheet", "datasheet, unknown generation", "calibrated", "replayed")
REGIMES = ("device-bound", "mixed", "host-bound", "graph")

Key = Callable[[Judged], tuple[str, ...]]
BANDS = Path(__file__).parents[2] / "src/rooflens/predict/bands.toml"
TABLES: tuple[tuple[str, tuple[str, ...], Callable[[Judged], bool], Key], ...] = (
    (
        "Image models on an H100, inference, batch 1",
        ("level", "waits for"),
        lambda row: row.source == "own H100" and row.family == "inference" and row.key.endswith(" 1"),
        lambda row: (row.level, row.regime),
    ),
    (
        "Image models on an H100, inference, batch 32 and 256",
        ("level", "waits for"),
        lambda row: row.source == "own H100" and row.family == "inference" and not row.key.endswith(" 1"),
        lambda row: (row.level, row.regime),
    ),
    (
        "Training steps on an H100, batch 64, eager",
        ("level", "phase"),
        lambda row: row.source == "own H100" and row.family != "inference",
        lambda row: (row.level, row.family),
    ),
    (
        "Language models on an H100, bf16; the share of an odd cache was read off the decoding steps",
        ("level", "mode", "waits for"),
        lambda row: row.source == "own decoders",
        lambda row: (row.level, row.family, row.regime),
    ),
    (
        "Image models on an H200, eager: another card of the generation",
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
        "The suite itself, by effect: what constants were read off, so the spread of the forms and no proof",
        ("level", "effect"),
        lambda row: row.source == "suite",
        lambda row: (row.level, row.regime),
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
    parser.add_argument("--bands", action="store_true")
    given = parser.parse_args()
    given.traces.mkdir(parents=True, exist_ok=True)
    rows = [
        *public_operations.rows(),
        *own_models.image_models(given.traces),
        *own_models.models_with_graphs(given.traces),
        *own_models.training_steps(given.traces),
        *own_models.operations_of_the_suite(),
        *own_models.decoders(given.traces),
    ]
    if given.bands:
        BANDS.write_text(bands(rows), encoding="utf-8")
        return
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


def bands(rows: Sequence[Judged]) -> str:
    """The bands of `predict/bands.toml`: percentiles of one half of the rows, wider ones where there are few."""
    lines = [
        "# Measured over predicted, 10th and 90th percentile: of steps by what they wait for, of operations by family.",
        "# Made by benchmarks/prediction/judge.py --bands from half of its rows.",
    ]
    for level in LEVELS:
        mine = [row for row in rows if row.level == level and row.half == FITTED]
        steps = [row for row in mine if row.source.startswith("own")]
        lines += ["", f'["{level}".steps]']
        lines += [f"{regime} = {_pair([r for r in steps if r.regime == regime] or steps)}" for regime in REGIMES]
        lines += ["", f'["{level}".families]', f"other = {_pair(mine)}"]
        families = grouped((row for row in mine if not row.source.startswith("own")), lambda row: (row.family,))
        lines += [f"{family} = {_pair(its)}" for (family,), its in families.items()]
    return "\n".join(lines) + "\n"


def _pair(rows: Sequence[Judged]) -> str:
    ratios = [row.measured / row.predicted for row in rows]
    low, high = quantile(ratios, 0.1), quantile(ratios, 0.9)
    return f"[{min(low, 0.99):.2f}, {max(high, 1.01):.2f}]"  # a band holds the prediction


if __name__ == "__main__":
    main()
