"""The results of the counting benchmark as a page of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from benchmarks.counting_models import MODELS
from benchmarks.peers.tools import TOOLS

Cell = dict[str, Any]
NONE = "–"

METHOD = """\
# Counting benchmark

Made by `python benchmarks/counting.py --write docs/benchmark-counting.md`; do not edit.

Each cell is one plain call of a tool, in the form that its documentation shows, on a module with real tensors on the
CPU (for "meta": on tensors without data), in a process of its own. The reported FLOP are divided by the closed form of
matrix work (`benchmarks/closed_forms.py`: functions of the dimensions, independent of rooflens).

Multiply-adds are doubled. Where a tool reports FLOP and multiply-adds, the page has the one that is closer to the
closed form. All models are in eval mode, except the one that says otherwise; calflops, THOP and ptflops put every model
into eval mode. Backward is counted in train mode with the sum of the results as loss. calflops takes twice forward for
backward. The tools that are missing there count no backward (DeepSpeed takes twice forward too, in a training loop
only). Seconds and megabytes (10^6 bytes of resident memory at the peak) are those of the call alone: the model exists,
and the tool has been used once on another model. The machine had other work, so seconds are rough. Those of each model
are in `benchmarks/results/counting.json`.

"Does not run" names the exception. On meta that is not the counter's fault: the masks of the transformers library and a
router need values, which a tensor without data does not have. 0.996 in backward of LSTM and GRU is another convention.
The closed form describes one kernel for the whole layer, which also computes the gradient of the initial state; a
layer that runs step by step does not compute it.
"""


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    cells = {(cell["tool"], cell["model"], cell["phase"]): cell for cell in results["cells"]}
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    parts = [
        METHOD,
        f"Run on {results['date']} on {results['machine']}, with {versions}.\n",
        "## Summary\n",
        summary(cells),
        large(cells),
        quicker(cells),
        "## Forward: reported over closed form\n",
        by_model(cells, "forward", _ratio),
        "## Backward: reported over closed form\n",
        by_model(cells, "backward", _ratio),
    ]
    return "\n".join(parts)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def by_model(cells: dict[Any, Cell], phase: str, show: Callable[[Cell], str]) -> str:
    """One row per model and one column per tool that has the phase."""
    tools = [tool.name for tool in TOOLS if phase == "forward" or tool.backward is not None]
    rows = (
        [f"{model.name}: {model.kind}"]
        + [show(cells[key]) if (key := (tool, model.name, phase)) in cells else NONE for tool in tools]
        for model in MODELS
    )
    return table(["model", *tools], rows)


def summary(cells: dict[Any, Cell]) -> str:
    """One row per tool: how often it is exact, its worst error, its cost."""
    head = ["tool", "version", "exact", "worst error", "does not run", "exact, backward", "worst error, backward"]
    head += ["seconds, median", "seconds, most", "MB, most", "exact too and faster than rooflens"]
    rows = []
    for tool in TOOLS:
        forward, backward = ([c for c in cells.values() if _is(c, tool.name, phase)] for phase in PHASES)
        ran = [c for c in forward if "error" not in c]
        if not ran:
            continue
        rows.append(
            [
                tool.name,
                ran[0]["version"],
                f"{sum(map(exact, forward))} of {len(forward)}",
                _worst(forward),
                str(len(forward) - len(ran)),
                f"{sum(map(exact, backward))} of {len(backward)}" if backward else NONE,
                _worst(backward),
                f"{median(c['seconds'] for c in ran):.2g}",
                f"{max(c['seconds'] for c in ran):.2g}",
                f"{max(c['mb'] for c in ran):.0f}",
                _faster(cells, tool.name),
            ]
        )
    return table(head, rows)


PHASES = ("forward", "backward")


def _is(cell: Cell, tool: str, phase: str) -> bool:
    return bool(cell["tool"] == tool and cell["phase"] == phase)


def exact(cell: Cell) -> bool:
    return "error" not in cell and bool(cell["flops"] == cell["form"])


def _worst(cells: list[Cell]) -> str:
    errors = [abs(c["flops"] / c["form"] - 1) for c in cells if "error" not in c]
    if not errors:
        return NONE
    percent = 100 * max(errors)
    return f"{percent:,.0f} %" if percent >= 100 else f"{percent:.3g} %"


def quicker(cells: dict[Any, Cell]) -> str:
    """The sentence on where rooflens is slower than a tool that counts the same."""
    tool = "FlopCounterMode, meta"
    ratios = [ours["seconds"] / theirs["seconds"] for theirs, ours in _both_exact(cells, tool)]
    if not ratios:
        return ""
    return (
        "On tensors without data torch's FlopCounterMode is faster than rooflens: where both are exact, rooflens takes"
        f" {median(ratios):.1f} times as long (median). In that time it also counts bytes, memory and all other work.\n"
    )


def _faster(cells: dict[Any, Cell], tool: str) -> str:
    """Number of models that both count exactly and that the tool counts faster than rooflens."""
    if tool == "rooflens":
        return NONE
    both = _both_exact(cells, tool)
    return f"{sum(theirs['seconds'] < ours['seconds'] for theirs, ours in both)} of {len(both)}"


def _both_exact(cells: dict[Any, Cell], tool: str) -> list[tuple[Cell, Cell]]:
    """The forward cells of a tool and of rooflens, of the models that both count exactly."""
    pairs = [
        (cells.get((tool, model.name, "forward")), cells.get(("rooflens", model.name, "forward"))) for model in MODELS
    ]
    return [(theirs, ours) for theirs, ours in pairs if theirs and ours and exact(theirs) and exact(ours)]


def large(cells: dict[Any, Cell]) -> str:
    """The sentence on a large batch."""
    ours, theirs = (cells.get((tool, "resnet18, batch 256", "whole")) for tool in ("rooflens", "torchinfo"))
    if not ours or not theirs or "error" in ours or "error" in theirs:
        return ""
    return (
        f"\nResNet-18 at batch 256, memory from before the model exists: rooflens {ours['seconds']:.2g} s and"
        f" {ours['mb']:.0f} MB, torchinfo on real tensors {theirs['seconds']:.3g} s and {theirs['mb']:.0f} MB:"
        f" {theirs['seconds'] / ours['seconds']:.0f} times the time and {theirs['mb'] / ours['mb']:.0f} times the"
        " memory.\n"
    )


def _ratio(cell: Cell) -> str:
    if "error" in cell:
        return f"does not run: {cell['error']}"
    if exact(cell):
        return "1"
    ratio = cell["flops"] / cell["form"]
    if not ratio:
        return "0"
    text = f"{ratio:.3f}"
    return text if text not in ("1.000", "0.000") else f"{ratio:.7f}".rstrip("0")
