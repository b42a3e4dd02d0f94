"""Judge predictions by measured times: one command rebuilds the bands and all tables from start to end.

    python -m benchmarks.prediction.judge [--bands] [--write]

--bands writes src/rooflens/predict/bands.toml from all rows, --write docs/prediction-tables.md, the first table of
docs/prediction.md, and the numbers as benchmarks/results/prediction.json; without them the tables are only printed.
Constants are fitted on operations, never on rows of whole models. Coverage is that of bands which were read off other
models (coverage.py). Estimates of models are kept in a folder; the first time they take an hour of processor time.
"""

from __future__ import annotations

import argparse
import json
import resource
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import mean

from benchmarks.prediction import goals, noise, own_models, public_models, public_operations, public_sets
from benchmarks.prediction.coverage import Bands, bands_of, held, of_folds, told
from benchmarks.prediction.tables import Held, Judged, errors, grouped, markdown
from benchmarks.prediction.traces import Traces

from rooflens.devices.files import cache_folder

RESULTS = Path(__file__).parents[1] / "results" / "prediction.json"
DOCS = Path(__file__).parents[2] / "docs"
PAGE, TABLES_PAGE = DOCS / "prediction.md", DOCS / "prediction-tables.md"
BANDS = Path(__file__).parents[2] / "src/rooflens/predict/bands.toml"
BEGIN, END = "<!-- judge.py: begin -->", "<!-- judge.py: end -->"
LEVELS = ("datasheet", "datasheet, unknown generation", "calibrated", "replayed")
Key = Callable[[Judged], tuple[str, ...]]
Chosen = Callable[[Judged], bool]

OTHERS = (
    *("NVIDIA's ResNet-50", "timm", "NeuSight, end to end", "gpt-fast"),
    *("LLM-foundry", "TensorRT-LLM", "timm, training", "timm, processors"),
)
"""Sets of whole models that others have timed."""
OTHER_PROGRAMS = ("TensorRT-LLM", "LLM-foundry")
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
        "Training steps of these models in autocast, eager",
        ("level", "phase", "batch", "waits for"),
        lambda row: row.source == "H200, 46 models" and row.mode.startswith("train"),
        lambda row: (row.level, row.mode, row.batch, row.regime),
    ),
    (
        "Eager steps of these models and of language models, with the host as other tenants let it be",
        ("level", "mode", "waits for"),
        lambda row: row.source.endswith(own_models.BUSY),
        lambda row: (row.level, row.mode, row.regime),
    ),
    (
        "Language models in bf16",
        ("level", "card", "mode", "waits for"),
        lambda row: row.source.endswith(("language models", "decoders")),
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
        lambda row: row.source in OTHERS,
        lambda row: (row.level, row.source, row.device, row.mode, row.regime),
    ),
    (
        "Processors, operation by operation, in fp32",
        ("level", "set"),
        lambda row: row.source in (own_models.AGREEMENT, own_models.OTHER_MODELS, own_models.QUIET),
        lambda row: (row.level, row.source),
    ),
    (
        "Operations of language models in fp16 (Vidur), from 20 us",
        ("level", "card", "operation"),
        lambda row: row.source == "Vidur",
        lambda row: (row.level, row.device, row.mode),
    ),
    (
        "Operations in fp32 (NeuSight); shares and rates of these cards were read off such rows",
        ("level", "card"),
        lambda row: row.source == "NeuSight",
        lambda row: (row.level, row.device),
    ),
    (
        "The suites, by effect: the spread of the forms, and no proof",
        ("level", "card", "effect"),
        lambda row: row.source == "suite",
        lambda row: (row.level, row.device, row.mode),
    ),
)


SOURCES: tuple[Callable[[Traces], Iterable[Judged]], ...] = (
    own_models.unseen,
    own_models.decoders,
    own_models.models_with_graphs,
    own_models.earlier_h200,
    own_models.processors,
    public_models.rows,
    public_sets.rows,
    lambda _: public_operations.rows(),
    lambda _: own_models.operations_of_the_suite(),
)
"""What gives measured times beside their predictions, the longest first."""

HEAD = """# Errors of the expected time

Written by `python -m benchmarks.prediction.judge --write`. Errors are of predicted over measured times in percent:
mean, median and 90 % quantile without sign, bias with it. Beside them, on the same rows, the mean error of the plain
bound, of the bound over one efficiency that other models tell, and of what others published. Coverage counts the times
within bands that were read off other models; it should be 80. [Expected times](prediction.md) says what is proof."""
GENERAL_IS_NO_PROOF = frozenset({"h100-sxm5-80gb", "h200-sxm-141gb"})
"""Cards of the generation that most general constants were read off."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=cache_folder() / "prediction-traces")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--bands", action="store_true")
    given = parser.parse_args()
    rows = judged_rows(given.traces, given.jobs)
    if given.bands:
        BANDS.write_text(bands(rows), encoding="utf-8")
        print(f"wrote {BANDS.name}")
    folds = of_folds(read_off(rows))
    text = "\n\n".join(_parts(rows, folds))
    print(text)
    if given.write:
        write(rows, folds, text)
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"{sum(its.ru_utime + its.ru_stime for its in spent):.0f} s of processor time")


def judged_rows(folder: Path, jobs: int) -> list[Judged]:
    """Every measured time beside its predictions, from estimates in a folder, by several processes."""
    with ProcessPoolExecutor(jobs) as pool:
        return [row for rows in pool.map(partial(_rows_of, folder), range(len(SOURCES))) for row in rows]


def _rows_of(folder: Path, source: int) -> list[Judged]:
    """The rows of one of the sources."""
    return list(SOURCES[source](Traces(folder)))


def _parts(rows: Sequence[Judged], folds: Sequence[Bands]) -> Iterable[str]:
    counted = _held_by(folds)
    for title, names, chosen, key in TABLES[:-1]:  # the suites are no proof: results/prediction.json has them
        groups = grouped((row for row in filter(chosen, rows) if not _no_proof(row)), key)
        yield f"## {title}\n\n{markdown(groups, names, counted)}"
    yield f"## Bands of steps, and how many times of other models they held\n\n{_held(rows, folds)}"
    yield f"## How much the same step differs\n\n{noise.table()}"
    yield f"## Rows that others measured\n\n{used(rows)}"


def _held_by(folds: Sequence[Bands]) -> Held:
    return lambda row: held(row, folds)


def used(rows: Sequence[Judged]) -> str:
    """A line for each set: rows that are used, all rows, and why the others are not."""
    lines = ["| set | used | of | not used |", "|---|---|---|---|"]
    for name, source, count, why in (*public_models.SETS, *public_sets.SETS):
        by_level = Counter(row.level for row in rows if row.source == source)
        lines.append(f"| {name} | {max(by_level.values(), default=0)} | {count} | {why} |")
    return "\n".join(lines)


def _no_proof(row: Judged) -> bool:
    return row.level == LEVELS[1] and row.device in GENERAL_IS_NO_PROOF


def _held(rows: Sequence[Judged], folds: Sequence[Bands]) -> str:
    used = read_off(rows)
    whole, known = bands_of(used), told(used)
    lines = ["| level | step | band | models | rows | coverage |", "|---|---|---|---|---|---|"]
    for (name, level), its in _by_step(used).items():
        own = (level, name) in known
        low, high = whole[level, name if own else name.partition(",")[0]]
        between = f"{low:.2f} to {high:.2f}" if own else "that of all modes"
        cells = (
            level,
            name,
            between,
            str(_models(its)),
            str(len(its)),
            _covered(its, folds) if own else "too few models",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _by_step(rows: Iterable[Judged]) -> dict[tuple[str, ...], list[Judged]]:
    """Steps by name and level: all that wait for the same, and by mode."""
    steps = [(name, row) for row in rows if row.steps for name in row.bands[1:]]
    groups: dict[tuple[str, ...], list[Judged]] = {}
    for name, row in steps:
        groups.setdefault((name, row.level), []).append(row)
    return dict(sorted(groups.items()))


def _models(rows: Iterable[Judged]) -> int:
    return len({row.model for row in rows})


def read_off(rows: Iterable[Judged]) -> list[Judged]:
    """The rows that bands are read off: of steps, those whose operations no constant was read off.

    The phase of an optimizer is left out: how far the host is ahead decides whether it takes 0.1 ms or 2. So are
    programs with other kernels, or on several cards.
    """
    return [
        row
        for row in rows
        if not (row.steps and row.seen and row.level != "replayed")
        and "optimizer" not in row.mode
        and row.source not in OTHER_PROGRAMS
    ]


def write(rows: Sequence[Judged], folds: Sequence[Bands], text: str) -> None:
    """Keep the numbers as data, and put the tables into the pages."""
    counted = _held_by(folds)
    data = {
        title: [{"group": key} | errors(its, counted) for key, its in grouped(filter(chosen, rows), key_of).items()]
        for title, _, chosen, key_of in TABLES
    }
    RESULTS.write_text(json.dumps(data, indent=1) + "\n")
    TABLES_PAGE.write_text(f"{HEAD}\n\n{text}\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, after = page[: page.index(BEGIN) + len(BEGIN)], page[page.index(END) :]
    tables = f"{goals.table(rows)}\n\n{coverages(rows, folds)}"
    PAGE.write_text(f"{before}\n\n{tables}\n\n{after}", encoding="utf-8")


def coverages(rows: Sequence[Judged], folds: Sequence[Bands]) -> str:
    """A line for each regime and mode that has a band at some level: coverage, and rows in brackets."""
    used = read_off(rows)
    groups, known = _by_step(used), told(used)

    def cell(name: str, level: str) -> str:
        its = groups.get((name, level), [])
        if not its or (level, name) in known:
            return f"{_covered(its, folds)} ({len(its)})" if its else "-"
        return f"{_models(its)} models"

    lines = ["| step | " + " | ".join(LEVELS) + " |", "|" + "---|" * (len(LEVELS) + 1)]
    names = dict.fromkeys(name for name, level in groups if (level, name) in known)
    lines += [f"| {name} | " + " | ".join(cell(name, level) for level in LEVELS) + " |" for name in names]
    return "\n".join(lines)


def _covered(rows: Sequence[Judged], folds: Sequence[Bands]) -> str:
    """The share of rows in the bands of other models, in percent."""
    return f"{100 * mean(bool(held(row, folds)) for row in rows):.0f}"


def bands(rows: Sequence[Judged]) -> str:
    """The text of `predict/bands.toml`. A level without rows of its own keeps what is there."""
    now = tomllib.loads(BANDS.read_text(encoding="utf-8"))
    found = bands_of(read_off(rows))
    steps = {name for row in rows if row.steps for name in row.bands}
    lines = [
        "# Measured over predicted, of 8 in 10 further times: of steps by what they wait for, of operations by family.",
        "# Made by benchmarks/prediction/judge.py --bands.",
    ]
    for level in LEVELS:
        for part, whole in (("steps", True), ("families", False)):
            mine = {name: pair for (its, name), pair in found.items() if its == level and (name in steps) is whole}
            lines += ["", f'["{level}".{part}]']
            kept = {name: pair for name, pair in now[level][part].items() if "," not in name}
            for name, (low, high) in sorted({**kept, **mine}.items()):
                key = f'"{name}"' if set(name) & {",", " "} else name
                lines.append(f"{key} = [{low:.2f}, {high:.2f}]")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
