"""Record files of which nobody can tell whether they are whole, that hold nothing, or that an editor saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import FileError, InvalidValue, RecordFileError
from rooflens.records import Case, Ceiling, Device, Failure, Record, Timing, Work

CASE = Case(model="resnet18", device="mine", batch=4)
ESTIMATE = Record(case=CASE, source="estimate", scope="op", path="layer1", work=Work(flops={"vector.fp32": 48}))
MEASURED = Record(
    case=CASE, source="measure", scope="model", timing=Timing(samples=(0.25, 0.5, 0.75), origin="monotonic")
)
KERNEL = Record(case=CASE, source="counters", scope="kernel", name="gemm", timing=Timing(samples=(1e-3,), origin="ncu"))
MINE = Device(
    name="mine", title="Mine", vendor="v", kind="cpu", arch="a", facts={},
    ceilings=(
        Ceiling(resource="vector.fp32", rate=1e12, silicon="fma", origin="user", reference="told"),
        Ceiling(resource="dram", rate=1e11, silicon="memory", origin="user", reference="told"),
    ),
)  # fmt: skip
UNTOLD = "record files of format {} do not tell how many records they hold: if this one was cut"
TWICE = "records that repeat another one to the last digit: 1, which cannot be two observations"


def lines_of(path: Path, *records: Record) -> list[str]:
    rl.RecordSet(records, devices={"mine": MINE}).save(path)
    return path.read_text().splitlines(keepends=True)


def older(path: Path, version: int, *records: Record) -> list[str]:
    """The lines of a file as an older format had them."""
    header, *lines, _ = lines_of(path, *records)
    plain = json.loads(header) | {"format": version}
    del plain["records"], plain["failures"]
    return [json.dumps(plain) + "\n", *lines]


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(cli, [str(each) for each in arguments])
    return (done.exit_code or int(done.exception is not None)), f"{done.output}{done.exception or ''}"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_format_without_an_end_mark_says_that_nobody_knows_whether_a_file_is_whole(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(older(path, version, ESTIMATE, MEASURED)[:-1]))  # cut at the end of a line
    records = rl.read(path)
    assert len(records) == 1
    assert records.notes[0].startswith(UNTOLD.format(version))
    assert rl.check(records).notes[-1].startswith(UNTOLD.format(version))
    assert UNTOLD.format(version)[:40] in rl.table(records, width=500)
    lines_of(path, ESTIMATE, MEASURED)
    assert rl.read(path).notes == ()


def test_an_old_and_a_new_file_of_one_estimate_are_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_text("".join(older(old, 3, ESTIMATE)))
    lines_of(new, ESTIMATE)
    assert len(rl.read(old, new)) == 1
    lines_of(new, Record(case=CASE, source="estimate", scope="op", work=Work(flops={"vector.fp32": 49})))
    with pytest.raises(InvalidValue, match="two different estimates"):
        rl.read(old, new)


def test_a_doubled_line_is_named(tmp_path: Path) -> None:
    """48 FLOP stand there, and 96 are summed; of two kernels alike nobody can tell."""
    path = tmp_path / "a.jsonl"
    lines = older(path, 1, ESTIMATE)
    path.write_text("".join([*lines, lines[-1]]))
    records = rl.read(path)
    assert records.total().flops == 96
    assert records.notes[1].startswith(TWICE)
    assert any(TWICE in note for note in rl.check(records).notes)
    lines = older(path, 3, KERNEL)
    path.write_text("".join([*lines, lines[-1]]))
    assert "records of kernels that repeat another one" in rl.read(path).notes[1]
    assert "are launches alike, or doubled lines" in rl.read(path).notes[1]


def test_a_doubled_measurement_is_a_doubt_and_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = older(path, 2, MEASURED)
    path.write_text("".join([*lines, lines[-1]]))
    records = rl.read(path)
    assert [doubt for record in records for doubt in record.doubts] == [records.notes[1]]
    (finding,) = [each for each in rl.check(records) if each.code == "identical-measurements"]
    assert finding.message.startswith("2 measurements have the same samples to the last digit")
    lines_of(path, MEASURED)
    again = rl.check(path, path)  # the same file twice
    assert [each.code for each in again].count("identical-measurements") == 1
    assert "identical-measurements" not in [each.code for each in rl.check(path)]


@pytest.mark.parametrize("version", [1, 3])
def test_a_header_alone_is_no_success(tmp_path: Path, version: int) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(older(path, version, ESTIMATE)[0])
    for arguments in (("check", path), ("plot", path, "-o", tmp_path / "a.png"), ("read", path)):
        code, said = run(*arguments)
        assert code, arguments
        assert "a.jsonl holds no record: only its header is there" in said
    assert not (tmp_path / "a.png").exists()
    path.write_text("".join(lines_of(path, ESTIMATE)[:1]))
    with pytest.raises(RecordFileError, match="was cut: 1 records promised, 0 found"):
        rl.read(path)


def test_a_file_that_holds_only_roofs_says_so_and_one_of_failures_is_nothing_to_draw(tmp_path: Path) -> None:
    path, picture = tmp_path / "a.jsonl", tmp_path / "a.svg"
    lines_of(path)
    code, said = run("plot", path, "-o", picture)
    assert code == 0
    assert "holds no records: of it only ceilings can be drawn" in said
    assert picture.exists()
    code, said = run("check", path)
    assert code == 1
    assert "there is nothing to check: the sources hold no record and no reported figure" in said
    failure = Failure(case=CASE, source="measure", stage="forward", kind="out of memory", message="no room")
    rl.RecordSet((), devices={"mine": MINE}, failures=[failure]).save(path)
    for arguments in (("check", path), ("plot", path, "-o", tmp_path / "b.svg")):
        code, said = run(*arguments)
        assert code == 1
        assert "only 1 failures" in said
    assert not (tmp_path / "b.svg").exists()
    rl.RecordSet(()).save(path)
    with pytest.raises(FileError, match="holds no record: only its header"):
        rl.read(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_that_an_editor_saved_its_own_way(tmp_path: Path, encoding: str, end: str) -> None:
    """Names beyond ASCII tell whether the text was decoded."""
    path = tmp_path / "a.jsonl"
    record = Record(case=CASE, source="estimate", scope="op", path="sch\u00f6n\u2028", work=ESTIMATE.work)
    text = "".join(lines_of(path, record)) + "\n \n"
    path.write_bytes(text.replace("\n", end).encode(encoding))
    assert rl.read(path).records == (record,)
    other = path.rename(tmp_path / "a.txt")  # recognised by what is in it
    assert rl.read(other).records == (record,)


def test_utf_16_without_a_mark_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    text = "".join(lines_of(path, ESTIMATE))
    for encoding in ("utf-16-le", "utf-16-be"):
        path.write_bytes(text.encode(encoding))
        with pytest.raises(RecordFileError, match=r"no text in UTF-8 but seems to be one in UTF-16: write it again"):
            rl.read(path)
    path.write_bytes(text.encode("utf-16")[:-1])
    with pytest.raises(RecordFileError, match=r"its text in UTF-16 cannot be decoded"):
        rl.read(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_trace_may_have_a_mark_of_its_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
    path.write_text(json.dumps({"traceEvents": [event]}), encoding=encoding)
    (record,) = [record for record in rl.read(path) if record.scope != "model"]
    assert record.seconds == pytest.approx(2e-6)
    path.write_bytes(path.read_bytes() + b"\xff")
    with pytest.raises(FileError, match=r"cannot be decoded|is no Chrome trace"):
        rl.read(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_typed_files_may_have_a_mark_of_their_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "figures.csv"
    path.write_text("quantity,value,unit\nperformance,5,TFLOP/s\n", encoding=encoding)
    assert [finding.code for finding in rl.check(path)] == []
    path.write_bytes(path.read_bytes() + b"\xff")
    with pytest.raises(FileError, match=r"no text in UTF-(8|16) .*; save it in UTF-8"):
        rl.check(path)
