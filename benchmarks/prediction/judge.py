"""Judge predictions by measured times: one command rebuilds the tables of docs/prediction.md.

    python -m benchmarks.prediction.judge [--bands] [--write]

Estimates of models take minutes the first time; a folder keeps them. Constants are fitted on operations, never on rows
of whole models. --bands first writes the bands of predictions from all rows; their coverage in the tables is that of
bands which were read off the other half of the models. Without --write the tables are only printed.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.prediction import goals, noise, own_models, public_models, public_operations
from benchmarks.prediction.tables import Bands, Judged, bands_of, errors, grouped, held, markdown
from benchmarks.prediction.traces import Traces

from rooflens.devices.files import cache_folder

RESULTS = Path(__file__).parents[1] / "results" / "prediction.json"
PAGE = Path(__file__).parents[2] / "docs" / "prediction.md"
BANDS = Path(__file__).parents[2] / "src/rooflens/predict/bands.toml"
BEGIN, END = "<!-- judge.py: begin -->", "<!-- judge.py: end -->"
LEVELS = ("datasheet", "datasheet, unknown generation", "calibrated", "replayed")
Key = Callable[[Judged], tuple[str, ...]]
Chosen = Callable[[Judged], bool]

TABLES: tuple[tuple[str, tuple[str, ...], Chosen, Key], ...] = (
    (
        "23 image models on an H200 that nobody looked at: the second half of 46",
        ("level", "waits for", "batch"),
        goals.images,
        lambda row: (row.level, row.regime, "1" if row.batch == "1" else "32, 256"),
    ),
    (
        "The first half, single rows of which were looked at",
        ("level", "waits for", "batch"),
        lambda row: row.source == "H200, 46 models" and row.mode == "inference" and not goals.images(row),
        lambda row: (row.level, row.regime, "1" if row.batch == "1" else "32, 256"),
    ),
    (
        "The second half by element type, from graphs",
        ("level", "dtype", "batch"),
        lambda row: goals.images(row) and row.regime == "graph",
        lambda row: (row.level, row.dtype, row.batch),
    ),
    (
        "Training steps of 23 of these models in autocast, batch 64, eager",
        ("level", "phase", "waits for"),
        lambda row: row.source == "H200, 46 models" and row.mode.startswith("train"),
        lambda row: (row.level, row.mode, row.regime),
    ),
    (
        "Language models in bf16; the share of an odd cache was read off decoding steps on the H100",
        ("level", "card", "mode", "waits for"),
        lambda row: row.source.endswith("language models"),
        lambda row: (row.level, row.device, row.mode, row.regime),
    ),
    (
        "Models whose operations, on an H100, constants were read off: no proof",
        ("level", "waits for", "batch"),
        lambda row: row.source == "H100, 14 models",
        lambda row: (row.level, row.regime, "1" if row.batch == "1" else "32, 256"),
    ),
    (
        "17 models on an H200 with another host, eager",
        ("level", "mode", "waits for"),
        lambda row: row.source == "H200, 17 models",
        lambda row: (row.level, row.mode, row.regime),
    ),
    (
        "Models that others have timed",
        ("level", "set", "card", "mode", "waits for"),
        lambda row: row.source in ("NVIDIA's ResNet-50", "timm", "NeuSight, end to end", "gpt-fast"),
        lambda row: (row.level, row.source, row.device, row.mode, row.regime),
    ),
    (
        "Operations of language models in fp16 (Vidur), from 20 us",
        ("level", "card", "operation"),
        lambda row: row.source == "Vidur",
        lambda row: (row.level, row.device, row.mode),
    ),
    (
        "Operations in fp32 (NeuSight); shares and rates of these cards were read off such rows",
        ("level", "card", "operation"),
        lambda row: row.source == "NeuSight",
        lambda row: (row.level, row.device, "product" if "rows" in row.mode else row.mode),
    ),
    (
        "The suites, by effect: the spread of the forms, and no proof",
        ("level", "card", "effect"),
        lambda row: row.source == "suite",
        lambda row: (row.level, row.device, row.mode),
    ),
)


ON_THE_PAGE = frozenset({TABLES[n][0] for n in (0, 3, 4, 7)})
"""Tables that the page has; the others are in benchmarks/results/prediction.json."""
GENERAL_IS_NO_PROOF = frozenset({"h100-sxm5-80gb", "h200-sxm-141gb"})
"""Cards of the generation that most general constants were read off."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=cache_folder() / "prediction-traces")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--bands", action="store_true")
    given = parser.parse_args()
    traces = Traces(given.traces)
    rows = [
        *own_models.unseen(traces),
        *own_models.decoders(traces),
        *own_models.models_with_graphs(traces),
        *own_models.earlier_h200(traces),
        *public_models.rows(traces),
        *public_operations.rows(),
        *own_models.operations_of_the_suite(),
    ]
    if given.bands:
        BANDS.write_text(bands(rows), encoding="utf-8")
        print(f"wrote {BANDS.name}")
    halves = of_halves(rows)
    text = "\n\n".join(_parts(rows, halves))
    print(text)
    if given.write:
        write(rows, halves, text)


def of_halves(rows: Sequence[Judged]) -> tuple[Bands, Bands]:
    """Bands that are read off either half of the models."""
    some = read_off(rows)
    return bands_of(r for r in some if r.half == 0), bands_of(r for r in some if r.half == 1)


def _parts(rows: Sequence[Judged], halves: tuple[Bands, Bands]) -> Iterable[str]:
    yield f"### Reached, and the goal in brackets: mean / median error in percent\n\n{goals.table(rows)}"
    for title, names, chosen, key in TABLES:
        groups = grouped((row for row in filter(chosen, rows) if not _no_proof(row)), key)
        if title in ON_THE_PAGE:
            yield f"### {title}\n\n{markdown(groups, names, halves)}"
    yield f"### Bands of steps, and how many times of other models they held\n\n{_held(rows, halves)}"
    yield f"### How much the same step differs\n\n{noise.table()}"
    lines = [
        "| set | rows | why |",
        "|---|---|---|",
        *(f"| {n} | {k} | {why} |" for n, k, why in public_models.LEFT_OUT),
    ]
    yield "### Rows that are not used\n\n" + "\n".join(lines)


def _no_proof(row: Judged) -> bool:
    return row.level == LEVELS[1] and row.device in GENERAL_IS_NO_PROOF


def _held(rows: Sequence[Judged], halves: tuple[Bands, Bands]) -> str:
    whole = bands_of(read_off(rows))
    lines = ["| level | step | band | rows | coverage |", "|---|---|---|---|---|"]
    groups = grouped((row for row in read_off(rows) if row.steps), lambda row: (row.level, row.bands[1]))
    for (level, name), its in groups.items():
        inside = [found for row in its if (found := held(row, halves[1 - row.half])) is not None]
        low, high = whole.get((level, name)) or whole[level, name.partition(",")[0]]
        share = f"{100 * mean(inside):.0f}" if inside else "-"
        lines.append(f"| {level} | {name} | {low:.2f} to {high:.2f} | {len(its)} | {share} |")
    return "\n".join(lines)


def read_off(rows: Iterable[Judged]) -> list[Judged]:
    """The rows that bands are read off: of steps, those whose operations no constant was read off.

    The phase of an optimizer is left out: where the host is not ahead it takes the host's time, eight times as long.
    """
    return [
        row for row in rows if not (row.steps and row.seen and row.level != "replayed") and "optimizer" not in row.mode
    ]


def write(rows: Sequence[Judged], halves: tuple[Bands, Bands], text: str) -> None:
    """Keep the numbers as data, and put the tables into the page."""
    data = {
        title: [{"group": key} | errors(its, halves) for key, its in grouped(filter(chosen, rows), key_of).items()]
        for title, _, chosen, key_of in TABLES
    }
    RESULTS.write_text(json.dumps(data, indent=1) + "\n")
    page = PAGE.read_text(encoding="utf-8")
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    PAGE.write_text(f"{before}\n\n{text}\n\n{after}", encoding="utf-8")


def bands(rows: Sequence[Judged]) -> str:
    """The text of `predict/bands.toml`. A level without rows of its own keeps what is there."""
    now = tomllib.loads(BANDS.read_text(encoding="utf-8"))
    found = bands_of(read_off(rows))
    steps = {name for row in rows if row.steps for name in row.bands}
    lines = [
        "# Measured over predicted, 10th and 90th percentile: of steps by what they wait for, of operations by family.",
        "# Made by benchmarks/prediction/judge.py --bands.",
    ]
    for level in LEVELS:
        for part, whole in (("steps", True), ("families", False)):
            mine = {name: pair for (its, name), pair in found.items() if its == level and (name in steps) is whole}
            lines += ["", f'["{level}".{part}]']
            for name, (low, high) in sorted({**now[level][part], **mine}.items()):
                lines.append(
                    f'"{name}" = [{low:.2f}, {high:.2f}]' if "," in name else f"{name} = [{low:.2f}, {high:.2f}]"
                )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
