"""Write the tables of docs/evidence.md and docs/measure.md: `python benchmarks/measure_tables.py`.

A test fails if a table is stale.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import measured_decoders

import rooflens as rl

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "docs" / "evidence.md", ROOT / "docs" / "measure.md")
SHOWN_SECONDS = 200e-6
"""Families that take less are in the file and not in the table."""
_BLOCK = re.compile(r"(<!-- measured: ([\w-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def refreshed(text: str) -> str:
    """The page with every table made from the data."""
    return _BLOCK.sub(lambda match: match[1] + "".join(f"{line}\n" for line in BLOCKS[match[2]]()) + match[3], text)


def agreement(name: str, other: str) -> Iterator[str]:
    """Both medians of every case, and the cost of a call outside its sample."""
    data = _load(f"agreement-{name}.json")
    worst = max(abs(row["ratio"] - 1) for row in data["rows"] if row["device_limited"])
    card = data["machine"].get("card", f"{data['machine']['cpu']}, {data['machine']['threads']} threads")
    yield f"{card}, torch {data['torch']}. The worst case that the device limits differs by {100 * worst:.1f} %."
    yield ""
    yield f"| model | batch | dtype | rooflens | {other} | ratio | outside of a sample |"
    yield "|---|---:|---|---:|---:|---:|---:|"
    for row in data["rows"]:
        ours, theirs = f"{1e3 * row['rooflens']:.3f} ms", f"{1e3 * row['other']:.3f} ms"
        ratio = f"{row['ratio']:.4f}" + ("" if row["device_limited"] else " (host)")
        outside = f"{1e6 * row['outside_of_samples']:.0f} us"
        yield f"| {row['model']} | {row['batch']} | {row['dtype']} | {ours} | {theirs} | {ratio} | {outside} |"


def several() -> Iterator[str]:
    """Scaling of the data parallel runs."""
    records = rl.read(RESULTS / "several-gpus-2xh200.jsonl")
    (device,) = records.devices.values()
    yield f"2 x {device.title}, NCCL."
    yield ""
    yield "| model | batch | dtype | alone | together | efficiency | gradients | all-reduce | bus | peak memory |"
    yield "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|"
    for record in records:
        found = record.scaling
        if found is None:
            continue
        name = "decoder of 1 billion" if record.case.model.endswith(".json") else record.case.model
        peak = max(peak for peak in found.peaks if peak is not None)
        size = f"{found.gradient_bytes / 1e9:.3f} GB"
        yield (
            f"| {name} | {record.case.batch} | {record.case.dtype} | {1e3 * found.alone.median:.1f} ms"
            f" | {1e3 * found.together.median:.1f} ms | {100 * found.efficiency:.1f} % | {size}"
            f" | {1e3 * found.reduce.median:.2f} ms | {found.bus_bandwidth / 1e9:.0f} GB/s | {peak / 1e9:.1f} GB |"
        )


def calibration() -> Iterator[str]:
    """The calibrated rates over those of other methods, and the difference of a second calibration."""
    data = _load("calibration-h200.json")
    yield f"{data['device'].removesuffix(' (measured)')}; two calibrations of {data['seconds'][0]:.0f} s each."
    yield ""
    yield "| rate | calibrated | best of the other methods | ratio |"
    yield "|---|---:|---:|---:|"
    for name, row in data["against_others"].items():
        best = max(row["others"], key=lambda method: row["others"][method])
        ours, theirs = max(row["calibrated"]), row["others"][best]
        yield f"| `{name}` | {ours:.4g} | {theirs:.4g} ({best}) | {row['ratio_to_best']:.3f} |"
    yield ""
    yield "| rate | second run against the first |"
    yield "|---|---:|"
    for name, change in data["two_runs"].items():
        yield f"| `{name}` | {100 * change:+.2f} % |"


def coverage() -> Iterator[str]:
    """The least share of kernel time that found its module."""
    data = _load("profile-coverage-h200.json")
    for mode, words in (("inference", "inference"), ("train", "a training step")):
        rows = [row for row in data["rows"] if row["mode"] == mode]
        least = min(rows, key=lambda row: row["share"])
        yield (
            f"- {words}: {len(rows)} models, at least {100 * least['share']:.2f} % of the kernels' time"
            f" ({least['model']}) belongs to an operation of a module"
        )
    yield ""
    yield f"GPU: {data['machine']['device']}. torch {data['machine']['torch']}."


def products() -> Iterator[str]:
    """Counted FLOP of products over 2 x 4096^3, and the packed multiply-adds."""
    cold, warm = (rl.read(RESULTS / f"products{which}-h200.jsonl") for which in ("", "-warm"))
    flops = 2 * 4096**3
    yield "| kernel | counted where | FLOP / (2 x 4096^3) | DRAM, caches emptied | DRAM, caches left | L2 |"
    yield "|---|---|---:|---:|---:|---:|"
    for one, other in zip(cold, warm, strict=True):
        if one.path not in ("bf16", "fp16", "tf32", "fp32", "fp8"):
            continue
        assert one.work is not None
        assert other.work is not None
        resource, most = max(one.work.flops.items(), key=lambda item: item[1])
        dram, left, l2 = one.work.bytes["dram"], other.work.bytes["dram"], one.work.bytes["l2"]
        yield (
            f"| 4096-cubed product in {one.path} | `{resource}` | {most / flops:.6f} | {dram / 1e6:.1f} MB"
            f" | {left / 1e6:.1f} MB | {l2 / 1e6:.0f} MB |"
        )


def executed_ratios() -> Iterator[str]:
    """Executed over algorithmic work by family, without families that take hardly any time."""
    cases = _load("counted-h200.json")["cases"]
    (card,) = {case["card"] for case in cases}
    least = min(case["time_share"] for case in cases)
    tool, _, passes = cases[0]["how"][0].split(";")[0].partition(", ")
    ways = dict.fromkeys([passes, *(case["how"][0].split(";")[0].partition(", ")[2] for case in cases)])
    yield (
        f"{card}, torch {cases[0]['torch']}, driver {cases[0]['driver']}; {tool}, {' or '.join(ways)}. At least"
        f" {100 * least:.1f} % of the kernels' time belongs to an operation of a module. Families of less than"
        f" {1e6 * SHOWN_SECONDS:.0f} us are left out here, not in the file."
    )
    yield ""
    yield "| case | phase | family | kernels | time | executed / algorithmic FLOP | measured / compulsory DRAM |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for case in cases:
        name = f"{case['model']}, batch {case['batch']}, {case['mode']}"
        for row in case["families"]:
            if (row["seconds"] or 0) < SHOWN_SECONDS:
                continue
            flops, nbytes = ("-" if x is None else f"{x:.3f}" for x in (row["flops_ratio"], row["bytes_ratio"]))
            yield (
                f"| {name} | {row['phase']} | {row['family']} | {row['kernels']} | {1e6 * row['seconds']:.0f} us"
                f" | {flops} | {nbytes} |"
            )


def counted_once() -> Iterator[str]:
    """Wall time of counting a step, and how totals differ from those of the step whose launches were all counted."""
    cases = sorted(_load("counted-once-h200.json")["cases"], key=lambda its: its["launches"])
    names = {its["case"]: its["case"].split(" on ")[0].replace(".json", "") for its in cases}
    yield f"{cases[0]['card']}, torch {cases[0]['torch']}; {cases[0]['how'].split(',')[0]}."
    yield ""
    yield "| step | launches | counted | passes | reports | wall time | `--every` |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for its in cases:
        every = f"{its['every']['seconds']:.1f} s" if "every" in its else ""
        yield (
            f"| {names[its['case']]} | {its['launches']:,} | {its['counted']} | {its['passes']}"
            f" | {its['report_bytes'] / 1e6:.1f} MB | {its['seconds']:.1f} s | {every} |"
        )
    yield ""
    yield "Distinct launches over all:"
    yield ""
    yield "| step | phase | FLOP | DRAM | L2 | L1 |"
    yield "|---|---|---:|---:|---:|---:|"
    for its in cases:
        for phase, over in its.get("over_every", {}).items():
            shown = (f"{100 * over[name] + 0:+.2f} %" for name in ("flop", "dram", "l2", "l1"))
            yield f"| {names[its['case']]} | {phase} | {' | '.join(shown)} |"


PARTS = {
    ("start",): "Python starts, the command line is read",
    ("worker", "imports", "device"): "torch is imported, the card woken",
    ("model",): "its library is imported",
    ("estimate", "libraries"): "waiting for them",
    ("build", "move"): "model and inputs are made",
    ("first call",): "caches, compilers, kernels",
    ("warm-up", "sampling"): "above",
    ("records", "end", "print"): "files, ends of workers, tables",
}
"""What happens in the parts of a call's wall time."""


def wall() -> Iterator[str]:
    """The parts of a call's wall time, and what a study takes for a further model."""
    data = _load("measure-wall-h200.json")
    *before, last = data["calls"]
    walls = " and ".join(filter(None, (", ".join(f"{one['wall']:.1f}" for one in before), f"{last['wall']:.1f}")))
    files = "compiled" if data["compiled"] else "not compiled"
    yield (
        f"{data['card']}, torch {data['torch']}, {data['cores']} cores, Python files {files}: `rooflens measure"
        f" {data['model']} -b {data['batches']} --budget {data['budget']}` took {walls} s, the last as below; a further"
        f" model of a study {data['further model']:.1f} s."
    )
    yield ""
    yield "| part | seconds | what happens |"
    yield "|---|---:|---|"
    for parts, what in PARTS.items():
        yield f"| {', '.join(parts)} | {sum(last['parts'][part] for part in parts):.2f} | {what} |"


def _load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text())
    return found


BLOCKS: dict[str, Callable[[], Iterator[str]]] = {
    "agreement": lambda: agreement("h200", "triton do_bench"),
    "agreement-cpu": lambda: agreement("cpu", "torch Timer"),
    "several": several,
    "calibration": calibration,
    "coverage": coverage,
    "products": products,
    "executed": executed_ratios,
    "counted": counted_once,
    "wall": wall,
    "decoders": lambda: measured_decoders.table_of_models(RESULTS / "decoders-h100.ndjson"),
    "decoders-h200": lambda: measured_decoders.table_of_models(RESULTS / "decoders-h200.ndjson"),
    "answers": lambda: measured_decoders.table_of_answers(RESULTS / "decoders-h200.ndjson"),
    "regimes": lambda: measured_decoders.table_of_regimes(
        *(RESULTS / f"decoders-{card}.ndjson" for card in ("h100", "h200"))
    ),
}


def main() -> None:
    for page in PAGES:
        page.write_text(refreshed(page.read_text()))


if __name__ == "__main__":
    main()
