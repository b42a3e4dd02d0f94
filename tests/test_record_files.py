"""Record files: what is written comes back, damage is named, and no file is ever half written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflens.errors import OutputError, RecordFileError
from rooflens.records import (
    AS_IS,
    CAUSES,
    COMPUTE_RESOURCES,
    DATA_RESOURCES,
    DTYPES,
    FORMAT,
    MODES,
    PHASES,
    Call,
    Case,
    Ceiling,
    CeilingOrigin,
    Device,
    Environment,
    Fact,
    Failure,
    Floor,
    Memory,
    Origin,
    Record,
    RecordFile,
    Scope,
    Silicon,
    Source,
    Tensor,
    Timing,
    Work,
    read_records,
    write_atomically,
    write_records,
)

TEXT = st.text(max_size=12)
# JSON has one kind of number: whole numbers above 2^53 come back as the nearest float.
COUNTS = st.integers(0, 2**53)
AMOUNTS = COUNTS | st.floats(0, 1e300)
SECONDS = st.floats(0, 1e6)
SCALARS = st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT

CASES = st.builds(
    Case,
    model=TEXT,
    device=st.none() | TEXT,
    batch=st.none() | st.integers(1, 2**53),
    dtype=st.sampled_from([*DTYPES, AS_IS]),
    mode=st.sampled_from(MODES),
    options=st.lists(st.tuples(TEXT, SCALARS), max_size=3).map(tuple),
)
WORKS = st.builds(
    Work,
    flops=st.dictionaries(st.sampled_from(sorted(COMPUTE_RESOURCES)), AMOUNTS, max_size=3),
    bytes=st.dictionaries(st.sampled_from(sorted(DATA_RESOURCES)), AMOUNTS, max_size=3),
    origin=st.sampled_from(get_args(Origin)),
    missing=st.frozensets(TEXT, max_size=2),
)
TIMINGS = st.builds(
    Timing,
    samples=st.lists(SECONDS, min_size=1, max_size=5).map(tuple),
    origin=st.sampled_from(["cuda-events", "monotonic", "profiler", "ncu"]),
    cold=st.none() | SECONDS,
    warmup=st.lists(SECONDS, max_size=3).map(tuple),
)
TENSORS = st.builds(
    Tensor,
    shape=st.lists(st.integers(0, 2**20), max_size=4).map(tuple),
    dtype=st.sampled_from(["fp32", "bf16", "int64", "bool", "complex64", "quint4x2"]),
    nbytes=COUNTS,
)
DENSE = TENSORS.map(lambda t: Tensor(t.shape, "fp32", 4 * prod(t.shape)))
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
ARGUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT | TENSORS | DENSE,
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
CALLS = st.builds(
    Call,
    name=TEXT,
    arguments=st.lists(st.tuples(TEXT, ARGUMENTS), max_size=4).map(tuple),
    outputs=st.lists(TENSORS | DENSE, max_size=2).map(tuple),
    reads=COUNTS,
    writes=COUNTS,
    weight_reads=COUNTS,
)
MAYBE = st.none() | COUNTS
MEMORIES = st.builds(Memory, peak=COUNTS, parameters=MAYBE, activations=MAYBE, optimizer=MAYBE, reserved=MAYBE)
RECORDS = st.builds(
    Record,
    case=CASES,
    source=st.sampled_from(get_args(Source)),
    scope=st.sampled_from(get_args(Scope)),
    path=TEXT,
    kind=TEXT,
    name=TEXT,
    phase=st.none() | st.sampled_from(PHASES),
    work=st.none() | WORKS,
    kernel_work=st.none() | WORKS,
    floor=st.none() | st.builds(Floor, work=WORKS, cause=st.sampled_from(CAUSES), formula=TEXT),
    timing=st.none() | TIMINGS,
    call=st.none() | CALLS,
    calls=st.integers(1, 2**40),
    recomputed=st.booleans(),
    parameters=MAYBE,
    memory=st.none() | MEMORIES,
    notes=st.lists(TEXT, max_size=2).map(tuple),
)
FAILURES = st.builds(
    Failure,
    case=CASES,
    source=st.sampled_from(get_args(Source)),
    stage=TEXT,
    kind=st.sampled_from(["out of memory", "timeout", "crash", "unsupported", "error"]),
    message=TEXT,
)
DEVICES = st.builds(
    Device,
    name=TEXT,
    title=TEXT,
    vendor=TEXT,
    kind=TEXT,
    arch=TEXT,
    ceilings=st.lists(
        st.builds(
            Ceiling,
            resource=st.sampled_from(sorted(COMPUTE_RESOURCES | DATA_RESOURCES)),
            rate=st.floats(1, 1e20),
            silicon=st.sampled_from(get_args(Silicon)),
            origin=st.sampled_from(get_args(CeilingOrigin)),
            reference=TEXT,
            verified=st.booleans(),
            accumulate=st.none() | TEXT,
        ),
        max_size=3,
    ).map(tuple),
    facts=st.dictionaries(TEXT, st.builds(Fact, value=st.floats(0, 1e15), verified=st.booleans()), max_size=2),
    aliases=st.lists(TEXT, max_size=2).map(tuple),
    notes=TEXT,
    count=st.integers(1, 8),
)
ENVIRONMENTS = st.builds(
    Environment,
    rooflens=TEXT,
    created=TEXT,
    command=st.lists(TEXT, max_size=3).map(tuple),
    versions=st.dictionaries(TEXT, TEXT, max_size=3),
    machine=st.dictionaries(TEXT, SCALARS, max_size=3),
    flags=st.dictionaries(TEXT, SCALARS, max_size=3),
    commit=st.none() | TEXT,
)
FILES = st.builds(
    RecordFile,
    records=st.lists(RECORDS, max_size=5).map(tuple),
    failures=st.lists(FAILURES, max_size=2).map(tuple),
    devices=st.dictionaries(TEXT, DEVICES, max_size=2),
    environment=st.none() | ENVIRONMENTS,
)

CASE = Case(model="resnet18", batch=4, options=(("causal", True),))
RECORD = Record(case=CASE, source="estimate", scope="op", path="layer1.0", work=Work(flops={"matmul.fp32": 48}))
CONTENTS = RecordFile(records=(RECORD, RECORD))


@given(FILES)
def test_what_is_written_comes_back(contents: RecordFile) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        write_records(path, contents)
        assert read_records(path) == contents
        assert os.listdir(folder) == ["records.jsonl"]


def test_the_file_is_json_lines_with_a_header_and_each_case_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_records(path, CONTENTS)
    header, case, *records, end = [json.loads(line) for line in path.read_text().splitlines()]
    promised = {"records": 2, "failures": 0}
    assert header == {"type": "header", "format": FORMAT, **promised, "environment": None, "devices": {}}
    assert end == {"type": "end", **promised}
    assert case["type"] == "case"
    assert (case["number"], case["model"], case["options"]) == (0, "resnet18", [["causal", True]])
    assert [(entry["type"], entry["case"]) for entry in records] == [("record", 0), ("record", 0)]


def test_a_call_is_written_once_for_all_its_records(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    dense, spread = Tensor((2, 3), "fp32", 24), Tensor((2, 3), "fp32", 8)
    call = Call("masked_fill", (("self", dense), ("mask", spread), ("value", float("-inf"))), (dense,), 32, 24)
    records = tuple(Record(case=CASE, source="estimate", scope="op", path=p, call=call) for p in ("a", "b"))
    write_records(path, RecordFile(records=records))
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert [entry["type"] for entry in written] == ["header", "case", "call", "record", "record", "end"]
    assert written[2]["arguments"] == [
        ["self", {"fp32": [2, 3]}],
        ["mask", {"fp32": [2, 3], "nbytes": 8}],
        ["value", {"float": "-inf"}],
    ]
    assert [entry["call"] for entry in written[3:-1]] == [0, 0]
    assert read_records(path).records == records


def test_a_file_of_the_first_format_has_no_calls(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"type": "header", "format": 1, "environment": null, "devices": {}}\n'
        '{"type": "case", "number": 0, "model": "resnet18"}\n'
        '{"type": "record", "case": 0, "source": "estimate", "scope": "op", "name": "relu", "calls": 2}\n'
    )
    (record,) = read_records(path).records
    assert (record.name, record.calls, record.call) == ("relu", 2, None)


def test_unknown_is_left_out_and_zero_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    unknown = Record(case=CASE, source="estimate", scope="op")
    nothing = Record(case=CASE, source="estimate", scope="op", work=Work(bytes={"dram": 0}), parameters=0)
    write_records(path, RecordFile(records=(unknown, nothing)))
    assert '"work"' not in path.read_text().splitlines()[2]
    first, second = read_records(path).records
    assert (first.work, first.parameters) == (None, None)
    assert (second.work, second.parameters) == (Work(bytes={"dram": 0}), 0)


def test_counts_beyond_64_bits_survive(tmp_path: Path) -> None:
    # A training step of 10^13 parameters over 10^9 tokens: 6 * 10^22 FLOP, above 2^64.
    path = tmp_path / "a.jsonl"
    work = Work(flops={"matmul.bf16": 6 * 10**22})
    write_records(path, RecordFile(records=(Record(case=CASE, source="estimate", scope="model", work=work),)))
    assert read_records(path).records[0].work == Work(flops={"matmul.bf16": 6e22})


def test_folders_on_the_way_are_made_and_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deeper" / "a.jsonl"
    write_records(path, CONTENTS)
    write_records(path, RecordFile(records=()))
    assert read_records(path).records == ()


def test_a_new_file_has_the_permissions_that_others_have(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_atomically(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("step", ["fdopen", "chmod", "replace"])
@pytest.mark.parametrize(
    ("failure", "seen"),
    [(OSError(28, "No space left on device"), OutputError), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_a_crash_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, failure: BaseException, seen: type[BaseException]
) -> None:
    path = tmp_path / "a.jsonl"
    write_records(path, CONTENTS)

    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(seen):
        write_records(path, RecordFile(records=()))
    monkeypatch.undo()
    assert read_records(path) == CONTENTS
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "a.jsonl", tmp_path / "folder"):
        with pytest.raises(OutputError) as caught:
            write_records(path, CONTENTS)
        assert str(caught.value).startswith(f"cannot write {str(path)!r}: ")
        assert str(caught.value).endswith("choose another place with -o")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert os.listdir(tmp_path / "folder") == []


def damaged(tmp_path: Path, change: Callable[[list[str]], Any]) -> str:
    """The message for a file of header, case 0 and two records, after `change` to its lines."""
    path = tmp_path / "a.jsonl"
    write_records(path, CONTENTS)
    lines = path.read_text().splitlines(keepends=True)
    change(lines)
    path.write_text("".join(lines))
    with pytest.raises(RecordFileError) as caught:
        read_records(path)
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(str(path))


def put(number: int, text: str) -> Callable[[list[str]], None]:
    """Replaces a line, counted from 1 as in messages."""

    def change(lines: list[str]) -> None:
        lines[number - 1] = text + "\n"

    return change


@pytest.mark.parametrize(
    ("key", "doubled"),
    [
        ('"batch":', '"batch":1,"batch":'),
        ('"dtype":', '"dtype" : "fp16", "dtype":'),
        ('"type":', '"type":"case","type":'),
    ],
)
def test_a_key_that_stands_twice_is_an_error_with_its_line(tmp_path: Path, key: str, doubled: str) -> None:
    def double(lines: list[str]) -> None:
        assert key in lines[1]
        lines[1] = lines[1].replace(key, doubled)

    name = key.strip(':"')
    assert damaged(tmp_path, double).startswith(f", line 2: key {name!r} stands twice in one object, and which value")


def test_what_looks_like_a_key_within_a_text_is_none(tmp_path: Path) -> None:
    case = Case(model='{"batch": 1, "batch": 2}', batch=3)
    failure = Failure(case=case, source="measure", stage="forward", kind="error", message='"a":"a":')
    write_records(tmp_path / "a.jsonl", RecordFile(records=(), failures=(failure,)))
    assert read_records(tmp_path / "a.jsonl").failures == (failure,)


def test_a_file_cut_short(tmp_path: Path) -> None:
    def cut(lines: list[str]) -> None:
        del lines[4:]
        lines[3] = lines[3].rstrip()[:20]

    assert damaged(tmp_path, cut).startswith(", line 4: Input data was truncated; the file is damaged")


@pytest.mark.parametrize(
    ("left", "says"),
    [
        (4, "2 records promised, 2 found; the end mark is missing"),
        (3, "2 records promised, 1 found; the end mark is missing"),
        (1, "2 records promised, 0 found; the end mark is missing"),
    ],
)
def test_a_file_cut_at_the_end_of_a_line(tmp_path: Path, left: int, says: str) -> None:
    def cut(lines: list[str]) -> None:
        del lines[left:]

    assert damaged(tmp_path, cut) == f" was cut: {says}; copy or write it again"


def test_a_file_that_lost_a_line_or_got_another_file(tmp_path: Path) -> None:
    assert damaged(tmp_path, lambda lines: lines.pop(2)).startswith(" was cut: 2 records promised, 1 found; copy")
    assert "a line follows the end mark: another file was appended" in damaged(
        tmp_path, lambda lines: lines.extend(lines[:])
    )


def test_files_without_an_end_mark_are_still_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write_records(path, CONTENTS)
    header, *lines, _ = path.read_text().splitlines(keepends=True)
    for version in (1, 2, 3):
        older = json.loads(header) | {"format": version}
        del older["records"], older["failures"]
        path.write_text("".join((json.dumps(older) + "\n", *lines)))
        assert read_records(path) == CONTENTS
        assert len(read_records(path).doubts) == 2  # nobody knows whether it is whole; its two records are alike


def test_a_promise_is_held_whatever_format_the_header_says(tmp_path: Path) -> None:
    """Whole or not is what the numbers tell; a header was changed from 4 to 1 or 3, and lines are gone."""
    path = tmp_path / "a.jsonl"
    write_records(path, CONTENTS)
    lines = path.read_text().splitlines(keepends=True)
    for version in range(1, FORMAT):
        header = json.dumps(json.loads(lines[0]) | {"format": version}) + "\n"
        path.write_text("".join((header, *lines[1:])))
        assert read_records(path) == CONTENTS
        for left in (lines[1:3], lines[1:4], [*lines[1:3], lines[4]]):
            path.write_text("".join((header, *left)))
            with pytest.raises(RecordFileError, match="was cut: 2 records promised, "):
                read_records(path)


def test_an_end_mark_is_a_promise_too(tmp_path: Path) -> None:
    """Somebody made a header of format 1 by hand; the mark at the end still tells two records."""

    def put_header(lines: list[str]) -> None:
        lines[0] = '{"type": "header", "format": 1}\n'
        del lines[2]

    assert damaged(tmp_path, put_header) == " was cut: 2 records promised, 1 found; copy or write it again"
    other = damaged(tmp_path, lambda lines: lines.append(lines.pop().replace(":2", ":1")))
    assert other.startswith(", line 5: the end mark tells another number of records than the header")


def test_a_doubled_line_is_more_than_was_promised(tmp_path: Path) -> None:
    doubled = damaged(tmp_path, lambda lines: lines.insert(3, lines[3]))
    assert doubled == " holds more than was written: 2 records promised, 3 found; copy or write it again"


@pytest.mark.parametrize("value", ['"2"', "-1", "null", "2.5"])
def test_a_promise_that_is_no_number_is_not_held(tmp_path: Path, value: str) -> None:
    header = f'{{"type":"header","format":4,"records":{value},"failures":0}}'
    assert "the end mark tells another number of records than the header" in damaged(tmp_path, put(1, header))


CALL_LINE = (
    '{{"type": "call", "number": 0, "name": "relu", "arguments": [], "outputs": {outputs}, '
    '"reads": 0, "writes": 0, "weight_reads": 0}}'
)


@pytest.mark.parametrize(
    ("number", "text", "message"),
    [
        (3, "{oops}", ", line 3: JSON is malformed"),
        (3, "", ", line 3: "),
        (3, "[1, 2]", ", line 3: Expected `object`, got `array`"),
        (3, '{"type": "rekord"}', ", line 3: unknown kind of line 'rekord'"),
        (3, '{"case": 0}', ", line 3: unknown kind of line None"),
        (3, '{"type": "record", "case": 7}', ", line 3: no line before defines case 7"),
        (4, '{"type": "failure", "case": "x"}', ", line 4: no line before defines case x"),
        (4, '{"type": "record", "case": []}', ", line 4: "),
        (4, '{"type": "record", "case": 0, "call": 3}', ", line 4: no line before defines call 3"),
        (4, '{"type": "call", "number": 0}', ", line 4: no 'arguments' where one is expected"),
        (4, CALL_LINE.format(outputs="[{}]"), ", line 4: "),
        (4, CALL_LINE.format(outputs='[{"fp32": "2x3"}]'), ", line 4: Expected `array`, got `str`"),
        (4, CALL_LINE.format(outputs='[{"fp77": [2]}]'), ", line 4: a tensor of unknown type 'fp77' without its bytes"),
        (4, CALL_LINE.format(outputs="7"), ", line 4: Expected `array`, got `int`"),
        (4, '{"type": "record"}', ", line 4: no 'case' where one is expected"),
        (4, '{"type": "record", "case": 0}', ", line 4: Object missing required field `source`"),
        (4, '{"type": "record", "case": 0, "source": "guess", "scope": "op"}', ", line 4: Invalid enum value 'guess'"),
        (2, '{"type": "case", "model": "alexnet"}', ", line 2: no 'number' where one is expected"),
        (2, '{"type": "case", "number": 0, "model": 5}', ", line 2: Expected `str`, got `int` - at `$.model`"),
        (1, '{"type": "header", "format": 1, "devices": 5}', ", line 1: Expected `object`, got `int`"),
        (1, '{"type": "case"}', " is no rooflens record file"),
        (1, '{"type": "header"}', " is no rooflens record file"),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path: Path, number: int, text: str, message: str) -> None:
    assert damaged(tmp_path, put(number, text)).startswith(message)


def test_impossible_values_are_rejected_where_they_stand(tmp_path: Path) -> None:
    record = '{"type": "record", "case": 0, "source": "estimate", "scope": "op", '
    no_unit = damaged(tmp_path, put(4, record + '"work": {"flops": {"matmul.fp12": 1}}}'))
    assert no_unit.startswith(", line 4: unknown compute resource 'matmul.fp12'")
    negative = damaged(tmp_path, put(4, record + '"timing": {"samples": [-1.0], "origin": "monotonic"}}'))
    assert negative.startswith(", line 4: a timing holds a sample that is no duration: -1.0")


@pytest.mark.parametrize("beyond", [10**400, -(10**19)])
@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2, '{"type": "case", "number": 0, "model": "m", "batch": %d}'),
        (2, '{"type": "case", "number": 0, "model": "m", "options": [["seq_len", %d]]}'),
        (4, '{"type": "record", "case": 0, "source": "estimate", "scope": "model", "parameters": %d}'),
        (4, '{"type": "record", "case": 0, "source": "estimate", "scope": "model", "memory": {"peak": %d}}'),
    ],
)
def test_sizes_that_no_program_has_are_rejected(tmp_path: Path, number: int, text: str, beyond: int) -> None:
    assert f"line {number}: " in (told := damaged(tmp_path, put(number, text % beyond)))
    assert "cannot be" in told or "cannot have" in told


def test_json_nested_too_deep(tmp_path: Path) -> None:
    assert damaged(tmp_path, put(4, '{"type": ' + "[" * 100_000)).startswith(", line 4: ")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"type": "header", "format": 1}\n{"type": "\xff\xfe"}\n')
    with pytest.raises(RecordFileError, match=r"line 2: .utf-8. codec"):
        read_records(path)


def test_a_file_of_a_newer_version_says_what_to_do(tmp_path: Path) -> None:
    newer = damaged(tmp_path, put(1, json.dumps({"type": "header", "format": FORMAT + 1, "devices": "elsewhere"})))
    assert newer == f" has record format {FORMAT + 1}, this rooflens reads up to {FORMAT}: pip install -U rooflens"


def test_an_empty_file(tmp_path: Path) -> None:
    assert damaged(tmp_path, list.clear) == " is empty: a record file begins with a header line"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(RecordFileError, match=r"cannot read '.*none\.jsonl': No such file"):
        read_records(tmp_path / "none.jsonl")
    with pytest.raises(RecordFileError, match=r"cannot read '.*': Is a directory"):
        read_records(tmp_path)


def test_what_an_optimizer_needs_is_a_floor_also_in_older_files(tmp_path: Path) -> None:
    # Up to format 4 the kernel's work of an optimizer's operation was what every form needs of it.
    written, least = Work(flops={"vector.fp32": 4}, bytes={"dram": 48}), Work(bytes={"dram": 8})
    shared: dict[str, Any] = {"case": Case(model="net"), "source": "estimate", "scope": "op", "work": written}
    records = [Record(**shared, phase=phase, kernel_work=least) for phase in ("optimizer", "forward")]
    write_records(tmp_path / "new.jsonl", RecordFile(records=tuple(records)))
    old = (tmp_path / "new.jsonl").read_text().replace(f'"format":{FORMAT}', '"format":4', 1)
    (tmp_path / "old.jsonl").write_text(old)
    step, call = read_records(tmp_path / "old.jsonl").records
    assert step == Record(**shared, phase="optimizer", floor=Floor(work=least, cause="optimizer passes"))
    assert (step.bound_work, step.written) == (least, written)
    assert call == records[1]
