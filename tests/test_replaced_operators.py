"""Scripts, traced modules, exported graphs and operators called by name count as their eager twins do."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.test_trace import names, traced
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import rooflens as rl
from rooflens.errors import InvalidValue

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch: scripts are deprecated, exports name attributes


class Attends(nn.Module):
    """Only the query has a parameter behind it, so nobody needs the gradients of key and value."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query * self.scale, key, key)


class AttendsByName(Attends):
    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        attended: Tensor = torch.ops.aten.scaled_dot_product_attention(query * self.scale, key, key)
        return attended


class Recurs(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.layer: nn.RNNBase = kind(4, 3, **options)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x)[0]
        return output


class Normalizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dropout = nn.RMSNorm(8), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.dropout(self.norm(x))
        return output


def exported(module: nn.Module, *inputs: Tensor) -> nn.Module:
    return torch.export.export(module, inputs).module()


WAYS: dict[str, Callable[..., nn.Module]] = {
    "eager": lambda module, *inputs: module,
    "script": lambda module, *inputs: torch.jit.script(module),
    "trace": lambda module, *inputs: torch.jit.trace(module, inputs),
    "export": exported,
    "by name": lambda module, *inputs: AttendsByName(),
}


def products(module: nn.Module, *inputs: Tensor) -> float | None:
    return rl.estimate(module, inputs=inputs, mode="train", optimizer="none").total().matmul_flops


@pytest.mark.parametrize("way", WAYS)
def test_attention_has_only_the_gradients_that_are_needed(way: str) -> None:
    """2 x 3 heads, 5 queries and 5 keys: 150 pairs. Forward and the query's gradient take 2 (4 + 4) FLOP each."""
    inputs = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)
    assert products(WAYS[way](Attends(), *inputs), *inputs) == 2 * 150 * (4 + 4) + 2 * 150 * (4 + 4)


@pytest.mark.parametrize("way", ["eager", "script", "trace", "export"])
@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
def test_recurrent_layers_are_one_operation_with_every_gradient(way: str, kind: type[nn.RNNBase], gates: int) -> None:
    """5 steps of 2 sequences meet (gates x 3, 4) and (gates x 3, 3) matrices; inputs get no gradient."""
    inputs = torch.randn(5, 2, 4)
    of_input, of_hidden = gates * 3 * 4, gates * 3 * 3
    forward, of_weights, of_states = of_input + of_hidden, of_input + of_hidden, of_hidden
    assert products(WAYS[way](Recurs(kind), inputs), inputs) == 2 * 10 * (forward + of_weights + of_states)


def test_an_exported_layer_has_the_operations_of_the_eager_one() -> None:
    inputs = torch.randn(5, 2, 4)
    module = nn.LSTM(4, 3, num_layers=2, bidirectional=True).eval()
    twin = rl.estimate(exported(module, inputs), inputs=inputs)
    eager = rl.estimate(module, inputs=inputs)
    assert twin.coverage.uncounted == ()
    assert (twin.total().flops, twin.total().bytes) == (eager.total().flops, eager.total().bytes)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "amp-bf16"])
@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_a_script_in_lower_precision_counts_as_eager(kind: type[nn.RNNBase], dtype: str) -> None:
    module = Recurs(kind, num_layers=2)
    asked: dict[str, Any] = {"inputs": torch.randn(5, 2, 4), "mode": "train", "optimizer": "none", "dtype": dtype}
    eager, script = (rl.estimate(m, **asked) for m in (module, torch.jit.script(module)))
    assert (script.total().flops, script.total().bytes) == (eager.total().flops, eager.total().bytes)


def test_norms_and_dropout_of_a_script_are_one_operation_each() -> None:
    script = torch.jit.script(Normalizes())
    done = traced(script, torch.randn(3, 8), mode="train")
    assert names(done, "forward") == Counter({"_fused_rms_norm": 1, "native_dropout": 1, "sum": 1})
    assert names(done, "backward")["_fused_rms_norm_backward"] == 1


class CallsKernel(Attends):
    """What a graph holds that was taken apart to torch's core operators."""

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        attended: Tensor = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(query * self.scale, key, key)[0]
        return attended


def test_a_kernel_called_by_name_has_only_the_gradients_that_are_needed() -> None:
    inputs = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 5, 4)
    assert products(CallsKernel(), *inputs) == 2 * 2 * 150 * (4 + 4)


class Casts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.to(torch.float64) + 1


def test_the_checks_of_an_exported_graph_are_free() -> None:
    graph = exported(Casts(), torch.randn(3, 4))
    assert "_assert_tensor_metadata" in str(graph.graph)
    done = rl.estimate(graph, inputs=torch.randn(3, 4))
    assert (done.coverage.uncounted, done.total().flops) == ((), 12)


class NormalizesImages(nn.Module):
    """Holds a number that an export lifts out of the code."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        normal: Tensor = self.norm(x) * torch.tensor(2.0)
        return normal


def test_functional_forms_that_only_graphs_hold_have_the_formula_of_the_plain_one() -> None:
    """200 elements: 4 for statistics and 4 for the norm, a root per channel; then a product."""
    inputs = torch.randn(2, 4, 5, 5)
    program = torch.export.export(NormalizesImages(), (inputs,))
    work = 200 * (4 + 4) + 4 + 200
    for graph in (program, program.run_decompositions()):
        est = rl.estimate(graph.module(), inputs=inputs)
        assert (est.coverage.uncounted, est.total().flops) == ((), work)
    names_held = {r.call.name for r in est if r.call is not None}
    assert "_native_batch_norm_legit_functional" in names_held


def test_a_graph_of_the_cpus_own_layers_counts_as_the_layers() -> None:
    """2 layers in 2 directions: 12 rows of gates read 4 (then 6) inputs and 3 hidden numbers, of 10 vectors."""
    inputs = torch.randn(5, 2, 4)
    layer = nn.LSTM(4, 3, num_layers=2, bidirectional=True).eval()
    with torch.no_grad():
        graph = make_fx(layer)(inputs)
    assert "mkldnn_rnn_layer" in graph.code
    eager, est = (rl.estimate(module, inputs=inputs).total() for module in (layer, graph))
    assert est.matmul_flops == 2 * 10 * 2 * 12 * (4 + 3 + 6 + 3)
    assert est.flops == eager.flops
    assert traced(Compares(graph, layer(inputs)[0].detach()), inputs).with_values


class Compares(nn.Module):
    """Looks at the values of the result, which have to be those of the plain layer."""

    def __init__(self, graph: nn.Module, expected: Tensor) -> None:
        super().__init__()
        self.graph, self.expected = graph, expected

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.graph(x)[0]
        assert torch.allclose(output, self.expected, atol=1e-5)
        return output


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_graph_may_name_the_device_that_it_was_exported_on(device: str) -> None:
    """The first states of an LSTM are zeros on that device; 10 vectors meet 12 x 4 and 12 x 3 weights."""
    inputs = torch.randn(5, 2, 4, device=device)
    graph = exported(nn.LSTM(4, 3, device=device), inputs)
    assert rl.estimate(graph, inputs=torch.randn(5, 2, 4)).total().matmul_flops == 2 * 10 * 12 * (4 + 3)


def test_an_exported_program_has_a_module() -> None:
    inputs = torch.randn(2, 4)
    program: Any = torch.export.export(nn.Linear(4, 3), (inputs,))
    with pytest.raises(InvalidValue, match=r"the model is ExportedProgram; .* nn.Module, which its module\(\) is"):
        rl.estimate(program, inputs=inputs)


class NamesDevices(nn.Module):
    """Is written for one kind of device."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        moved: Tensor = self.layer(x.cuda()) + torch.ones(4, device="cuda") + torch.ones(4).to("cuda:0")
        return moved.to(torch.device("cuda", 1)).to("cuda", torch.float64)


def test_a_model_that_names_a_device_is_counted_without_it() -> None:
    """2 rows meet 4 x 4 weights; a bias and two sums."""
    est = rl.estimate(NamesDevices(), inputs=torch.randn(2, 4))
    assert (est.total().matmul_flops, est.total().flops) == (2 * 2 * 16, 2 * 2 * 16 + 3 * 8)


class Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._schema.name)
        return func(*args, **(kwargs or {}))


def attention_of_torch() -> list[str]:
    inputs = torch.randn(1, 1, 2, 4)
    with Names() as seen:
        F.scaled_dot_product_attention(inputs, inputs, inputs)
    return [name for name in seen.names if "attention" in name]


class AsksAnotherThread(nn.Module):
    """Lets a thread that was there before run attention while it is traced."""

    def __init__(self) -> None:
        super().__init__()
        asked, answered, seen = threading.Event(), threading.Event(), list[str]()

        def answer() -> None:
            asked.wait()
            seen.extend(attention_of_torch())
            answered.set()

        def ask() -> list[str]:
            asked.set()
            assert answered.wait(timeout=60)
            return seen

        threading.Thread(target=answer, daemon=True).start()
        self.ask = ask

    def forward(self, x: Tensor) -> Tensor:
        self.ask()
        return F.scaled_dot_product_attention(x, x, x)


def test_other_threads_and_later_calls_have_torchs_own_kernels() -> None:
    before = attention_of_torch()
    assert before == ["aten::_scaled_dot_product_flash_attention_for_cpu"]
    asks = AsksAnotherThread()
    done = traced(asks, torch.randn(1, 1, 2, 4))
    assert names(done, "forward") == Counter({"attention": 1})
    assert asks.ask() == before == attention_of_torch()
