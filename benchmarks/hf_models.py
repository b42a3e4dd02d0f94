"""Count every model type of transformers, small: inference, and decode of what generates.

    python benchmarks/hf_models.py [--family NAME]... [--again] [--failed]

Resumable: a family in benchmarks/results/hf_models.json is not run again, unless `--again` is given, or `--failed` for
those that were not counted. Each runs in a process of its own with a time limit, from its default configuration with at
most two layers of each stack, or as it is where that cannot be built. Prints a line per family, and exits with 1 if one
has an error that `REASONS` does not explain.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from benchmarks.apart import apart  # noqa: E402
from benchmarks.hf_fields import completed  # noqa: E402

import rooflens as rl  # noqa: E402
from rooflens.models.heads import families as buildable  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "hf_models.json"
LIMIT = 90
"""Seconds of the processor that a family may take."""
PATIENCE = 3600.0
"""Seconds for which a family is waited for, whatever else this machine has to do."""
LAYERS = 2
COUNTS = frozenset(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth", "encoder_layers")) | frozenset(
    ("decoder_layers", "num_decoder_layers", "num_encoder_layers", "num_attention_layers", "num_transformer_layers")
)
"""Names of numbers of layers in configurations."""
INDICES = ("indexes", "indices", "layers_idx", "layer_ids")
STAGES = ("stage_names", "out_features", "out_indices")
"""What follows from the number of layers of a backbone."""
REASONS: dict[str, str] = {}
"""Why a family is not counted."""


def small(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with at most two layers of each stack; lists of a value per layer are cut too."""
    counts = {value for name, value in fields.items() if name in COUNTS and isinstance(value, int) and value > LAYERS}
    cut: dict[str, Any] = {}
    for name, value in fields.items():
        if name in STAGES:
            continue
        if isinstance(value, dict):
            cut[name] = small(value)
        elif name in COUNTS and isinstance(value, int):
            cut[name] = min(value, LAYERS)
        elif name == "first_k_dense_replace":
            cut[name] = min(value or 0, 1)
        elif isinstance(value, list) and len(value) in counts:
            cut[name] = value[:LAYERS]
        elif isinstance(value, list) and name.endswith(INDICES) and all(isinstance(one, int) for one in value):
            cut[name] = sorted({min(one, LAYERS - 1) for one in value})
        else:
            cut[name] = value
    return cut


def counted(family: str) -> dict[str, Any]:
    """Return what was counted of a family: small, or else as it is."""
    from transformers import AutoConfig

    fields = json.loads(AutoConfig.for_model(family).to_json_string(use_diff=False))
    fields = {name: value for name, value in fields.items() if name not in ("transformers_version", "dtype")}
    fields = completed(family, fields)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(small(fields)))
        try:
            return _counted(f"hf:{path}")
        except rl.RooflensError:  # perhaps since it is small
            path.write_text(json.dumps(fields))
        return {"whole": True} | _counted(f"hf:{path}")


def _counted(name: str) -> dict[str, Any]:
    from rooflens.models import find
    from rooflens.models.configuration import configuration
    from rooflens.models.heads import head

    kind, purpose = head(configuration(name)[1])
    modes = ["inference"]
    if purpose.generates:
        blueprint = find(name)
        modes += ["decode"] if blueprint.tokens is not None else []
    row: dict[str, Any] = {"class": kind.__name__, "modes": [], "uncounted": []}
    for mode in modes:
        try:
            step = rl.estimate(name, mode=mode)
        except rl.RooflensError as error:
            if mode == "inference":
                raise
            row["why"] = f"{mode}: {' '.join(str(error).split())[:200]}"
            continue
        row["modes"].append(mode)
        row["uncounted"] = sorted({*row["uncounted"], *step.coverage.uncounted})
        notes = [note for record in step if record.scope == "model" for note in record.notes]
        if any("run on the CPU with values" in note for note in notes):
            row["values"] = True
    return row


def families() -> list[str]:
    """Return every model type that transformers has a configuration for."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return sorted(CONFIG_MAPPING_NAMES)


def run(family: str) -> dict[str, Any]:
    """Return the row of a family: what was counted, or the reason why nothing is."""
    row: dict[str, Any] = {"family": family}
    if family not in buildable():
        return row | {"why": "a part of another family: transformers names no class for it"}
    begun = time.perf_counter()
    outcome = apart(lambda: counted(family), PATIENCE, processor=LIMIT)
    row["seconds"] = round(time.perf_counter() - begun, 1)
    if outcome.error is None:
        return {**row, **outcome.value}
    return row | {"why": f"{outcome.error}: {outcome.message}"[:300]}


def read() -> dict[str, dict[str, Any]]:
    rows = json.loads(RESULTS.read_text())["families"] if RESULTS.exists() else []
    return {row["family"]: row for row in rows}


def write(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Save the rows, one a line, in the order of their names."""
    import torch
    import transformers

    versions = json.dumps({"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]})
    lines = ",\n".join(json.dumps(rows[name]) for name in sorted(rows))
    draft = RESULTS.with_suffix(".new")
    draft.write_text(f'{{"versions": {versions}, "families": [\n{lines}\n]}}\n')
    draft.replace(RESULTS)


def summary(rows: Mapping[str, Mapping[str, Any]]) -> Counter[str]:
    """Return how many families ended in which way."""
    return Counter(map(_ended, rows.values()))


def table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of the docs."""
    missing = {"not run yet": len(set(families()) - rows.keys())}
    ended = [*summary(rows).most_common(), *missing.items()]
    lines = [f"| {how} | {count} |" for how, count in ended if count]
    return "\n".join(("| families | |", "|---|---|", *lines))


def _ended(row: Mapping[str, Any]) -> str:
    if "part of another family" in row.get("why", ""):
        return "parts of other families"
    if not row.get("modes"):
        return "not counted"
    if row["uncounted"]:
        return "counted but for some operations"
    return "counted, but not in every mode" if "why" in row else "counted in full"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append", help="a model type; default: all")
    parser.add_argument("--part", default="1/1", help="a share of the families, like 2/3")
    parser.add_argument("--again", action="store_true", help="also families that have a result")
    parser.add_argument("--failed", action="store_true", help="also families that were not counted in full")
    options = parser.parse_args()
    rows = read()
    rl.estimate("hf:gpt2", seq_len=8)  # what all forks import
    part, parts = map(int, options.part.split("/"))
    for family in options.family or families()[part - 1 :: parts]:
        known = rows.get(family)
        again = options.again or (options.failed and known is not None and _ended(known) != "counted in full")
        if known is not None and not again:
            continue
        rows[family] = run(family)
        write(rows)
        print(json.dumps(rows[family]), flush=True)
    print(table(rows))
    bad = [row for row in rows.values() if _ended(row) == "not counted" and row["family"] not in REASONS]
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
