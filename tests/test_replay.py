"""Calls are made from their description alone, whatever their kind; timing them needs a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.calls import call, tensor

from rooflens.predict.suite import SuiteCall, convolved, suite
from rooflens.records import Call, Tensor
from rooflens.sources.calibrate.host_costs import host_costs
from rooflens.sources.replay.operands import Untimed, operand, runner


def size(item: SuiteCall) -> int:
    return sum(t.elements for t in (*item.call.inputs, *item.call.outputs))


def rank(item: SuiteCall) -> tuple[bool, int]:
    """Calls in fp32 first, small ones first."""
    return any(t.dtype == "bf16" for t in item.call.inputs), size(item)


SMALLEST = {(item.effect, item.call.name): item for item in sorted(suite(), key=rank, reverse=True)}
"""The smallest call of each kind."""


@pytest.mark.parametrize(
    "item", [i for i in SMALLEST.values() if size(i) < 1e6], ids=lambda i: f"{i.effect}-{i.call.name}"
)
def test_a_call_of_the_suite_runs_and_gives_results_of_its_shapes(item: SuiteCall) -> None:
    result = runner(item.call, "cpu")()
    results = [t for t in (result if isinstance(result, tuple | list) else [result]) if isinstance(t, torch.Tensor)]
    if item.call.name.endswith("_"):  # in place: a list gives nothing, a tensor itself
        assert [tuple(result.shape) for result in results] in ([], [item.call.outputs[0].shape])
    elif not item.call.name.endswith("_backward"):  # autograd gives every gradient
        assert tuple(results[0].shape) == item.call.outputs[0].shape


def test_operands_lie_as_the_trace_says() -> None:
    described = Tensor((2, 3, 4, 5), "bf16", 240, None, (60, 1, 15, 3), 0)
    made = operand(described, 1, "cpu")
    assert (made.shape, made.stride(), made.dtype) == ((2, 3, 4, 5), (60, 1, 15, 3), torch.bfloat16)
    expanded = operand(Tensor((7, 4), "fp32", 16, None, (0, 1), 0), 1, "cpu")
    assert expanded.stride() == (0, 1)
    assert torch.equal(expanded[0], expanded[6])


def test_indices_stay_inside_of_the_table() -> None:
    table, indices = tensor(3, 4), tensor(100, dtype="int64")
    run = runner(call("embedding", tensor(100, 4), weight=table, indices=indices), "cpu")
    assert run().shape == (100, 4)


@pytest.mark.parametrize(
    "strange", [call("no_such_thing", tensor(2), self=tensor(2)), call("relu", tensor(2), nothing=tensor(2))]
)
def test_what_cannot_be_called_says_so(strange: Call) -> None:
    with pytest.raises(Untimed, match=r"no aten::no_such_thing|no overload of aten::relu"):
        runner(strange, "cpu")


@pytest.mark.parametrize(
    "named",
    [
        call("_to_copy", tensor(4), self=tensor(4, dtype="bf16"), dtype="torch.float32", device="cuda:7"),
        call("new_zeros", tensor(4), self=tensor(2), size=(4,), device="cuda:7"),
    ],
    ids=lambda item: item.name,
)
def test_a_call_that_names_a_device_runs_where_it_is_timed(named: Call) -> None:
    result = runner(named, "cpu")()
    assert (result.device.type, result.shape, result.dtype) == ("cpu", (4,), torch.float32)


def test_a_list_of_indices_may_begin_with_none() -> None:
    indices = (None, tensor(2, dtype="int64"))
    assert runner(call("index", tensor(3, 2), self=tensor(3, 5), indices=indices), "cpu")().shape == (3, 2)


def test_a_type_without_values_says_so() -> None:
    odd = replace(tensor(2), dtype="fp4")
    with pytest.raises(Untimed, match="no values of type fp4"):
        operand(odd, 1, "cpu")


def test_a_strided_convolution_has_as_many_results_as_torch_makes() -> None:
    for kernel, stride in ((3, 2), (7, 2), (4, 4), (1, 1)):
        one = convolved(1, 4, 8, 16, kernel, stride)
        assert runner(one, "cpu")().shape == one.outputs[0].shape


def test_the_host_is_a_reference_host_scaled_by_a_small_layer() -> None:
    ticks = iter(range(1_000_000))
    costs = host_costs("cpu", now=lambda: float(next(ticks)) * 40 * 18.2e-6)
    assert costs["host.operation"] == pytest.approx(13.5e-6)
    slower = host_costs("cpu", now=lambda: float(next(ticks)) * 40 * 36.4e-6)
    thread = costs.pop("host.thread")  # its clock and that of forward run alike here
    assert thread == pytest.approx(18.2 / 90)
    assert slower.pop("host.thread") == pytest.approx(thread)
    assert slower == {name: pytest.approx(2 * seconds) for name, seconds in costs.items()}
    assert {"host.view", "host.module", "host.list"} < costs.keys()
