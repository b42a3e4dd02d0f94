"""Write the tables about memory of docs/{memory,evidence}.md: `python benchmarks/memory_table.py`.

A test fails if a table is stale.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rooflens.units import parse, show

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "memory.md", ROOT / "docs" / "evidence.md")
RESULTS = ROOT / "benchmarks" / "results"
CAPACITY = ROOT / "src" / "rooflens" / "devices" / "capacity.toml"
PEAKS = RESULTS / "memory-h200.json"
REPORTED = tuple(RESULTS / f"memory-{name}.json" for name in ("h100", "fresh-h100", "fresh-h200"))
LIMITS = RESULTS / "largest-batch-h200.json"
STEPS = ("inference", "train")
DEFAULT, EXPANDABLE = "default", "expandable_segments:True"
FAR = 0.05
WORTH_A_ROW = 0.02
"""Workspaces below this share of the peak are left out of their table."""
NAMES = {"decoder-1b.json": "decoder of 1 billion", "decoder": "decoder of 1 billion"}
_BLOCK = re.compile(r"(<!-- (?!end)(\w+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def refreshed(text: str) -> str:
    """The page with every table made from the data."""
    peaks, limits = json.loads(PEAKS.read_text()), json.loads(LIMITS.read_text())
    blocks = {
        "worst": lambda: worst(peaks),
        "reported": lambda: reported(*(json.loads(path.read_text()) for path in REPORTED)),
        "furthest": lambda: furthest(json.loads(REPORTED[-1].read_text())),
        "limits": lambda: limit_rows(limits),
        "workspaces": lambda: workspace_rows(limits),
        "context": lambda: context(limits),
        "reserves": reserves,
    }
    return _BLOCK.sub(lambda match: match[1] + "".join(f"{line}\n" for line in blocks[match[2]]()) + match[3], text)


def worst(data: dict[str, Any]) -> Iterator[str]:
    """The largest error of the estimates, by step."""
    for step, name in zip(STEPS, ("inference", "a training step"), strict=True):
        cases = [case for case in data["cases"] if case["mode"] == step]
        far = max(cases, key=lambda case: abs(case["error"]))
        models = len({case["model"] for case in cases})
        yield (
            f"- {name}: {models} models, {len(cases)} cases, the worst {percent(far['error'])}"
            f" ({model(far)}, batch {far['batch']}, {far['dtype']})"
        )
    yield ""
    yield f"GPU: {data['card']}. torch {data['torch']}."


def reported(known: dict[str, Any], *fresh: dict[str, Any]) -> Iterator[str]:
    """Errors of peak and workspace together, of models that rules were made from and of others."""
    yield "| models | GPU | step | cases | median | 90 % within | worst | without workspaces, 90 % within |"
    yield "|---|---|---|---:|---:|---:|---|---:|"
    for name, data in (("seen when the rules were made", known), *(("others", data) for data in fresh)):
        for step in STEPS:
            cases = [case for case in data["cases"] if case["mode"] == step]
            errors = sorted(abs(case["reported_error"]) for case in cases)
            without = sorted(abs(case["estimate"] / case["reported"] - 1) for case in cases)
            far = max(cases, key=lambda case: abs(case["reported_error"]))
            where = f"{percent(far['reported_error'])} ({model(far)}, batch {far['batch']}, {far['dtype']})"
            last = math.ceil(0.9 * len(cases)) - 1
            shown = " | ".join(f"{100 * value:.1f} %" for value in (errors[len(errors) // 2], errors[last]))
            models = f"{name} ({len({case['model'] for case in cases})})"
            cells = (models, data["card"], step, len(cases), shown, where, f"{100 * without[last]:.0f} %")
            yield f"| {' | '.join(map(str, cells))} |"
    yield ""
    yield (
        f"torch {known['torch']} on the GPUs; the estimates for the first two rows are of {known['estimates']}, the"
        f" others of {fresh[0]['torch']}."
    )
    yield ""
    yield f"With the rules as they were before the others ran on the {fresh[-1]['card']}:"
    yield ""
    for step in STEPS:
        cases = [case for case in fresh[-1]["cases"] if case["mode"] == step]
        errors = sorted((case["first_estimate_with_workspace"] / case["reported"] - 1 for case in cases), key=abs)
        within = f"{100 * abs(errors[math.ceil(0.9 * len(cases)) - 1]):.1f} %"
        yield f"- {step}: 90 % within {within}, the worst {percent(errors[-1])}"


def furthest(data: dict[str, Any]) -> Iterator[str]:
    """Every case whose estimate is further from what the device reported than `FAR`."""
    yield "| model | dtype | batch | step | reported | estimate | error |"
    yield "|---|---|---:|---|---:|---:|---:|"
    cases = sorted(data["cases"], key=lambda case: -abs(case["reported_error"]))
    for case in cases:
        if abs(case["reported_error"]) > FAR:
            sizes = (gigabytes(case[key]) for key in ("reported", "estimate_with_workspace"))
            cells = (model(case), case["dtype"], case["batch"], case["mode"], *sizes, percent(case["reported_error"]))
            yield f"| {' | '.join(map(str, cells))} |"


def limit_rows(data: dict[str, Any]) -> Iterator[str]:
    """Batches that ran in a smaller GPU's memory, and rooflens' answer."""
    yield "| model | dtype | step | memory | tensors alone | ran, expandable segments | ran, default | rooflens |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    ran = {(*_case(row), row["allocator"]): row["runs"] for row in data["limits"]}
    for row in data["limits"]:
        if row["allocator"] == DEFAULT:
            runs = [ran[(*_case(row), allocator)] for allocator in (EXPANDABLE, DEFAULT)]
            cells = (
                model(row),
                row["dtype"],
                row["mode"],
                gigabytes(row["memory"], 0),
                row["batch"],
                *runs,
                row["answer"],
            )
            yield f"| {' | '.join(map(str, cells))} |"


def _case(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["model"], row["dtype"], row["mode"], row["memory"]


def reserves() -> Iterator[str]:
    """The reserve, from the package's data."""
    yield "| what | how much | for | steps |"
    yield "|---|---|---|---|"
    for entry in tomllib.loads(CAPACITY.read_text())["reserve"]:
        shares = {"of_transient": "of activations and temporaries", "of_memory": "of the memory"}
        amounts = [f"{100 * entry[key]:.0f} % {of}" for key, of in shares.items() if key in entry]
        amounts += [show(parse(entry["bytes"], "B"), "B", 3)] if "bytes" in entry else []
        steps = ", ".join(entry.get("modes", ["all"]))
        yield f"| {entry['what']} | {' and '.join(amounts)} | {', '.join(entry['kinds'])} | {steps} |"


def workspace_rows(data: dict[str, Any]) -> Iterator[str]:
    """The cases whose peak is higher mostly because of a workspace."""
    yield "| model | dtype | step | batch | peak without workspace | workspace | share |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for row in data["workspaces"]:
        without = row["peak_without_workspace"]
        workspace = row["peak"] - without
        if workspace > WORTH_A_ROW * without:
            cells = (model(row), row["dtype"], row["mode"], row["batch"], gigabytes(without), gigabytes(workspace))
            yield f"| {' | '.join(map(str, cells))} | {100 * workspace / without:.0f} % |"


def context(data: dict[str, Any]) -> Iterator[str]:
    """Memory that the context takes from the GPU."""
    taken = data["context"]
    yield (
        f"On the {data['card']} (torch {data['torch']}, cuDNN {data['cudnn']}), torch sees {gigabytes(taken['total'])}."
        f" After the first products, convolutions and attention, the context takes {gigabytes(taken['context'], 3)}"
        " that torch's allocator does not hold."
    )


def model(row: dict[str, Any]) -> str:
    name: str = row["model"]
    return NAMES.get(name, name)


def gigabytes(nbytes: int, decimals: int = 2) -> str:
    return f"{nbytes / 1e9:.{decimals}f} GB"


def percent(error: float) -> str:
    return f"{100 * error:+.1f} %"


if __name__ == "__main__":
    for page in PAGES:
        before = page.read_text()
        after = refreshed(before)
        if after != before:
            page.write_text(after)
            print(page)
