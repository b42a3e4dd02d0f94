"""`checkpoint=True`: what is computed again and what is kept, by hand and as real steps on the CPU do."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.real_steps import step_of, watched
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.models import eager, find, placed, workload_of
from rooflens.models.checkpointing import blocks, checkpointed
from rooflens.runs.options import Options
from rooflens.runs.run import Run

WIDTH, LAYERS, HEADS, TOKENS, BATCH, WORDS = 64, 3, 4, 32, 2, 256
GPT2 = {"model_type": "gpt2", "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 64}
GPT2 |= {"vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 0}
GPT2 |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
N = BATCH * TOKENS


def hf(folder: Path, config: dict[str, Any]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return f"hf:{path}"


def estimated(model: str, checkpoint: bool = True, **options: Any) -> rl.RecordSet:
    given = {"batch": BATCH, "mode": "train", "optimizer": "none", **options}
    return rl.estimate(model, checkpoint=checkpoint, **given)


def test_all_of_a_block_but_its_last_product_is_computed_again(tmp_path: Path) -> None:
    model = hf(tmp_path, GPT2)
    plain, saving = (estimated(model, on, seq_len=TOKENS, device="h100-sxm") for on in (False, True))
    # q, k and v, scores and values of all pairs, output, the first of the MLP's two products: what the last one makes
    # goes into a sum, which backward needs no values of. torch stops there.
    block = 2 * N * WIDTH * 3 * WIDTH + 2 * 2 * N * TOKENS * WIDTH + 2 * N * WIDTH * WIDTH + 2 * N * WIDTH * 4 * WIDTH
    total = saving.total()
    assert total.matmul_flops == plain.total().matmul_flops
    assert total.recomputed_flops == saving.total("backward").recomputed_flops == LAYERS * block
    assert plain.total().recomputed_flops == 0
    # The bound is that of the step that was asked for: without the values it has to compute them again.
    assert total.seconds is not None
    assert total.recomputed_seconds is not None
    assert total.seconds == pytest.approx((plain.total().seconds or 0) + total.recomputed_seconds, rel=0.02)
    (case,) = json.loads(rl.table(saving, format="json"))
    assert case["step"]["recomputed_seconds"] == total.recomputed_seconds > 0
    assert case["phases"]["forward"]["recomputed_seconds"] == 0
    assert dict(saving.cases[0].options)["checkpoint"] is True
    assert "of the bound computes again what the step does not keep" in rl.table(saving)


def test_work_between_the_layers_of_a_block_belongs_to_the_block(tmp_path: Path) -> None:
    found = [r for r in estimated(hf(tmp_path, GPT2), seq_len=TOKENS) if r.recomputed]
    assert {r.path for r in found if r.name == "add" and "act" not in r.path} == {
        f"transformer.h.{n}" for n in range(LAYERS)
    }


def test_a_block_keeps_its_input_alone() -> None:
    saving, plain = (estimated("squeezenet1_0", on, img_size=64).memory for on in (True, False))
    assert saving is not None
    assert plain is not None
    assert (saving.peak or 0) < (plain.peak or 0)


LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 64}
LLAMA |= {"num_attention_heads": 4, "num_key_value_heads": 2}


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (GPT2, {"seq_len": 8}),
        (LLAMA, {"seq_len": 8, "dtype": "bf16"}),
        ("squeezenet1_1", {"img_size": 64}),
        ("timm:test_vit", {}),
    ],
)
def test_a_real_step_calls_each_module_as_often(
    model: str | dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    name = model if isinstance(model, str) else hf(tmp_path, model)
    dtype = options.pop("dtype", "fp32")
    counted = next(r.host_calls for r in estimated(name, dtype=dtype, **options) if r.host_calls is not None)
    ours = {(calls.path, calls.phase): calls.module_calls for calls in counted if calls.module_calls}
    kept = Options(checkpoint=True, optimizer="none", **options)
    run = Run(model=name, batch=BATCH, dtype=dtype, mode="train", options=kept)
    assert {p: n for p, n in ours.items() if p[1] == "backward"}
    assert ours == _calls(run)


def _calls(run: Run) -> Counter[tuple[str, str]]:
    """Calls of modules by path and phase in a real step on the CPU."""
    step = placed(workload_of(run).step(run, "cpu"), "cpu", copy=False)
    names = {id(module): path for path, module in step.module.named_modules()}
    ready, seen, phases = eager(step, "cpu"), Counter[tuple[str, str]](), ["forward"]
    hook = register_module_forward_pre_hook(lambda module, _: seen.update([(names[id(module)], phases[-1])]))
    try:
        ready.once(lambda: phases.append("backward"))
    finally:
        hook.remove()
    return seen


def test_gradients_are_those_of_the_plain_model() -> None:
    def gradient(on: bool) -> torch.Tensor:
        torch.manual_seed(0)
        model: nn.Module = nn.Sequential(*(Block() for _ in range(3)))
        model = checkpointed(model, "m") if on else model
        model(torch.ones(2, 4)).sum().backward()
        return next(model.parameters()).grad  # type: ignore[return-value]

    assert torch.equal(gradient(True), gradient(False))


class Block(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        changed: torch.Tensor = self.layer(x)
        return x + changed.relu()


@pytest.mark.parametrize("steps", [1, 2])
def test_memory_is_that_of_a_real_step(steps: int) -> None:
    width, rows, kib = 256, 1024, 1024
    model = checkpointed(nn.Sequential(*(Block(width) for _ in range(6))), "m")
    given: dict[str, Any] = {"inputs": torch.ones(rows, width), "optimizer": "none", "accumulation_steps": steps}
    memory = rl.estimate(model, mode="train", **given).memory
    real, _ = watched(step_of(model=model, **given))
    assert memory is not None
    assert memory.peak == real.peak
    if steps == 1:
        # At the peak the fifth block's gradients are made: what is kept are the inputs of the second to the fifth (the
        # first is the model's own) and the output, 1 MiB each, and the loss. Weights are 256 KiB, biases 1 KiB.
        assert memory.activations == 5 * 1024 * kib + 512
        assert memory.gradients == 2 * (256 + 1) * kib


def test_blocks_are_the_outermost_layers_of_stacks() -> None:
    pair = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    stage = nn.Sequential(Block(), Block())
    model = nn.Sequential(pair, stage, nn.Sequential(Block(), nn.ReLU(), Block()), nn.Linear(4, 4), nn.Linear(4, 4))
    assert list(blocks(model)) == list(stage)
    assert list(blocks(pair)) == []


class Growing(nn.Module):
    """As DenseNet: each layer takes the list of all earlier results, to which the model appends."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Summing() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = [x]
        for layer in self.layers:
            results.append(layer(results))
        return results[-1]


class Summing(Block):
    def forward(self, results: list[torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        return super().forward(torch.stack(results).sum(0) * len(results))


def test_a_list_that_grows_is_given_as_it_was() -> None:
    model, x = Growing(), torch.ones(2, 4)
    model(x).sum().backward()
    plain = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    checkpointed(model, "m")(x).sum().backward()
    for was, parameter in zip(plain, model.parameters(), strict=True):
        assert was is not None
        assert parameter.grad is not None
        assert torch.equal(was, parameter.grad)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"model": "resnet18"}, "is about a training step, which mode 'inference' is not; give mode train"),
        ({"model": "alexnet", "mode": "train"}, "alexnet has no blocks to checkpoint"),
        ({"model": nn.Linear(2, 2), "inputs": torch.ones(1, 2), "mode": "train"}, "Linear was handed in"),
        ({"model": "hf:mamba", "mode": "prefill"}, "mode 'prefill' is not"),
    ],
)
def test_where_it_makes_no_sense_the_error_says_why(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidValue, match=why):
        rl.estimate(**given, checkpoint=True)


def test_random_numbers_of_blocks_are_saved_on_the_host_outside_of_graphs() -> None:
    with pytest.raises(InvalidValue, match="while it captures a CUDA graph"):
        Options(checkpoint=True, cuda_graph=True)


def test_code_of_a_user_keeps_its_own(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text("import torch\ndef net():\n    return torch.nn.Linear(2, 2), torch.ones(1, 2)\n")
    with pytest.raises(InvalidValue, match=r"is code of yours: call torch\.utils\.checkpoint"):
        find(f"{path}:net", Options(checkpoint=True), "train")
