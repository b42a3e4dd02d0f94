"""Hold public measurements of language models against their floors: no engine is faster.

    python benchmarks/decoders.py ../shared/data/measured --write docs/decoder-floors.md
    python benchmarks/decoders.py ../shared/data/measured --only gpt-fast

The tables are other people's and not part of this repository: gpt-fast (decode), TensorRT-LLM 0.5 to 1.0 (first token
and throughput), LLM-foundry (training) and Vidur (single products). Each row is compared with the bound of its step, or
left out with a reason. Exits with 1 if a row is faster than its floor. Takes about ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.decoder_floors import Bits, answers_per_second, most_sequences, seconds

import rooflens as rl
from rooflens.records import Work
from rooflens.roofline import bound

CARDS = {
    "A100-80GB (330 W limit)": "a100-sxm4-80gb",
    "A100-SXM4-80GB": "a100-sxm4-80gb",
    "MI250X one GCD": "instinct-mi250x-both-gcds",
    "H100-SXM5-80GB": "h100-sxm",
    "H100-SXM": "h100-sxm",
    "H200-SXM": "h200",
    "L40S": "l40s",
    "B200": "b200",
    "GB200": "gb200",
    "RTX PRO 6000 Blackwell Server": "rtx-pro-6000-blackwell-server",
    "a100_40gb": "a100-sxm4-40gb",
    "a100_80gb": "a100-sxm4-80gb",
    "h100_80gb": "h100-sxm",
    "a100": "a100-sxm4-80gb",
    "h100": "h100-sxm",
    "a40": "a40",
}
HALVES = {"MI250X one GCD": 2}
"""Cards of which one part was used."""
WEIGHTS = {"bf16": Bits(), "int8w": Bits(weights=8), "int4w g32": Bits(weights=4)}
PRECISIONS = {"fp16": Bits(), "fp8": Bits(8, 8, "fp8"), "fp4": Bits(4, 8, "fp4")}
L2 = {"a100": 40e6, "h100": 50e6, "a40": 6e6}


@dataclass(frozen=True)
class Row:
    """A public number against its floor: `share` is floor over measured time; or why it was left out."""

    engine: str
    regime: str
    what: str
    share: float | None
    left_out: str = ""


def gpt_fast(folder: Path) -> Iterator[Row]:
    """Decode of one sequence. The shortest context gives the lowest floor."""
    for line in _lines(folder / "misc" / "gpt_fast.csv"):
        device, part = rl.device(CARDS[line["device"]]), HALVES.get(line["device"], 1)
        floor = part / int(line["tp"]) * seconds(line["model"], device, WEIGHTS[line["weights"]], "decode", 1, 1)
        what = f"{line['model']} {line['weights']}, {line['tp']} x {line['device']}"
        cards = "one card" if line["tp"] == "1" else "several cards"
        regime = f"decode, batch 1, {line['weights'].split()[0]}, {cards}"
        yield Row("gpt-fast", regime, what, floor * float(line["tok_s_batch1"]))


def tensorrt_llm(folder: Path) -> Iterator[Row]:
    """First token of one sequence, and throughput for each card at a batch."""
    for line in _lines(folder / "trtllm" / "trtllm_v05_v06.csv"):
        device, bits, cards = rl.device(CARDS[line["device"]]), PRECISIONS[line["precision"]], int(line["tp"])
        model, inputs, outputs = line["model"], int(line["input_len"]), int(line["output_len"])
        what = f"{model} {line['precision']}, {inputs} to {outputs} tokens, {cards} x {line['device']}"
        if line["kind"] == "first_token":
            floor = seconds(model, device, bits, "prefill", int(line["batch"]), inputs) / cards
            regime = f"first token, {inputs} tokens, {line['precision']}"
            yield Row("TensorRT-LLM 0.5", regime, what, floor / (float(line["first_token_ms"]) / 1e3))
        else:
            most = outputs * answers_per_second(model, device, bits, int(line["batch"]), inputs, outputs)
            regime = f"throughput, {inputs} to {outputs} tokens, {line['precision']}"
            yield Row("TensorRT-LLM 0.5, 0.6", regime, what, float(line["out_tok_s"]) / most)


def tensorrt_llm_1(folder: Path) -> Iterator[Row]:
    """Throughput of saturated cards: as many sequences as fit beside the weights."""
    for line in _lines(folder / "trtllm" / "trtllm_v1_overview_subset.csv"):
        device, bits, cards = rl.device(CARDS[line["device"]]), PRECISIONS[line["precision"]], int(line["tp"])
        model, inputs, outputs = line["model"], int(line["isl"]), int(line["osl"])
        batch = most_sequences(model, cards * device.facts["memory"].value, bits, inputs, outputs)
        what = f"{model} {line['precision']}, {inputs} to {outputs} tokens, {cards} x {line['device']}"
        regime = f"saturated throughput, {line['precision']}, {'long' if inputs > 2048 else 'short'} prompts"
        if batch < 1:
            yield Row("TensorRT-LLM 1.0", regime, what, None, "weights do not fit into the memory of the cards")
            continue
        most = cards * outputs * answers_per_second(model, device, bits, batch, inputs, outputs)
        yield Row("TensorRT-LLM 1.0", regime, what, float(line["total_out_tok_s"]) / most)


def llm_foundry(folder: Path) -> Iterator[Row]:
    """Forward and backward of a micro-batch on each card, without the optimizer and what goes between cards."""
    for line in _lines(folder / "llm-foundry" / "parsed.csv"):
        device, tokens, batch = rl.device(CARDS[line["GPU"]]), int(line["SeqLen (T)"]), int(line["MicroBatchSize"])
        what = f"MPT {line['Model']}, {batch} x {tokens} tokens, {line['# GPUs']} x {line['GPU']}, {line['Precision']}"
        again = "with" if line["Activation Checkpointing"] == "True" else "without"
        regime = f"training, {line['Precision']}, {again} checkpointing"
        if line["Precision"] == "amp_fp8":
            yield Row("LLM-foundry", regime, what, None, "which products run in fp8 is not told")
            continue
        floor = seconds(line["Model"], device, Bits(), "train", batch, tokens)
        yield Row("LLM-foundry", regime, what, floor * float(line["Throughput (T/s/GPU)"]) / (batch * tokens))


def vidur(folder: Path) -> Iterator[Row]:
    """Products of one operation at a time, which are timed again and again."""
    for path in sorted((folder / "vidur" / "data" / "profiling" / "compute").rglob("mlp.csv.gz")):
        card = path.relative_to(folder).parts[4]
        device = rl.device(CARDS[card])
        with gzip.open(path, "rt", newline="") as file:
            for line in csv.DictReader(file):
                for name, inputs, outputs in _vidur_products(line):
                    rows, measured = int(line["num_tokens"]), float(line[f"time_stats.{name}.median"]) / 1e3
                    moved = 2 * (rows * (inputs + outputs) + inputs * outputs)
                    work = Work(flops={"matmul.fp16": 2.0 * rows * inputs * outputs}, bytes={"dram": moved})
                    regime = f"one product, {'up to 128' if rows <= 128 else 'more'} tokens, {card}"
                    what = f"{path.parent.name} {name}, {rows} tokens, part 1/{line['num_tensor_parallel_workers']}"
                    floor = bound(work, device).seconds
                    cached = moved < L2[card] and measured < floor
                    share = None if cached or not measured else floor / measured
                    why = "operands stay in the last-level cache from one timing to the next" if cached else ""
                    yield Row("Vidur", regime, what, share, why if measured else "time rounds to zero")


def _vidur_products(line: dict[str, str]) -> Iterator[tuple[str, int, int]]:
    """Name, inputs and outputs of each product of a part of a layer."""
    width, inner, parts = int(line["n_embd"]), int(line["n_expanded_embd"]), int(line["num_tensor_parallel_workers"])
    head, kv = width // int(line["n_head"]), int(line["n_kv_head"])
    yield "attn_pre_proj", width, (width + 2 * kv * head) // parts
    yield "attn_post_proj", width // parts, width
    yield "mlp_up_proj", width, (2 if line["use_gated_mlp"] == "True" else 1) * inner // parts
    yield "mlp_down_proj", inner // parts, width


def _lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open(newline="") as file:
        yield from csv.DictReader(file)


SETS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "gpt-fast": gpt_fast,
    "tensorrt-llm": tensorrt_llm,
    "tensorrt-llm-1": tensorrt_llm_1,
    "llm-foundry": llm_foundry,
    "vidur": vidur,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=list(SETS), action="append", help="some of the tables")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results/decoders.json"))
    parser.add_argument("--write", type=Path, help="the page of tables")
    options = parser.parse_args()
    kept = json.loads(options.results.read_text()) if options.results.exists() else {}
    for name in options.only or SETS:
        kept[name] = summary(list(SETS[name](options.folder)))
        options.results.write_text(json.dumps(kept, indent=1) + "\n")
    text = page(kept)
    if options.write:
        options.write.write_text(text)
    print(text)
    sys.exit(any(group["faster"] for groups in kept.values() for group in groups))


def summary(rows: list[Row]) -> list[dict[str, Any]]:
    """Floor over measured time by engine and regime, with what was left out."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.engine, row.regime), []).append(row)
    return [_group(engine, regime, group) for (engine, regime), group in groups.items()]


def _group(engine: str, regime: str, rows: list[Row]) -> dict[str, Any]:
    shares = sorted(row.share for row in rows if row.share is not None)
    reasons = [row.left_out for row in rows if row.share is None]
    return {
        "engine": engine,
        "regime": regime,
        "rows": len(shares),
        "least": shares[0] if shares else None,
        "median": median(shares) if shares else None,
        "most": shares[-1] if shares else None,
        "left_out": {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)},
        "faster": [asdict(row) for row in rows if row.share is not None and row.share > 1],
    }


TEXT = """\
# Floors of language models against public measurements

Made by `python benchmarks/decoders.py ../shared/data/measured --write docs/decoder-floors.md`; do not edit.

Each row of a public table is held against the [floor](floors.md) of its step on that card: no engine is faster, or the
row is left out with a reason. The share is floor over measured time, so 1 would be an engine that nothing can beat.
Where a table does not tell the context (gpt-fast), the shortest one is taken. Several cards have the floor of one,
divided: what goes between them is not in it. Throughput of prompts and answers lets FLOP and bytes overlap, since an
engine puts both into one step; where the batch is not told (TensorRT-LLM 1.0), as many sequences run as fit into the
memory beside the weights. Weights in 8 or 4 bits move their bits alone, without scales. Training is forward and
backward of a micro-batch, without the optimizer. Single products (Vidur) that come out faster than their bytes from
DRAM are left out if these fit into the last-level cache, since they were timed again and again.

"""


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    lines = [
        "| engine | regime | rows | least | median | most | faster than the floor | left out |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for groups in results.values():
        for group in groups:
            shares = ("–" if group[key] is None else f"{group[key]:.2f}" for key in ("least", "median", "most"))
            why = "; ".join(f"{count}: {reason}" for reason, count in group["left_out"].items())
            cells = (group["engine"], group["regime"], str(group["rows"]), *shares, str(len(group["faster"])), why)
            lines.append(f"| {' | '.join(cells)} |")
    return TEXT + "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
