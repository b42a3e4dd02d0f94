"""A step on fake tensors: the operations of an accelerator, in their modules, with the model left as it was found."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from rooflens.errors import DataDependent, ModelError
from rooflens.models import Example, Step, make_step, sum_of_outputs
from rooflens.records import Operation, Trace
from rooflens.trace import trace


def step_of(module: nn.Module, *args: Any, mode: str = "inference", optimizer: str = "none", **more: Any) -> Step:
    more.setdefault("dtype", "as-is")
    example = Example(args=args)
    return make_step("model", module, example, mode=mode, optimizer=optimizer, loss=sum_of_outputs, **more)


def traced(module: nn.Module, *args: Any, **more: Any) -> Trace:
    return trace(step_of(module, *args, **more))


def names(done: Trace, phase: str) -> Counter[str]:
    return Counter(o.call.name for o in done.operations if o.phase == phase)


def find(done: Trace, name: str) -> Operation:
    found = [o for o in done.operations if o.call.name == name]
    assert len(found) == 1, f"{name} occurs {len(found)} times"
    return found[0]


class Attention(nn.Module):
    def __init__(self, dropout: float = 0.0, causal: bool = False, masked: bool = False) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)
        self.dropout, self.causal, self.masked = dropout, causal, masked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(2, 5, 3, 4, 4).permute(2, 0, 3, 1, 4)
        mask = torch.zeros(5, 5) if self.masked else None
        p = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p, is_causal=self.causal)


@pytest.mark.parametrize("settings", [{}, {"dropout": 0.1}, {"causal": True}, {"masked": True}])
def test_attention_is_one_operation_forward_and_backward(settings: dict[str, Any]) -> None:
    done = traced(Attention(**settings), torch.randn(2, 5, 16), mode="train")
    forward, backward = names(done, "forward"), names(done, "backward")
    assert forward["attention"] == 1
    assert backward["attention_backward"] == 1
    decomposed = {"bmm", "_softmax", "native_dropout", "_softmax_backward_data", "_safe_softmax", "baddbmm"}
    assert not decomposed & (forward.keys() | backward.keys())


def test_attention_saves_no_matrix_of_weights() -> None:
    """One head of width 4 over 512 positions: the weights would be 512 * 512 * 4 B = 1 MiB, all else is far less."""

    class Plain(nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v)

    q, k, v = (torch.randn(1, 1, 512, 4, requires_grad=True) for _ in range(3))
    done = traced(Plain(), q, k, v, mode="train")
    # q, k, v, output and the three gradients are 512 * 4 * 4 = 8 KiB each; log-sum-exp is 2 KiB.
    assert done.memory is not None
    assert done.memory.peak is not None
    assert done.memory.peak < 100_000


def test_multihead_attention_is_one_attention_in_eval_and_train() -> None:
    module = nn.MultiheadAttention(16, 4, batch_first=True, dropout=0.1)

    class Self(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mha = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.mha(x, x, x, need_weights=False)[0]
            return output

    for mode in ("inference", "train"):
        done = traced(Self(), torch.randn(2, 5, 16), mode=mode)
        assert find(done, "attention").path == "mha"


@pytest.mark.parametrize("call", [nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.1))])
def test_dropout_is_one_operation_with_a_byte_mask(call: nn.Module) -> None:
    done = traced(nn.Sequential(nn.Linear(8, 8), call), torch.randn(4, 8), mode="train")
    assert names(done, "forward")["native_dropout"] == 1
    assert names(done, "backward")["native_dropout_backward"] == 1
    assert not {"bernoulli_", "mul", "div_"} & (names(done, "forward").keys() | names(done, "backward").keys())
    mask = find(done, "native_dropout").call.outputs[1]
    assert (mask.dtype, mask.nbytes) == ("bool", 32)


def test_dropout_is_nothing_in_inference() -> None:
    assert not traced(nn.Dropout(0.5), torch.randn(4, 8)).operations


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}, {"batch_first": True}])
def test_recurrent_layers_are_one_operation_each(kind: type[nn.Module], options: dict[str, Any]) -> None:
    module = kind(8, 6, **options)
    done = traced(module, torch.randn(5, 3, 8), mode="train")
    work = names(done, "forward") - Counter({"zeros": 9, "sum": 9, "add": 9})
    assert work == Counter({"recurrent": 1})
    assert names(done, "backward")["recurrent_backward"] == 1
    output, _ = module(torch.randn(5, 3, 8))
    assert find(done, "recurrent").call.outputs[0].shape == tuple(output.shape)


def test_a_projection_narrows_the_output() -> None:
    call = find(traced(nn.LSTM(8, 6, proj_size=2), torch.randn(5, 3, 8)), "recurrent").call
    assert call.outputs[0].shape == (5, 3, 2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner: torch.Tensor = self.second(torch.relu(self.first(x)))
        return x + inner


def test_operations_have_their_module_forward_and_backward() -> None:
    done = traced(nn.Sequential(Block(), Block()), torch.randn(3, 4), mode="train")
    forward = [(o.path, o.call.name) for o in done.operations if o.phase == "forward"]
    block = [("first", "addmm"), ("", "relu"), ("second", "addmm"), ("", "add")]
    expected = [(f"{n}.{part}".rstrip("."), name) for n in (0, 1) for part, name in block]
    assert forward == [*expected, ("(loss)", "sum")]
    products = [o.path for o in done.operations if o.phase == "backward" and o.call.name == "mm"]
    # The weight's gradient needs one product, the input's another, except for the first layer's.
    assert products == ["1.second", "1.second", "1.first", "1.first", "0.second", "0.second", "0.first"]
    activations = [o.path for o in done.operations if o.call.name == "threshold_backward"]
    assert activations == ["1", "0"]


def test_a_module_called_from_elsewhere_keeps_its_own_path() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)
            self.outer = nn.ModuleDict({"again": self.inner})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = self.outer["again"](self.inner(x))
            return output

    done = traced(Shared(), torch.randn(2, 4))
    assert [o.path for o in done.operations] == ["inner", "inner"]


def test_recomputed_work_is_told_apart() -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = checkpoint(self.layers, x, use_reentrant=False)
            return output

    done = traced(Checkpointed(), torch.randn(2, 4, requires_grad=True), mode="train")
    repeated = [(o.call.name, o.path) for o in done.operations if o.phase == "backward" and o.recomputed]
    # Recomputation stops once everything that was saved is there again: the last product is not repeated.
    assert repeated == [("addmm", "layers.0"), ("relu", "layers.1")]


def test_batch_norm_of_one_sample_is_counted() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).train()
    with pytest.raises(ValueError, match="more than 1 value"):
        module(torch.randn(1, 4))
    assert names(traced(module, torch.randn(1, 4), mode="train"), "forward")["native_batch_norm"] == 1


def test_the_optimizer_has_its_steady_state_before_the_step() -> None:
    done = traced(nn.Linear(100, 10), torch.randn(2, 100), mode="train", optimizer="sgd")
    # Weight decay, momentum times 0.9, plus gradient, parameters update: the first step would clone the gradient.
    assert [o.call.name for o in done.operations if o.phase == "optimizer"] == [
        "_foreach_add",
        "_foreach_mul_",
        "_foreach_add_",
        "_foreach_add_",
    ]
    assert {o.path for o in done.operations if o.phase == "optimizer"} == {"(optimizer)"}


class Everything(nn.Module):
    """A model with state of every kind that a forward pass can change."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.lstm = nn.LSTM(4, 4, batch_first=True)
        self.frozen = nn.BatchNorm2d(4).eval()
        self.calls: list[int] = []
        self.cache: dict[str, torch.Tensor] = {}
        self.steps: torch.Tensor
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.append(1)
        self.steps.add_(1)
        x = self.frozen(self.norm(self.conv(x)))
        self.cache["last"] = x
        self.extra = x
        output: torch.Tensor = self.lstm(x.flatten(2).transpose(1, 2))[0]
        return F.dropout(output, random.random() / 2 + np.random.rand() / 4, self.training)


@pytest.mark.parametrize("mode", ["inference", "train"])
@pytest.mark.parametrize("training", [True, False])
def test_a_model_is_left_exactly_as_it_was_found(mode: str, training: bool) -> None:
    module = Everything().train(training)
    module.frozen.eval()
    flags = [m.training for m in module.modules()]
    attributes = [set(vars(m)) for m in module.modules()]
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    tensors = [id(t) for t in (*module.parameters(), *module.buffers())]
    flat = [id(w) for w in module.lstm._flat_weights]
    before = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    switches = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")

    traced(module, torch.randn(2, 3, 8, 8, generator=torch.Generator()), mode=mode, optimizer="adam")

    assert [m.training for m in module.modules()] == flags
    assert [set(vars(m)) for m in module.modules()] == attributes
    assert all(torch.equal(state[name], tensor) for name, tensor in module.state_dict().items())
    assert [id(t) for t in (*module.parameters(), *module.buffers())] == tensors
    assert [id(w) for w in module.lstm._flat_weights] == flat
    assert module.calls == []
    assert module.cache == {}
    assert all(p.grad is None and type(p) is nn.Parameter for p in module.parameters())
    assert not module._forward_hooks
    assert not module._forward_pre_hooks
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert before[2] == str(np.random.get_state())
    assert switches == (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))


def test_a_model_is_left_as_it_was_found_when_it_raises() -> None:
    module = Everything().train()
    with pytest.raises(ModelError, match="RuntimeError in module 'conv'"):
        traced(module, torch.randn(2, 5, 8, 8))
    assert module.training
    assert module.calls == []
    assert not torch.nn.modules.module._global_forward_hooks


def test_frozen_norms_stay_in_eval_where_the_root_agrees() -> None:
    done = traced(Everything().train(), torch.randn(2, 3, 8, 8), mode="train")
    norms = {o.path: o.call["training"] for o in done.operations if o.call.name == "native_batch_norm"}
    assert norms == {"norm": True, "frozen": True}  # train() was called on the root, which sets every module
    module = Everything().train()
    module.frozen.eval()
    done = traced(module, torch.randn(2, 3, 8, 8), mode="train")
    norms = {o.path: o.call["training"] for o in done.operations if o.call.name == "native_batch_norm"}
    assert norms == {"norm": True, "frozen": False}


class Chooses(nn.Module):
    """Doubles the positive ones of its inputs, all through a branch and a shape that depend on values."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width, device="meta" if width > 1000 else None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[x[:, 0] > 0]
        output: torch.Tensor = self.layer(rows)
        return output


def test_shapes_that_depend_on_values_are_run_with_values() -> None:
    module = Chooses()
    x = torch.tensor([[1.0] * 8, [-1.0] * 8, [2.0] * 8])
    weight = module.layer.weight.clone()
    done = traced(module, x, mode="train")
    assert find(done, "addmm").call.outputs[0].shape == (2, 8)  # two of the three rows are positive
    assert done.with_values
    assert any("nonzero" in note and "run on the CPU" in note for note in done.notes)
    assert torch.equal(module.layer.weight, weight)
    assert module.layer.weight.grad is None


def test_a_model_too_large_to_run_with_values_is_an_error() -> None:
    with pytest.raises(DataDependent, match=r"nonzero.*this machine has"):
        traced(Chooses(width=2**20), torch.empty(2, 2**20, device="meta"))


def test_where_the_system_tells_no_memory_the_step_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sysconf")
    assert traced(Chooses(), torch.randn(3, 8)).with_values


def test_operations_of_an_accelerator_keep_their_values_when_they_are_run() -> None:
    """The branch is taken on the result of attention and of an LSTM, so their kernels have to be right."""

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 4, num_layers=2, bidirectional=True, batch_first=True)

        def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
            attended = F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)
            recurrent, _ = self.lstm(attended[0])
            self.total = float(recurrent.sum())
            output: torch.Tensor = recurrent if self.total > 1e6 else recurrent * 2
            return output

    module = Branches()
    q, k = torch.randn(1, 4, 6, 4), torch.randn(1, 2, 6, 4)
    with torch.no_grad():
        module(q, k)
    expected = module.total
    seen: list[float] = []
    original = Branches.forward

    def spying(self: Branches, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        output = original(self, q, k)
        seen.append(self.total)
        return output

    Branches.forward = spying  # type: ignore[method-assign]
    done = traced(module, q, k)
    assert names(done, "forward")["attention"] == names(done, "forward")["recurrent"] == 1
    assert seen[-1] == pytest.approx(expected, rel=1e-4)


def test_packed_sequences_are_run_with_their_lengths() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.randn(5, 8), torch.randn(3, 8), torch.randn(1, 8)])
    call = find(traced(nn.LSTM(8, 6, proj_size=2), packed), "recurrent").call
    assert call.tensor("input").shape == (9, 8)  # 5 + 3 + 1 steps
    assert call.outputs[0].shape == (9, 2)


def test_training_without_a_gradient_is_an_error() -> None:
    module = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(ModelError, match="depends on no parameter"):
        traced(module, torch.randn(1, 2), mode="train")


def test_inference_mode_inside_the_model_hides_nothing() -> None:
    class Decorated(nn.Linear):
        @torch.inference_mode()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x)

    assert names(traced(Decorated(4, 4), torch.randn(2, 4)), "forward") == Counter({"addmm": 1})


def test_inputs_may_be_on_meta_and_half_precision_follows_the_dtype() -> None:
    module = nn.Linear(4, 4)
    done = traced(module, torch.empty(2, 4, device="meta"), dtype="bf16")
    call = find(done, "addmm").call
    assert {t.dtype for t in call.inputs} == {"bf16"}
    assert module.weight.dtype == torch.float32


def test_autocast_computes_products_in_the_lower_type() -> None:
    done = traced(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), torch.randn(2, 4), dtype="amp-bf16")
    assert {t.dtype for o in done.operations if o.call.name == "addmm" for t in o.call.inputs} == {"bf16"}


def test_fp16_autocast_scales_the_loss_and_checks_the_gradients() -> None:
    done = traced(nn.Linear(4, 4), torch.randn(2, 4), mode="train", optimizer="sgd", dtype="amp-fp16")
    assert names(done, "optimizer")["_amp_foreach_non_finite_check_and_unscale_"] == 1


def test_an_expanded_tensor_is_stored_once() -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            return x + bias.expand(64, 8)

    call = find(traced(Adds(), torch.randn(64, 8), torch.randn(8)), "add").call
    # 64 * 8 * 4 = 2048 B of x and 8 * 4 = 32 B of the bias in, 2048 B out.
    assert (call.reads, call.writes) == (2080, 2048)


def test_a_tensor_given_twice_is_read_once_and_in_place_results_are_written() -> None:
    class Squares(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * x).add_(1.0)

    done = traced(Squares(), torch.randn(16))
    assert (find(done, "mul").call.reads, find(done, "mul").call.writes) == (64, 64)
    assert (find(done, "add_").call.reads, find(done, "add_").call.writes) == (64, 64)


@pytest.mark.parametrize(
    "arrange",
    [
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.permute(0, 3, 1, 2).contiguous().permute(0, 2, 3, 1),
        lambda x: x[:1].expand(2, 3, 8, 8),
        lambda x: x.repeat(1, 1, 1, 2)[..., ::2],
        lambda x: x.transpose(2, 3),
    ],
)
def test_inputs_and_weights_of_any_layout(arrange: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = arrange(torch.randn(2, 3, 8, 8))
    assert find(traced(nn.Conv2d(3, 4, 3), x), "convolution").call.outputs[0].shape == (2, 4, 6, 6)
    module = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    assert find(traced(module, x, mode="train"), "convolution_backward").call.outputs


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.group_norm(x, 2),
        lambda x: F.softmax(x, -1),
        lambda x: x.softmax(-1),
        lambda x: torch.log_softmax(x, -1),
        lambda x: x.sum(-1),
        lambda x: x**2,
        lambda x: x.pow(3),
        lambda x: x.exp(),
        lambda x: F.cross_entropy(x, torch.zeros(len(x), dtype=torch.int64)),
        lambda x: F.mse_loss(x, x),
    ],
)
def test_autocast_brings_up_to_fp32_what_cuda_does(call: Callable[[torch.Tensor], torch.Tensor]) -> None:
    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return call(self.layer(x))

    done = traced(Calls(), torch.randn(2, 4), dtype="amp-bf16")
    assert find(done, "addmm").call.outputs[0].dtype == "bf16"
    assert done.operations[-1].call.outputs[0].dtype == "fp32"


def test_autocast_leaves_activations_in_the_lower_type() -> None:
    done = traced(nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.ReLU()), torch.randn(2, 4), dtype="amp-bf16")
    assert [find(done, name).call.outputs[0].dtype for name in ("gelu", "relu")] == ["bf16", "bf16"]


class Hides(nn.Module):
    """State that torch does not know: a plain tensor, one in a list, and modules in a list and a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.seen = torch.zeros(1)
        self.history = [torch.zeros(2)]
        self.extra = [nn.Linear(4, 4)]
        self.more = {"last": nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2))}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        self.history[0].add_(1)
        output: torch.Tensor = self.more["last"](self.extra[0](self.layer(x)))
        return output


def test_state_that_torch_does_not_know_is_left_as_it_was_found_too() -> None:
    module = Hides()
    hidden = [module.extra[0], *module.more["last"]]
    before = [t.clone() for part in hidden for t in part.state_dict().values()]
    tensors = module.seen, module.history[0]
    first, second = (traced(module, torch.randn(3, 4), mode="train", optimizer="sgd") for _ in range(2))
    assert [o.call for o in first.operations] == [o.call for o in second.operations]
    assert (module.seen, module.history[0]) == tensors
    assert float(module.seen) == 0
    assert module.history[0].tolist() == [0, 0]
    assert all(
        torch.equal(a, b) for a, b in zip(before, (t for p in hidden for t in p.state_dict().values()), strict=True)
    )
    assert all(type(p) is nn.Parameter and p.grad is None for part in hidden for p in part.parameters())
    # Two layers of 4 x 4 and one of 4 x 2, for 3 samples; the input needs no gradient.
    assert sum(o.call.name == "mm" for o in first.operations if o.phase == "backward") == 5


def test_a_model_that_ends_the_program_is_an_error() -> None:
    class Ends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise SystemExit(3)

    with pytest.raises(ModelError, match=r"ends the program \(exit code 3\)"):
        traced(Ends(), torch.randn(1))


def test_counters_of_steps_are_on_the_host() -> None:
    done = traced(nn.Linear(4, 4), torch.randn(2, 4), mode="train", optimizer="adam")
    assert all(max(t.elements for t in o.call.inputs) > 1 for o in done.operations if o.phase == "optimizer")
