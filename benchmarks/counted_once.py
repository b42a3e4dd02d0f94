"""Compare totals of launches that were counted once with those of the same steps whose launches were all counted:

    PYTHONPATH=src:. python benchmarks/counted_once.py OUT

OUT holds NAME.jsonl and NAME-every.jsonl, as `on_gpu_counted_once.sh` writes them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import rooflens as rl
from rooflens.results import RecordSet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    out = parser.parse_args().out
    for path in sorted(out.glob("*-every.jsonl")):
        name = path.name.removesuffix("-every.jsonl")
        once = path.with_name(f"{name}.jsonl")
        if once.exists():
            print("\n".join(agreement(name, read(once), read(path))))


def read(path: Path) -> RecordSet:
    """The counters of a record file."""
    return rl.read(path).where(source="counters")


def agreement(name: str, once: RecordSet, every: RecordSet) -> Iterator[str]:
    """A line for each phase, and one on single kernels."""
    for phase in every.phases:
        a, b = once.total(phase), every.total(phase)
        values = {"FLOP": (a.flops, b.flops), **{at: (a.bytes.get(at), b.bytes.get(at)) for at in b.bytes}}
        shown = ", ".join(f"{key} {x / y - 1:+.3%}" for key, (x, y) in values.items() if x and y)
        yield f"{name} {phase}: {shown}"
    pairs = [
        (a.work, b.work)
        for a, b in zip(kernels(once), kernels(every), strict=False)
        if a.name == b.name and a.work is not None and b.work is not None
    ]
    for what in ("flops", "dram", "l2"):
        margins = sorted(
            abs(x / y - 1)
            for a, b in pairs
            for x, y in [(a.total_flops, b.total_flops) if what == "flops" else (a.bytes.get(what), b.bytes.get(what))]
            if x and y
        )
        if margins:
            half, most = margins[len(margins) // 2], margins[int(0.95 * (len(margins) - 1))]
            margin = f"median {half:.2%}, 95 % within {most:.2%}, at most {margins[-1]:.2%}"
            yield f"{name} {what} of single kernels: {margin}"


def kernels(records: RecordSet) -> list[rl.Record]:
    """The launches with counts, in order."""
    return [record for record in records if record.scope == "kernel" and record.work is not None]


if __name__ == "__main__":
    main()
