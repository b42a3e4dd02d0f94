"""Attribution on events written by hand: every answer can be read off the times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.records import Case, Phase, Record
from rooflens.results import UNATTRIBUTED, RecordSet
from rooflens.sources.profile import TimeShare, attribute, records_of
from rooflens.sources.profile.events import DeviceActivity, Events, HostOperation, LaunchCall, NamedRange
from rooflens.sources.range_names import module_range, phase_range

MAIN, ENGINE = 0, 1
OUTSIDE: dict[Phase, str] = {"forward": "(loss)", "backward": "(loss)", "optimizer": "(optimizer)"}


def op(name: str, start: float, end: float, *, thread: int = MAIN, **more: int) -> HostOperation:
    return HostOperation(name=name, start=start, seconds=end - start, thread=thread, **more)  # type: ignore[arg-type]


def node(name: str, start: float, end: float, sequence: int, *, thread: int = ENGINE) -> HostOperation:
    """A node of the autograd graph that was made on the main thread."""
    return HostOperation(
        name=name,
        start=start,
        seconds=end - start,
        thread=thread,
        sequence=sequence,
        backward=True,
        forward_thread=MAIN,
    )


def module(path: str, start: float, end: float, thread: int = MAIN) -> NamedRange:
    return NamedRange(name=module_range(path), start=start, seconds=end - start, thread=thread)


def phase(name: Phase, start: float, end: float) -> NamedRange:
    return NamedRange(name=phase_range(name), start=start, seconds=end - start, thread=MAIN)


def launch(at: float, number: int, thread: int = MAIN) -> LaunchCall:
    return LaunchCall(name="cudaLaunchKernel", start=at, seconds=0.1, thread=thread, correlation=number)


def kernel(number: int | None, seconds: float = 1.0, **more: Any) -> DeviceActivity:
    return DeviceActivity(
        name=f"kernel {number}",
        kind="kernel",
        start=1000.0,
        seconds=seconds,
        correlation=number,
        **more,
    )


def attributed(
    *,
    operations: Sequence[HostOperation] = (),
    ranges: Sequence[NamedRange] = (),
    launches: Sequence[LaunchCall] = (),
    activities: Sequence[DeviceActivity] = (),
) -> tuple[TimeShare, ...]:
    events = Events(
        operations=tuple(operations), ranges=tuple(ranges), launches=tuple(launches), activities=tuple(activities)
    )
    return attribute(events, OUTSIDE)


def where(share: TimeShare) -> tuple[str | None, str | None, Phase | None]:
    return share.operation, share.place.path, share.place.phase


def test_a_kernel_belongs_to_the_operation_that_launched_it_and_to_the_innermost_module() -> None:
    shares = attributed(
        ranges=[module("", 0, 100), module("block", 10, 50), module("block.conv", 20, 40)],
        operations=[
            op("aten::conv2d", 21, 39),
            op("aten::convolution", 22, 38),
            op("aten::cudnn_convolution", 23, 37),
            op("aten::add_", 42, 45),
            op("aten::linear", 60, 80),
            op("aten::addmm", 65, 75),
        ],
        launches=[launch(24, 1), launch(43, 2), launch(66, 3), launch(70, 4)],
        activities=[kernel(1, 5.0), kernel(2, 2.0), kernel(3, 3.0), kernel(4, 4.0)],
    )
    assert [where(share) for share in shares] == [
        ("convolution", "block.conv", "forward"),
        ("add_", "block", "forward"),
        ("addmm", "", "forward"),
        ("addmm", "", "forward"),
    ]
    assert [share.seconds for share in shares] == [5.0, 2.0, 3.0, 4.0]
    assert shares[2].call == shares[3].call != shares[1].call


@pytest.mark.parametrize(
    ("name", "known_as"),
    [
        ("aten::scaled_dot_product_attention", "attention"),
        ("aten::_scaled_dot_product_flash_attention_backward", "attention_backward"),
        ("aten::cudnn_batch_norm", "native_batch_norm"),
        ("aten::lstm", "recurrent"),
        ("aten::_cudnn_rnn_backward", "recurrent_backward"),
        ("aten::relu_", "relu_"),
        ("torchvision::nms", "nms"),
        ("my_function", "my_function"),
    ],
)
def test_operations_have_the_names_of_an_estimate(name: str, known_as: str) -> None:
    (share,) = attributed(operations=[op(name, 0, 9)], launches=[launch(1, 1)], activities=[kernel(1)])
    assert share.operation == known_as


def test_a_backward_operation_belongs_where_its_node_was_made() -> None:
    """An operation that makes no node sees the same number as the next one that does: the last one made it."""
    shares = attributed(
        ranges=[module("a", 0, 10), module("b", 10, 20)],
        operations=[
            op("aten::convolution", 1, 5, sequence=7),
            op("aten::empty", 6, 7, sequence=8),  # in a, where no node 8 is made
            op("aten::relu", 11, 15, sequence=8),
            node("autograd::engine::evaluate_function: ReluBackward0", 30, 40, 8),
            node("ReluBackward0", 31, 39, 8),
            op("aten::threshold_backward", 32, 38, thread=ENGINE),
            node("autograd::engine::evaluate_function: ConvolutionBackward0", 40, 60, 7),
            node("ConvolutionBackward0", 41, 59, 7),
            op("aten::convolution_backward", 42, 58, thread=ENGINE),
            op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 60, 70, thread=ENGINE),
            op("torch::autograd::AccumulateGrad", 61, 69, thread=ENGINE),
            op("aten::add_", 62, 68, thread=ENGINE),
        ],
        launches=[launch(33, 1, ENGINE), launch(43, 2, ENGINE), launch(63, 3, ENGINE)],
        activities=[kernel(1), kernel(2), kernel(3)],
    )
    assert [where(share) for share in shares] == [
        ("threshold_backward", "b", "backward"),
        ("convolution_backward", "a", "backward"),
        ("add_", "a", "backward"),
    ]


def test_a_node_of_an_unknown_thread_has_a_phase_but_no_module() -> None:
    unknown = HostOperation(name="MulBackward0", start=30, seconds=9, thread=ENGINE, sequence=7, backward=True)
    shares = attributed(
        ranges=[module("a", 0, 10)],
        operations=[op("aten::mul", 1, 5, sequence=7), unknown, op("aten::mul", 31, 32, thread=ENGINE)],
        launches=[launch(31.5, 1, ENGINE)],
        activities=[kernel(1)],
    )
    assert [where(share) for share in shares] == [("mul", None, "backward")]


def test_the_same_number_on_another_thread_is_another_node() -> None:
    """A checkpoint runs its forward again on the engine's thread, whose numbers start anew."""
    again = HostOperation(
        name="MulBackward0", start=50, seconds=9, thread=ENGINE, sequence=1, backward=True, forward_thread=ENGINE
    )
    shares = attributed(
        ranges=[module("first", 0, 10), module("second", 32, 38, ENGINE)],
        operations=[
            op("aten::mul", 1, 5, sequence=1),
            node("CheckpointFunctionBackward", 30, 60, 2),
            op("aten::mul", 33, 34, thread=ENGINE, sequence=1),
            again,
            op("aten::mul", 51, 52, thread=ENGINE),
        ],
        launches=[launch(33.5, 1, ENGINE), launch(51.5, 2, ENGINE)],
        activities=[kernel(1), kernel(2)],
    )
    assert [where(share) for share in shares] == [("mul", "second", "backward"), ("mul", "second", "backward")]
    assert [share.place.recomputed for share in shares] == [True, False]


def test_phases_hold_on_every_thread_and_what_runs_outside_of_them_is_left_out() -> None:
    shares = attributed(
        ranges=[
            phase("forward", 0, 20),
            phase("backward", 20, 40),
            phase("optimizer", 40, 60),
            module("net", 0, 10),
            NamedRange(name="Optimizer.step#SGD.step", start=41, seconds=10, thread=MAIN),
        ],
        operations=[
            op("aten::mm", 1, 5),
            op("aten::nll_loss_forward", 11, 15),
            op("aten::ones_like", 21, 22),
            op("aten::_foreach_add_", 42, 50),
            op("aten::_amp_foreach_non_finite_check_and_unscale_", 52, 55),
            op("aten::copy_", 70, 75),
        ],
        launches=[launch(n, int(n)) for n in (2.0, 12.0, 21.5, 43.0, 53.0, 71.0)],
        activities=[kernel(n) for n in (2, 12, 21, 43, 53, 71)],
    )
    assert [where(share) for share in shares] == [
        ("mm", "net", "forward"),
        ("nll_loss_forward", "(loss)", "forward"),
        ("ones_like", "(loss)", "backward"),
        ("_foreach_add_", "(optimizer)", "optimizer"),
        ("_amp_foreach_non_finite_check_and_unscale_", "(optimizer)", "optimizer"),
    ]


def test_what_no_operation_claims_is_still_there() -> None:
    shares = attributed(
        ranges=[module("net", 0, 10)],
        operations=[op("aten::mm", 1, 2, identity=5), op("aten::add", 3, 4)],
        launches=[launch(5, 1), launch(20, 2)],
        # Launched in a module but outside of operations; outside of both; never seen; named by the operation itself.
        activities=[kernel(1), kernel(2), kernel(3), kernel(None), kernel(4, identity=5)],
    )
    assert [where(share) for share in shares] == [
        (None, "net", "forward"),
        (None, "(loss)", "forward"),
        (None, None, None),
        (None, None, None),
        ("mm", "net", "forward"),
    ]


def test_all_kernels_of_one_launch_share_its_operation() -> None:
    shares = attributed(
        operations=[op("my::graph", 0, 9)],
        launches=[launch(1, 1)],
        activities=[kernel(1), kernel(1), kernel(1)],
    )
    assert [share.operation for share in shares] == ["graph", "graph", "graph"]


def test_a_function_around_modules_does_not_claim_what_they_launch() -> None:
    shares = attributed(
        ranges=[module("net", 0, 100), module("net.inner", 20, 60)],
        operations=[op("CheckpointFunction", 10, 90), op("mylib::fast", 25, 50), op("helper", 26, 40)],
        launches=[launch(27, 1), launch(70, 2)],
        activities=[kernel(1), kernel(2)],
    )
    assert [where(share) for share in shares] == [
        ("fast", "net.inner", "forward"),
        ("CheckpointFunction", "net", "forward"),
    ]


def test_modules_of_torchs_own_ranges_are_named_from_outside_in() -> None:
    shares = attributed(
        ranges=[
            NamedRange(name="nn.Module: Net_0", start=0, seconds=50, thread=MAIN),
            NamedRange(name="nn.Module: Linear_1", start=10, seconds=20, thread=MAIN),
        ],
        operations=[op("aten::addmm", 11, 15)],
        launches=[launch(12, 1)],
        activities=[kernel(1)],
    )
    assert where(shares[0]) == ("addmm", "Net_0.Linear_1", "forward")


def test_without_any_module_everything_belongs_to_the_whole() -> None:
    events = Events(
        operations=(op("aten::mm", 0, 5, sequence=3), node("MmBackward0", 10, 20, 3), op("aten::mm", 11, 12, thread=1)),
        launches=(launch(1, 1), launch(11.5, 2, ENGINE)),
        activities=(kernel(1), kernel(2)),
    )
    assert [where(share) for share in attribute(events)] == [("mm", "", "forward"), ("mm", "", "backward")]


def test_host_time_goes_to_the_outermost_operation_that_an_estimate_counts() -> None:
    shares = attributed(
        ranges=[module("conv", 0, 20), module("fc", 20, 40)],
        operations=[
            op("aten::conv2d", 0, 10),  # 2 s of its own
            op("aten::convolution", 1, 9),
            op("aten::mkldnn_convolution", 2, 8),
            op("aten::linear", 20, 36),  # 16 - 10 - 3 = 3 s of its own
            op("aten::t", 21, 24),
            op("aten::transpose", 22, 23),
            op("aten::addmm", 25, 35),
            op("aten::flatten", 37, 39),
            op("aten::view", 38, 38.5),
        ],
    )
    assert [(*where(share), share.seconds) for share in shares] == [
        ("convolution", "conv", "forward", 10.0),
        ("addmm", "fc", "forward", 16.0),
        ("flatten", "fc", "forward", 2.0),
    ]


def test_the_engines_own_host_time_is_no_operations() -> None:
    shares = attributed(
        ranges=[module("a", 0, 10)],
        operations=[
            op("aten::mul", 0, 8, sequence=1),
            node("autograd::engine::evaluate_function: MulBackward0", 20, 40, 1, thread=MAIN),  # 20 - 15
            node("MulBackward0", 22, 37, 1, thread=MAIN),  # 15 - 12
            op("aten::mul", 24, 36),
        ],
    )
    assert [(*where(share), share.seconds) for share in shares] == [
        ("mul", "a", "forward", 8.0),
        ("mul", "a", "backward", 12.0),
        (None, None, "backward", 5.0),
        (None, None, "backward", 3.0),
    ]


def recorded(shares: Sequence[TimeShare]) -> RecordSet:
    return RecordSet(records_of(shares, Case(model="net")))


def test_records_are_one_per_call_with_the_time_of_all_its_kernels() -> None:
    records = recorded(
        attributed(
            ranges=[module("net", 0, 10)],
            operations=[op("aten::addmm", 1, 5), op("mylib::odd", 6, 9)],
            launches=[launch(2, 1), launch(3, 2), launch(7, 3)],
            activities=[kernel(1, 2.0), kernel(2, 1.0), kernel(3, 4.0), kernel(9, 1.0)],
        )
    )

    def facts(record: Record) -> tuple[object, ...]:
        timing = record.timing
        return record.scope, record.path, record.kind, record.name, record.phase, timing and timing.samples

    assert [facts(record) for record in records] == [
        ("op", "net", "matmul", "addmm", "forward", (3.0,)),
        ("op", "net", "other", "odd", "forward", (4.0,)),
        ("kernel", UNATTRIBUTED, "other", "kernel 9", None, (1.0,)),
        ("model", "", "", "", None, None),
    ]
    assert all(record.source == "profile" for record in records)
    assert all(record.timing is None or record.timing.origin == "profiler" for record in records)
    # 7 of 8 s.
    assert records.coverage.time_share == 0.875
    assert records.total().measured_seconds == 8.0
    assert any("87.5 % of 8.000 s device time" in note and "kernel 9 1.000 s" in note for note in records.notes)


def test_an_operation_of_an_unknown_module_is_not_covered() -> None:
    unknown = HostOperation(name="MulBackward0", start=30, seconds=9, thread=ENGINE, sequence=7, backward=True)
    records = recorded(
        attributed(
            ranges=[module("a", 0, 10)],
            operations=[op("aten::mul", 1, 5, sequence=7), unknown, op("aten::mul", 31, 32, thread=ENGINE)],
            launches=[launch(2, 1), launch(31.5, 2, ENGINE)],
            activities=[kernel(1, 3.0), kernel(2, 1.0)],
        )
    )
    assert [(record.scope, record.path) for record in records][:2] == [("op", "a"), ("op", UNATTRIBUTED)]
    assert records.coverage.time_share == 0.75


def test_nothing_seen_gives_no_record() -> None:
    assert list(recorded(())) == []


NAMES = ("aten::linear", "aten::addmm", "aten::view", "aten::conv2d", "MyFunction", "MulBackward0")


@st.composite
def calls(draw: st.DrawFn, low: int = 0, high: int = 64, depth: int = 4) -> list[HostOperation]:
    """Operations that nest: each within its parent, brothers one after another. Times are whole seconds."""
    found: list[HostOperation] = []
    start = low
    while start < high and draw(st.booleans()):
        begin = draw(st.integers(start, high - 1))
        end = draw(st.integers(begin + 1, high))
        name = draw(st.sampled_from(NAMES))
        if name.endswith("Backward0"):
            found.append(node(name, begin, end, draw(st.integers(0, 3)), thread=MAIN))
        else:
            found.append(op(name, begin, end, sequence=draw(st.integers(0, 3))))
        if depth and end - begin > 1:
            found += draw(calls(begin, end, depth - 1))
        start = end
    return found


@given(calls())
def test_host_time_is_neither_lost_nor_counted_twice(operations: list[HostOperation]) -> None:
    busy = set()
    for operation in operations:
        busy |= set(range(int(operation.start), int(operation.start + operation.seconds)))
    shares = attributed(operations=operations, ranges=[module("net", 0, 32)])
    assert sum(share.seconds for share in shares) == pytest.approx(len(busy))


@given(calls(), st.lists(st.tuples(st.integers(0, 70), st.integers(0, 9)), min_size=1, max_size=8))
def test_device_time_is_neither_lost_nor_counted_twice(
    operations: list[HostOperation], started: list[tuple[int, int]]
) -> None:
    shares = attributed(
        operations=operations,
        launches=[launch(at + 0.5, number) for number, (at, _) in enumerate(started)],
        activities=[kernel(number, float(seconds)) for number, (_, seconds) in enumerate(started)],
    )
    assert [share.seconds for share in shares] == [float(seconds) for _, seconds in started]
    assert sum(record.timing.median for record in recorded(shares) if record.timing) == sum(s for _, s in started)
