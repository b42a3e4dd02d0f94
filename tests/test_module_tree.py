"""The module tree: totals of everything below, collapsible by depth."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.table_samples import both, device, estimated, operation, trained

import rooflens as rl
from rooflens.errors import AmbiguousResult, InvalidValue
from rooflens.records import Case, Record, Timing, TracedModule, Work
from rooflens.report.module_tables import layer_table, module_tree
from rooflens.report.module_tree import Module, modules
from rooflens.report.part_tables import part_table
from rooflens.report.table import Table
from rooflens.results import RecordSet, Total, join

CASE = Case(model="net", device="toy")


def column(table: Table, key: str) -> list[object]:
    place = [c.key for c in table.columns].index(key)
    return [row[place].value for row in table.rows]


def test_a_module_holds_its_own_operations_and_those_below_it() -> None:
    table = module_tree(trained())
    assert column(table, "path") == ["", "features", "features.0", "features.1", "head", "(loss)", "(optimizer)"]
    assert column(table, "depth") == [0, 1, 2, 2, 1, 0, 0]
    # convolution: 6,496 forward, 40,000 backward, 6,496 recomputed; relu 8,192 + 12,288; linear 24,696 + 20,000.
    assert column(table, "dram_bytes") == [118_168, 73_472, 52_992, 20_480, 44_696, 400, 106_920]
    assert column(table, "matmul_flops") == [195_776, 135_296, 135_296, 0, 60_480, 0, 0]
    assert column(table, "recomputed_flops") == [55_296, 55_296, 55_296, 0, 0, 0, 0]
    assert column(table, "calls") == [7, 5, 3, 2, 2, 2, 1]
    # Bounds in us. convolution 55.296 + 80 + 55.296; relu 10.24 + 12.288; linear 24.696 + 40; loss 0.16 + 0.4.
    assert column(table, "seconds") == pytest.approx(
        [277.816e-6, 213.12e-6, 190.592e-6, 22.528e-6, 64.696e-6, 0.56e-6, 213.84e-6]
    )
    whole = 277.816 + 0.56 + 213.84
    assert column(table, "share") == pytest.approx(
        [n / whole for n in (277.816, 213.12, 190.592, 22.528, 64.696, 0.56, 213.84)]
    )
    assert column(table, "own_seconds") == [None, None, *column(table, "seconds")[2:]]


def timed(path: str, kind: str, calls: int = 1, *, source: str = "profile") -> Record:
    timing = Timing(samples=(1e-3,), origin="profiler")
    return Record(case=CASE, source=source, scope="op", path=path, kind=kind, name=kind, calls=calls, timing=timing)  # type: ignore[arg-type]


def test_a_trace_that_tells_only_times_has_calls_and_counts_no_work() -> None:
    """What `read trace.json --by module` shows: 1 + 3 calls, and nothing of work or bounds."""
    (item,) = join(RecordSet([timed("a", "linear"), timed("b", "copy", 3)]))
    table = layer_table([item])
    assert column(table, "path") == ["", "a", "b"]
    assert column(table, "calls") == [4, 1, 3]
    assert table.notes == ()


def test_calls_by_module_are_those_by_family() -> None:
    linear = operation(CASE, "a", "linear", Work(flops={"matmul.fp32": 10}, bytes={"dram": 1}), calls=5)
    # The profile times the 5 calls too, and 2 copies that no estimate has: 7 calls.
    beside = RecordSet([linear, timed("a", "linear", 5), timed("b", "copy", 2)])
    # Of one source: 5 calls with work and time, and 2 with only a time.
    same = RecordSet([replace(timed("a", "linear", 5), work=linear.work), timed("b", "linear", 2)])
    for records in (beside, same):
        items = join(records)
        table = layer_table(items)
        assert column(table, "path") == ["", "a", "b"]
        assert column(table, "calls") == [7, 5, 2]
        assert sum(column(part_table(items, "family"), "calls")) == 7  # type: ignore[arg-type]
        assert column(layer_table(items, flat=True), "calls") == [5, 2]


def test_depth_hides_modules_but_not_their_work() -> None:
    whole, top, model = module_tree(trained()), module_tree(trained(), depth=1), module_tree(trained(), depth=0)
    assert column(top, "path") == ["", "features", "head", "(loss)", "(optimizer)"]
    assert column(model, "path") == ["", "(loss)", "(optimizer)"]
    for table in (top, model):
        kept = [column(whole, "path").index(path) for path in column(table, "path")]
        assert column(table, "seconds") == [column(whole, "seconds")[i] for i in kept]
    assert top.notes[0] == "depth 1 of 2: what lies deeper is in the totals of these modules"
    assert not any(note.startswith("depth") for note in whole.notes)


def test_a_phase_keeps_the_order_of_the_forward_pass() -> None:
    table = module_tree(trained(), phase="backward")
    assert column(table, "path") == ["", "features", "features.0", "features.1", "head", "(loss)"]
    assert column(module_tree(trained(), phase="optimizer"), "path") == ["(optimizer)"]


def test_work_in_the_root_itself_is_in_its_total() -> None:
    records = [
        operation(CASE, "", "elementwise", Work(flops={"vector.fp32": 7}, bytes={"dram": 1})),
        operation(CASE, "a", "linear", Work(flops={"matmul.fp32": 10}, bytes={"dram": 1}), calls=3),
    ]
    table = module_tree(RecordSet(records))
    assert column(table, "path") == ["", "(itself)", "a"]
    assert column(table, "flops") == [37, 7, 30]
    assert column(table, "own_flops") == [7, None, 30]  # which add up too
    assert column(table, "calls") == [4, 1, 3]
    assert column(table, "seconds") == [None, None, None]
    assert column(module_tree(RecordSet(records), depth=0), "path") == [""]


def test_what_a_module_does_beside_those_in_it_is_a_row_below_it() -> None:
    """Of block a: 5 FLOP of its own, 10 of its layer; b works alone, though it has a child that does nothing."""
    records = RecordSet(
        [
            operation(CASE, path, "any", Work(flops={"vector.fp32": flops}, bytes={"dram": 1}))
            for path, flops in (("a", 5), ("a.x", 10), ("b", 7))
        ]
    )
    held = tuple(TracedModule(path=path, kind="M", parameters=n) for path, n in (("a", 2), ("a.x", 3), ("b.y", 4)))
    table = module_tree(records.with_records(replace(r, modules=held) for r in records))
    assert column(table, "path") == ["", "a", "a (itself)", "a.x", "b"]
    assert column(table, "depth") == [0, 1, 2, 2, 1]
    assert column(table, "flops") == [22, 15, 5, 10, 7]


def test_a_module_of_which_a_part_is_uncounted_is_a_lower_bound() -> None:
    records = [
        operation(CASE, "a.x", "linear", Work(flops={"matmul.fp32": 10}, bytes={"dram": 1})),
        operation(CASE, "a.y", "", Work(bytes={"dram": 1}, missing=frozenset({"odd"}))),
        operation(CASE, "b", "linear", Work(flops={"matmul.fp32": 10}, bytes={"dram": 1})),
    ]
    table = module_tree(RecordSet(records))
    place = [c.key for c in table.columns].index("flops")
    assert [(row[place].value, row[place].sign, row[place].label) for row in table.rows] == [
        (20, ">=", None),
        (10, ">=", None),
        (10, "", None),
        (0, "", "-"),
        (10, "", None),
    ]


def test_bad_questions_are_answered_with_what_is_known() -> None:
    with pytest.raises(InvalidValue, match=r"depth -1 is negative"):
        rl.table(estimated(), depth=-1)
    with pytest.raises(InvalidValue, match=r"no phase 'backward'; they have: forward"):
        module_tree(estimated(), phase="backward")
    with pytest.raises(AmbiguousResult, match="2 sources"):
        module_tree(both())


names = st.sampled_from(["a", "b", "0", "1", "layer"])
paths = st.one_of(
    st.lists(names, max_size=5).map(".".join), st.sampled_from(["(loss)", "(optimizer)"]), st.text(max_size=6)
)
works = st.builds(
    lambda matmul, vector, dram: Work(flops={"matmul.fp32": matmul, "vector.fp32": vector}, bytes={"dram": dram}),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
)
operations = st.builds(
    lambda path, work, calls, again: operation(CASE, path, "any", work, calls=calls, recomputed=again),
    paths,
    works,
    st.integers(1, 3),
    st.booleans(),
)


def amount(records: list[Record]) -> tuple[float, float, float, float]:
    total = Total(records, device())
    return total.flops or 0, total.recomputed_flops, total.bytes.get("dram", 0), total.seconds or 0.0


@given(st.lists(operations, max_size=12))
def test_own_and_children_make_the_parent_and_the_top_makes_the_flat_total(records: list[Record]) -> None:
    tops = modules(RecordSet(records))
    for module in (m for top in tops for m in top.walk()):
        parts = [amount(module.own), *(amount(child.records()) for child in module.children.values())]
        assert amount(module.records()) == pytest.approx([sum(part[i] for part in parts) for i in range(4)])
    everything = [sum(amount(top.records())[i] for top in tops) for i in range(4)]
    assert everything == pytest.approx(list(amount(records)))
    assert sorted(map(id, records)) == sorted(id(r) for top in tops for r in top.records())


def test_a_path_deeper_than_the_interpreter_recurses() -> None:
    deep = ".".join(["m"] * 3000)
    (root,) = modules(RecordSet([operation(CASE, deep, "linear", Work(flops={"matmul.fp32": 1}, bytes={"dram": 1}))]))
    *_, last = root.walk()
    assert isinstance(last, Module)
    assert (last.path, last.depth) == (deep, 3000)
