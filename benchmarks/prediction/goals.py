"""What was to be reached, and what is: a line for each level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean, median

from benchmarks.prediction.own_models import AGREEMENT
from benchmarks.prediction.tables import Judged

SECOND = 1
"""The half of the models that nobody looked at after the first table; those of the other half were."""


PROFILED = frozenset(
    {"resnet34", "vit_b_32", "timm:seresnet50", "mobilenet_v2", "convnext_small", "timm:mixer_b16_224"}
)
"""Models whose training was looked at operation by operation."""


def images(row: Judged) -> bool:
    """True of inference of image models that nobody has looked at."""
    return row.source == "H200, 46 models" and row.half == SECOND and row.mode == "inference"


COLUMNS: tuple[tuple[str, Callable[[Judged], bool]], ...] = (
    ("images, batch 32 and 256, graph", lambda row: images(row) and row.regime == "graph" and row.batch != "1"),
    ("batch 1, graph", lambda row: images(row) and row.regime == "graph" and row.batch == "1"),
    ("batch 1, eager", lambda row: images(row) and row.regime != "graph" and row.batch == "1"),
    (
        "training step, batch 64",
        lambda row: (
            (row.source, row.mode, row.batch) == ("H200, 46 models", "train", "64") and row.model not in PROFILED
        ),
    ),
    ("prefill", lambda row: row.device.startswith("h200") and row.mode == "prefill" and row.regime == "graph"),
    ("decode, graph", lambda row: row.device.startswith("h200") and row.mode == "decode" and row.regime == "graph"),
    ("processor, eager", lambda row: row.source == AGREEMENT),
)
GOALS = {
    "datasheet": ("15 / 10", "20", "30", "15", "10", "15", "-"),
    "datasheet, unknown generation": ("22 / 15", "30", "-", "25", "15", "20", "-"),
    "calibrated": ("8 / 5", "12", "18", "10", "4", "6", "15 / 10"),
    "replayed": ("4 / 2.5", "6", "12", "5", "3", "4", "-"),
}


def table(rows: Sequence[Judged]) -> str:
    """Mean and median error in percent, with the goal in brackets."""
    lines = ["| level | " + " | ".join(name for name, _ in COLUMNS) + " |", "|" + "---|" * (len(COLUMNS) + 1)]
    sheet = [row for row in rows if row.level == "datasheet" or row.source == AGREEMENT]
    plain = [_of(sheet, chosen, lambda row: row.bound) for _, chosen in COLUMNS]
    lines.append("| plain bound | " + " | ".join(plain) + " |")
    for level, goals in GOALS.items():
        mine = [row for row in rows if row.level == level]
        cells = [_of(mine, chosen, lambda row: row.predicted) for _, chosen in COLUMNS]
        lines.append(
            f"| {level} | "
            + " | ".join(
                cell if goal == cell == "-" else f"{cell} ({goal})" for cell, goal in zip(cells, goals, strict=True)
            )
            + " |"
        )
    return "\n".join(lines)


def _of(rows: Sequence[Judged], chosen: Callable[[Judged], bool], seconds: Callable[[Judged], float]) -> str:
    sizes = [100 * abs(seconds(row) / row.measured - 1) for row in rows if chosen(row)]
    return f"{mean(sizes):.1f} / {median(sizes):.1f}" if sizes else "-"
