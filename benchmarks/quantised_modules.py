"""Hold quantised modules of torchao and transformers against `--weights` of the same layer and of a tiny llama.

    python benchmarks/quantised_modules.py

Nothing of them runs: torchao has to be installed (0.18 was used), and no GPU has to be there. Writes
benchmarks/results/quantised_modules.json: FLOP of products, bytes that the bound moves, bytes of parameters and buffers
in memory, and the bound, each of the module and of `--weights`. Exits with 1 if they differ more than `APART` allows.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

import rooflens as rl

RESULTS = Path(__file__).parent / "results" / "quantised_modules.json"
ROWS, INNER, OUTER = 8, 1024, 1536
"""Of activations, and of a layer's weight."""
LLAMA: Mapping[str, int] = {
    "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 512,
}  # fmt: skip
DEVICE = "h100-sxm"
Quantise = Callable[[nn.Module], nn.Module]


def layer() -> nn.Module:
    return nn.Sequential(nn.Linear(INNER, OUTER, bias=False, dtype=torch.bfloat16))


def llama() -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    model: nn.Module = LlamaForCausalLM(LlamaConfig(**LLAMA, tie_word_embeddings=False))
    return model.to(torch.bfloat16).eval()


def _each_linear(module: nn.Module, make: Callable[[nn.Linear], nn.Module]) -> nn.Module:
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, make(child))
        else:
            _each_linear(child, make)
    return module


def with_weight(weight: Callable[[torch.Tensor], torch.Tensor]) -> Quantise:
    """Return what puts another weight into every linear layer."""

    def made(linear: nn.Linear) -> nn.Module:
        linear.weight = nn.Parameter(weight(linear.weight.detach()), requires_grad=False)
        return linear

    return lambda module: _each_linear(module, made)


def int8_weight_only(module: nn.Module) -> nn.Module:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantize_(module, Int8WeightOnlyConfig())
    return module


def int4_tile_packed(weight: torch.Tensor) -> torch.Tensor:
    """The tensor that torchao makes on a GPU, of zeros: it cannot be packed without one."""
    from torchao.quantization import Int4TilePackedTo4dTensor

    (outer, inner), group = weight.shape, 128
    codes = torch.zeros(outer // 8, inner // 128, 32, 4, dtype=torch.int32)
    scales = torch.zeros(inner // group, outer, 2, dtype=torch.bfloat16)
    return Int4TilePackedTo4dTensor(codes, scales, [1, group], weight.shape)  # type: ignore[no-any-return]


def fp8(dynamic: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what makes fp8 of a weight with one scale, for activations in fp8 too or as they are."""

    def made(weight: torch.Tensor) -> torch.Tensor:
        from torchao.float8.inference import Float8MMConfig
        from torchao.quantization import Float8Tensor, PerTensor
        from torchao.quantization.quantize_.workflows import QuantizeTensorToFloat8Kwargs

        config, granularity = Float8MMConfig(use_fast_accum=True), PerTensor()
        activations = QuantizeTensorToFloat8Kwargs(granularity=granularity, mm_config=config) if dynamic else None
        return Float8Tensor.from_hp(  # type: ignore[no-any-return]
            weight, granularity=granularity, mm_config=config, act_quant_kwargs=activations
        )

    return made


def bitnet(module: nn.Module) -> nn.Module:
    """BitNet's layers of transformers: codes of 2 bits, and activations of 8 bits in bf16."""
    from transformers.integrations.bitnet import BitLinear

    return _each_linear(
        module, lambda one: BitLinear(one.in_features, one.out_features, bias=False, dtype=torch.bfloat16)
    )


MODULES: Mapping[str, tuple[str, Quantise]] = {
    "torchao Int8WeightOnlyConfig": ("int8", int8_weight_only),
    "torchao Int4TilePackedTo4dTensor, groups of 128": ("int4", with_weight(int4_tile_packed)),
    "torchao Float8Tensor, one scale, activations in fp8": ("fp8", with_weight(fp8(dynamic=True))),
    "torchao Float8Tensor, one scale, weight only": ("fp8", with_weight(fp8(dynamic=False))),
    "transformers BitLinear": ("int8", bitnet),
}
"""The format of `--weights` for each; that of BitLinear is none of them, so it is held against int8."""
APART: Mapping[str, Mapping[str, float]] = {
    "torchao Int8WeightOnlyConfig": {"needed_bytes": 0.003, "stored_bytes": 0.003, "bound_us": 0.003},
    "torchao Int4TilePackedTo4dTensor, groups of 128": {"needed_bytes": 0.17, "bound_us": 0.15},
    "torchao Float8Tensor, one scale, activations in fp8": {"needed_bytes": 0.0001, "bound_us": 0.01},
    "torchao Float8Tensor, one scale, weight only": {"products": 0, "bound_us": 0.08},
    "transformers BitLinear": {"needed_bytes": 0.74, "stored_bytes": 0.76, "bound_us": 0.69},
}
"""By how much numbers of a module may differ, as a share of ours; others are equal.

torchao's scales in int8 have 32 bits, ours 16. Its int4 layers copy the activations first. To scale activations to fp8
takes more FLOP than one for each. Weights in fp8 beside 16-bit activations are dequantised, and the product runs in
bf16. BitNet's codes have 2 bits.
"""


def numbers(found: rl.RecordSet) -> dict[str, Any]:
    """Return what is compared of an estimate."""
    ops, total, memory = [r for r in found if r.scope == "op"], found.total(), found.memory
    if total.matmul_flops is None or memory is None or total.seconds is None:
        raise ValueError("the step is not counted in full")
    products: Counter[str] = Counter()
    for record in ops:
        for key, flops in () if record.work is None else record.work.flops.items():
            products[key] += round(record.calls * flops) if key.startswith("matmul") else 0
    return {
        "products": dict(+products),
        "needed_bytes": sum(r.calls * r.bound_work.bytes["dram"] for r in ops if r.bound_work is not None),
        "stored_bytes": (memory.parameters or 0) + (memory.buffers or 0),
        "bound_us": round(1e6 * total.seconds, 3),
    }


def of_layer(module: nn.Module, **options: Any) -> dict[str, Any]:
    inputs = torch.ones(ROWS, INNER, dtype=torch.bfloat16)
    return numbers(rl.estimate(module, inputs=inputs, device=DEVICE, **options))


def of_llama(module: nn.Module, **options: Any) -> dict[str, Any]:
    inputs = {"input_ids": torch.zeros(ROWS, 64, dtype=torch.int64), "use_cache": False}
    return numbers(rl.estimate(module, inputs=inputs, device=DEVICE, **options))


def differences(row: Mapping[str, Any]) -> list[str]:
    """Return the numbers of a row that differ by more than they may."""
    theirs, ours, apart = row["theirs"], row["ours"], APART[row["module"]]
    found = [] if "products" in apart or theirs["products"] == ours["products"] else ["products"]
    numbers = ("needed_bytes", "stored_bytes", "bound_us")
    return found + [n for n in numbers if abs(theirs[n] - ours[n]) > apart.get(n, 0) * ours[n]]


def read() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text())["rows"]
    return rows


def compared() -> list[dict[str, Any]]:
    rows = []
    for name, (weights, quantise) in MODULES.items():
        for what, make, count in (("layer", layer, of_layer), ("llama", llama, of_llama)):
            row: dict[str, Any] = {"module": name, "of": what, "weights": weights}
            row |= {"theirs": count(quantise(make())), "ours": count(make(), weights=weights)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def main() -> int:
    versions = {name: version(name) for name in ("torch", "torchao", "transformers")}
    rows = compared()
    lines = ",\n".join(json.dumps(row) for row in rows)
    RESULTS.write_text(f'{{"versions": {json.dumps(versions)}, "rows": [\n{lines}\n]}}\n')
    wrong = [(row["module"], row["of"], found) for row in rows if (found := differences(row))]
    print(f"{len(wrong)} of {len(rows)} differ by more than they may", *wrong, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
