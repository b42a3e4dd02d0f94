"""Compare totals of launches that were counted once with those of the same steps whose launches were all counted:

    PYTHONPATH=src:. python benchmarks/counted_once.py OUT... [--out benchmarks/results/counted-once-h200.json]

Each OUT holds NAME.jsonl and NAME.err, and NAME-every.jsonl, and what `on_gpu_counting.sh` said of them; a later OUT
goes first. A run that lost counters is left out.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.counted import lost

import rooflens as rl
from rooflens.results import RecordSet
from rooflens.running.attributing import EQUAL

_SAID = re.compile(r"(?P<name>\S+): (?P<seconds>[\d.]+) s, report (?P<bytes>\d+) bytes;.*?(?P<passes>\d+) passes")
_STAGE = re.compile(r" *([\d.]+) s to +([\d.]+) s  (.*)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="OUT")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    asked = parser.parse_args()
    files = (path for folder in asked.folders for path in sorted(folder.glob("*.jsonl")))
    found = {path.stem: path for path in files if path.with_suffix(".err").exists()}
    for name, path in list(found.items()):
        if why := lost(read(path)):
            print(f"left out: {name}: {why}")
            del found[name]
    cases = {name: case(path) for name, path in found.items() if not name.endswith(EVERY)}
    for name, path in found.items():
        once = found.get(name.removesuffix(EVERY))
        if name.endswith(EVERY) and once is not None:
            a, b = read(once), read(path)
            print("\n".join(agreement(name.removesuffix(EVERY), a, b)))
            cases[name.removesuffix(EVERY)] |= {"over_every": margins(a, b), "every": said_of(path)}
    for its in cases.values():
        print(f"{its['case']}: {its['counted']} of {its['launches']} launches, {its.get('seconds')} s")
    if asked.out is not None:
        asked.out.write_text(json.dumps({"cases": list(cases.values())}, indent=1) + "\n")


def case(path: Path) -> dict[str, Any]:
    """What is known of a counted step."""
    records = rl.read(path)
    counted = records.where(source="counters")
    environment, launches = records.environment, kernels(counted)
    assert environment is not None
    found: dict[str, Any] = {
        "case": counted.cases[0].label(),
        "card": environment.machine.get("card"),
        "torch": environment.versions.get("torch"),
        "how": next(note for note in counted.notes if note.startswith("counted by")),
        "launches": len(launches),
        "counted": sum(EQUAL not in record.notes for record in launches),
        "commit": environment.commit,
    }
    found |= said_of(path)
    stages = (_STAGE.match(line) for line in path.with_suffix(".err").read_text().splitlines())
    found["timeline"] = [
        [float(its[1]), float(its[2]), its[3].rpartition(": ")[2]] for its in stages if its is not None
    ]
    return found


def said_of(path: Path) -> dict[str, float | int]:
    """What the script that counted said of it: wall time, size of the reports and passes; nothing, if it did not."""
    said = path.with_name("said.txt")
    for line in said.read_text().splitlines() if said.exists() else ():
        if (its := _SAID.match(line)) is not None and its["name"] == path.stem:
            return {"seconds": float(its["seconds"]), "report_bytes": int(its["bytes"]), "passes": int(its["passes"])}
    return {}


def margins(once: RecordSet, every: RecordSet) -> dict[str, dict[str, float]]:
    """Totals of a step whose distinct launches were counted over those of one whose launches all were, less 1."""
    found: dict[str, dict[str, float]] = {}
    for phase in every.phases:
        a, b = once.total(phase), every.total(phase)
        values = {"flop": (a.flops, b.flops), **{at: (a.bytes.get(at), b.bytes.get(at)) for at in b.bytes}}
        found[phase] = {name: round(x / y - 1, 5) for name, (x, y) in values.items() if x and y}
    return found


def read(path: Path) -> RecordSet:
    """The counters of a record file."""
    return rl.read(path).where(source="counters")


def agreement(name: str, once: RecordSet, every: RecordSet) -> Iterator[str]:
    """A line for each phase, and one on single kernels."""
    pairs = [
        (a, b) for a, b in zip(kernels(once), kernels(every), strict=False) if a.name == b.name and a.phase == b.phase
    ]
    for phase in every.phases:
        a, b = once.total(phase), every.total(phase)
        values = {"FLOP": (a.flops, b.flops), **{at: (a.bytes.get(at), b.bytes.get(at)) for at in b.bytes}}
        shown = ", ".join(f"{key} {x / y - 1:+.3%}" for key, (x, y) in values.items() if x and y)
        yield f"{name} {phase}: {shown}"
        for level in ("l2", "dram"):
            yield f"{name} {phase} {level}: {chance([pair for pair in pairs if pair[0].phase == phase], level)}"
    for what in ("flops", "dram", "l2"):
        margins = sorted(abs(x / y - 1) for x, y in (values_of(pair, what) for pair in pairs) if x and y)
        if margins:
            half, most = margins[len(margins) // 2], margins[int(0.95 * (len(margins) - 1))]
            margin = f"median {half:.2%}, 95 % within {most:.2%}, at most {margins[-1]:.2%}"
            yield f"{name} {what} of single kernels: {margin}"


EVERY = "-every"
"""What names of steps whose launches were all counted end with."""
Pair = tuple[rl.Record, rl.Record]
"""A launch where equal ones were counted once, and where each was."""


def values_of(pair: Pair, what: str) -> tuple[float, float]:
    """FLOP, or the bytes of a level, of both; 0 where they are not known."""
    works = [record.work for record in pair]
    one, other = (work.total_flops if what == "flops" else work.bytes.get(what) for work in works if work is not None)
    return one or 0, other or 0


def chance(pairs: list[Pair], level: str) -> str:
    """How far launches that were counted both times differ, and by how much totals may differ by chance.

    The same launch does not move the same bytes twice. How far that goes is seen where each was counted: from launches
    that do the same, of one kernel together. A total of `n` equal launches, of which one was counted in another run,
    then differs by the square root of n^2 + n times that.
    """
    groups: dict[tuple[str, float], list[float]] = {}
    both = [0.0, 0.0]
    for pair in pairs:
        x, y = values_of(pair, level)
        if x and y:
            groups.setdefault((pair[0].name, x), []).append(y)
            if EQUAL not in pair[0].notes:
                both = [both[0] + x, both[1] + y]
    spread: dict[str, list[float]] = {}
    for (name, _), counts in groups.items():
        if len(counts) > 1:
            spread.setdefault(name, []).extend(
                (y / mean(counts) - 1) ** 2 * len(counts) / (len(counts) - 1) for y in counts
            )
    variance = sum(
        (len(counts) ** 2 + len(counts)) * mean(spread[name]) * mean(counts) ** 2
        for (name, _), counts in groups.items()
        if name in spread
    )
    total = sum(map(sum, groups.values()))
    if not total or not both[1]:
        return "none"
    seen = sum(sum(counts) for (name, _), counts in groups.items() if name in spread) / total
    return (
        f"launches counted both times {both[0] / both[1] - 1:+.3%}; totals differ by"
        f" {variance**0.5 / total:.3%} by chance (standard deviation, from kernels with {seen:.0%} of the bytes)"
    )


def kernels(records: RecordSet) -> list[rl.Record]:
    """The launches with counts, in order."""
    return [record for record in records if record.scope == "kernel" and record.work is not None]


if __name__ == "__main__":
    main()
