"""Count every model type of transformers, small: inference and training, prefill and decode of what generates.

    python benchmarks/hf_models.py [--family NAME]... [--again] [--failed] [--older]

Resumable: a family in benchmarks/results/hf_models.json is not run again, unless `--again` is given, `--failed` for
those that were not counted, or `--older` for those that an earlier form of this script ran, with fewer modes. Each runs
in a process of its own with a time limit, from its default configuration with at most two layers of each stack, or as
it is where that is not counted. Prints a line per family, and exits with 1 if one has no result. `--docs` writes
docs/model-types.csv and the tables of docs/model-types.md.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
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

PAGE = ROOT / "docs" / "model-types.md"
TYPES = ROOT / "docs" / "model-types.csv"
RESULTS = ROOT / "benchmarks" / "results" / "hf_models.json"
LIMIT = 150
"""Seconds of the processor that a family may take."""
ENOUGH = LIMIT // 2
"""The same, after which no further mode of it is begun."""
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
PART = "a part of another family: transformers names no class for it"
_SIZES = "|".join(
    (
        *(
            "features and (?:image|audio|video) tokens do not match",
            "same reduction dim",
            "Given groups",
            "multiple of",
        ),
        *("Given transposed", "expected input", "must match the size", "split_with_sizes expects", "at least one"),
        *("shape '.*' is invalid", "broadcast a dimension", "mask.*does not match", "should be equal", "too small"),
        *("list index out of range", "doesn't match model", "out of range", "model expects"),
    )
)
_LACKS = "|".join(
    (
        *(
            "is not subscriptable",
            "NoneType",
            "has no attribute",
            "KeyError",
            "Could not find",
            "is not set",
            "be None",
        ),
        *("unknown", "You have to", "are none", "Exactly 1 of", "cannot specify", "must be provided", "has no len"),
        *("not enough values", "too many values", "need", "only on Attention"),
    )
)
REASONS: tuple[tuple[str, str], ...] = (
    (r"part of another family", PART),
    (r"requires the (\S+) library|No module named '(\S+)'", "needs the package {0}, which is not here"),
    (r"finegrained-fp8 kernel", "needs the package kernels, which is not here"),
    (r'missing the required "forward"', "several models in one, which only its generate runs, one after the other"),
    (r"fills no cache|keeps no cache", "its forward takes or fills no cache, so it has no decode"),
    (r"more than \d+ s", "takes minutes of processor time"),
    (r"Running the model with values needs", "values decide what runs, and it is too large to run here"),
    (r"too large|[Oo]ut of memory", "too large to run here with values"),
    (r"missing \d+ required positional arguments?: (.*?)(?:;|$)", "needs inputs that rooflens does not make: {0}"),
    (r"cannot build|refuses the configuration|ValidationError|__init__|has no attribute '\w+'$",
     "transformers builds no model of its default configuration"),
    (_SIZES,
     "sizes of its default configuration, or of the inputs that rooflens makes, do not fit together"),
    (_LACKS,
     "asks for what neither its default configuration nor the inputs of rooflens have"),
    (r"DataDependent|DynamicOutputShape|depends on values|data is not allocated|_local_scalar_dense",
     "values decide what runs, in a part that is asked before the step"),
    (r"crash", "the process crashed"),
    (r".", "transformers raises an error of its own"),
)  # fmt: skip
"""What errors mean, in the order in which they are tried; a reader gets the words, and the message beside them."""


def reason(row: Mapping[str, Any]) -> str:
    """Return why a family is not counted, or not in every mode; nothing of one that is."""
    why = row.get("why", "")
    for pattern, words in REASONS if why else ():
        found = re.search(pattern, why)
        if found is not None:
            return words.format(*[group for group in found.groups() if group] or [""])
    return ""


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
        modes += ["prefill", "decode"] if blueprint.tokens is not None else []
    modes.append("train")
    row: dict[str, Any] = {"class": kind.__name__, "modes": [], "uncounted": [], "asked": modes}
    for mode in modes:
        if time.process_time() > ENOUGH:  # what was counted is not lost to the limit
            row["why"] = f"{row['why'] + '; ' if 'why' in row else ''}{mode}: others took more than {ENOUGH} s"
            continue
        try:
            step = rl.estimate(name, mode=mode)
        except rl.RooflensError as error:
            if mode == "inference":
                raise
            told = f"{mode}: {' '.join(without_folder(str(error)).split())[:200]}"
            row["why"] = f"{row['why']}; {told}" if "why" in row else told
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
        return row | {"why": PART}
    begun = time.perf_counter()
    outcome = apart(lambda: counted(family), PATIENCE, processor=LIMIT)
    row["seconds"] = round(time.perf_counter() - begun, 1)
    if outcome.error is None:
        return {**row, **outcome.value}
    return row | {"why": without_folder(f"{outcome.error}: {outcome.message}")[:300]}


def without_folder(message: str) -> str:
    """Return a message without the folder that the configuration lay in for this run."""
    return re.sub(r"/\S*?/config\.json", "config.json", message)


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


def others(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of the docs of what was not counted in every mode, by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, row in sorted(rows.items()):
        if "why" in row and row["why"] != PART:
            by_reason.setdefault(reason(row), []).append(f"`{name}`")
    most = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))
    return "\n".join(("| reason | types |", "|---|---|", *(f"| {why} | {', '.join(names)} |" for why, names in most)))


def types(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a CSV with a line for each model type."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("hf", "class", "counted", "note"))
    lines.writerows(_line(name, rows.get(name)) for name in families())
    return text.getvalue()


def _line(name: str, row: Mapping[str, Any] | None) -> tuple[str, str, str, str]:
    if row is None:
        return name, "", "", "not run yet"
    words = [reason(row), "run on the CPU with values" if row.get("values") else ""]
    return name, row.get("class", ""), ", ".join(row.get("modes", ())), "; ".join(filter(None, words))


def written(rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Put the results into the docs."""
    TYPES.write_text(types(rows))
    text = PAGE.read_text()
    for head, new in ((r"\| families \| \|", table(rows)), (r"\| reason \| types \|", others(rows))):
        text, count = re.subn(rf"{head}\n(?:\|.*\n)+", lambda _, new=new: f"{new}\n", text)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"{PAGE} has {count} tables {head}, not one")
    PAGE.write_text(text)


def _ended(row: Mapping[str, Any]) -> str:
    if row.get("why") == PART:
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
    parser.add_argument("--older", action="store_true", help="also families of which not every mode was asked for")
    parser.add_argument("--docs", action="store_true", help="only write the tables of the docs")
    options = parser.parse_args()
    rows = read()
    if options.docs:
        written(rows)
        return 0
    rl.estimate("hf:gpt2", seq_len=8)  # what all forks import
    part, parts = map(int, options.part.split("/"))
    for family in options.family or families()[part - 1 :: parts]:
        known = rows.get(family)
        again = options.again or (options.failed and known is not None and _ended(known) != "counted in full")
        again = again or (options.older and known is not None and known.get("why") != PART and "asked" not in known)
        if known is not None and not again:
            continue
        rows[family] = run(family)
        write(rows)
        print(json.dumps(rows[family]), flush=True)
    print(table(rows))
    bad = [row for row in rows.values() if _ended(row) == "not counted" and not reason(row)]
    return int(bool(bad) or bool(set(families()) - rows.keys()))


if __name__ == "__main__":
    sys.exit(main())
