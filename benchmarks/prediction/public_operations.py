"""Single operations that others have timed: Vidur (fp16, language models) and NeuSight (fp32), as calls."""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.prediction.tables import Judged

import rooflens as rl
from rooflens.costs import Arithmetic, cost
from rooflens.predict import CallOnDevice, card_of, expected_seconds, generation
from rooflens.predict.card import Card
from rooflens.predict.suite import dense, made
from rooflens.records import Call
from rooflens.roofline import bound

MEASURED = Path(__file__).resolve().parents[3] / "shared" / "data" / "measured"
VIDUR = {"h100": "h100-sxm", "a100": "a100-sxm4-80gb", "a40": "a40"}
NEUSIGHT = {
    "Tesla V100-PCIE-32GB": "tesla-v100-pcie-32gb",
    "NVIDIA L4": "l4",
    "Tesla T4": "tesla-t4",
    "Tesla P4": "tesla-p4",
    "Tesla P100-PCIE-16GB": "tesla-p100-pcie-16gb",
    "NVIDIA A100-PCIE-40GB": "a100-pcie-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
}
BINARY = {"add": "add", "mul": "mul", "div": "div", "pow": "pow"}
UNARY = {
    "addu": "add",
    "mulu": "mul",
    "divu": "div",
    "powu": "pow",
    **{n: n for n in ("tanh", "relu", "gelu", "sigmoid", "exp")},
}
SAMPLE = 300
"""Rows of a file that are taken, by a fixed seed: the tables do not change with more."""
ROUNDED = 20e-6
"""Vidur rounds to 1 us: shorter times are left out, for their error would be that of rounding."""


def rows() -> Iterator[Judged]:
    """Every row, at both levels: with the constants of its generation, and with general ones."""
    for name, device, key, call, seconds, cold, seen in (*_vidur(), *_neusight()):
        for made_card in (card_of(rl.device(device)), card_of(rl.device(device), generation("general"))):
            assert made_card is not None
            yield _judged(name, key, call, seconds, cold, made_card, seen and made_card.level == "datasheet")


def _judged(name: str, key: str, call: Call, seconds: float, cold: float, card: Card, seen: bool) -> Judged:
    one = cost(call, Arithmetic())
    priced = CallOnDevice(call, one.family, one.work.flops, one.work.bytes["dram"], cold, 1.0, "forward", None)
    predicted = expected_seconds(priced, card)
    return Judged(
        source=name,
        model=key.partition(" ")[2] if name == "NeuSight" else key.partition(" ")[0],
        device=card.device.name,
        level=card.level,
        mode=_regime(call),
        regime="pieces",
        measured=seconds,
        predicted=predicted,
        bound=bound(one.work, card.device).seconds,
        bands=(one.family, "other"),
        steps=False,
        seen=seen,
    )


def _regime(call: Call) -> str:
    """Rows of a product say whether it waits for its weights."""
    if call.name == "bmm":
        return "batched"
    if call.name != "mm":
        return call.name
    m = call.outputs[0].shape[0]
    return "up to 64 rows" if m <= 64 else "up to 512 rows" if m <= 512 else "more rows"


Timed = tuple[str, str, str, Call, float, float, bool]


def product(m: int, k: int, n: int, dtype: str) -> Call:
    """(m, k) times (k, n)."""
    left, right, out = (dense(*shape, dtype=dtype) for shape in ((m, k), (k, n), (m, n)))
    return made("mm", out, self=left, mat2=right)


def _vidur() -> Iterator[Timed]:
    for folder, device in VIDUR.items():
        for file in sorted((MEASURED / "vidur/data/profiling/compute" / folder).rglob("mlp.csv.gz")):
            for row in _sample(file, SAMPLE):
                sizes = {name: int(float(row[name])) for name in row if name.startswith(("n_", "num_"))}
                for name, call in _layer(sizes, row["use_gated_mlp"] == "True").items():
                    seconds = float(row.get(f"time_stats.{name}.median") or 0) / 1e3
                    if seconds >= ROUNDED:
                        weights = call.inputs[1].nbytes if call.name == "mm" else 0
                        yield (
                            "Vidur",
                            device,
                            f"{file.parent.name} {name} {sorted(sizes.items())}",
                            call,
                            seconds,
                            weights,
                            False,
                        )


def _layer(sizes: dict[str, int], gated: bool) -> dict[str, Call]:
    """The products and the sum of a layer of a language model, as one of several devices runs them."""
    tokens, width, inner = sizes["num_tokens"], sizes["n_embd"], sizes["n_expanded_embd"]
    share, heads, kept = sizes["num_tensor_parallel_workers"], sizes["n_head"], sizes["n_kv_head"]
    x = dense(tokens, width, dtype="fp16")
    return {
        "attn_pre_proj": product(tokens, width, (heads + 2 * kept) * (width // heads) // share, "fp16"),
        "attn_post_proj": product(tokens, width // share, width, "fp16"),
        "mlp_up_proj": product(tokens, width, inner * (2 if gated else 1) // share, "fp16"),
        "mlp_down_proj": product(tokens, inner // share, width, "fp16"),
        "add": made("add", x, self=x, other=x),
    }


def _neusight() -> Iterator[Timed]:
    folder = MEASURED / "neusight/scripts/asplos/data/dataset/test"
    for kind, count in (("linear", 3000), ("bmm", 4000), ("elem", 2000), ("softmax", 600), ("ln", 600)):
        for row in _sample(folder / ("vec" if kind in ("softmax", "ln", "elem") else kind), count, kind):
            call = _kernel(row, kind)
            if call is not None and row["Device"] in NEUSIGHT:
                key = " ".join(f"{name}={row[name]}" for name in ("OPName", "B", "M", "N", "K", "H") if row.get(name))
                yield "NeuSight", NEUSIGHT[row["Device"]], key, call, float(row["Latency"]) / 1e3, 0.0, True


def _kernel(row: dict[str, str], kind: str) -> Call | None:
    size = {name: int(float(row[name])) for name in ("B", "M", "N", "K", "H") if row.get(name)}
    if kind == "linear":
        return product(size["B"] * size["M"], size["K"], size["N"], "fp32")
    if kind == "bmm":
        batch, m, n, k = (size[name] for name in "BMNK")
        return made("bmm", dense(batch, m, n), self=dense(batch, m, k), mat2=dense(batch, k, n))
    x, vector, one = dense(size["B"], size["H"]), dense(size["H"]), dense(size["B"], 1)
    name = row["OPName"]
    if kind == "softmax":
        return made("_softmax", x, self=x, dim=-1, half_to_float=False)
    if kind == "ln":
        return made(
            "native_layer_norm",
            (x, one, one),
            input=x,
            normalized_shape=(size["H"],),
            weight=vector,
            bias=vector,
            eps=1e-5,
        )
    if name in BINARY:
        return made(BINARY[name], x, self=x, other=x)
    return made(UNARY[name], x, self=x) if name in UNARY else None


def _sample(file: Path, count: int, kind: str = "") -> list[dict[str, str]]:
    """Some rows of a table, always the same ones."""
    path = file if file.suffix == ".gz" else file.with_suffix(".csv.gz")
    with gzip.open(path, "rt") as text:
        read = list(csv.DictReader(text))
    if kind in ("softmax", "ln"):
        read = [row for row in read if row["OPName"] == kind]
    elif kind == "elem":
        read = [row for row in read if row["OPName"] in BINARY or row["OPName"] in UNARY]
    return random.Random(1).sample(read, min(count, len(read)))
