"""Exports of Nsight Systems: kernels and copies by what launched them, any version of the schema, and no trust."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.nsys_samples import BACKWARD, FORWARD, PROCESS, SCHEMA, TITLE, TRAINING, Row, call, database, kernel, pushed

import rooflens as rl
from rooflens.cli.main import cli
from rooflens.errors import FileError
from rooflens.results import UNATTRIBUTED

KERNEL, RUNTIME, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profile.sqlite"


def kernels(path: Path, **options: Any) -> list[rl.Record]:
    return [record for record in rl.read(path, **options) if record.scope == "kernel"]


def seconds(record: rl.Record) -> float:
    assert record.timing is not None
    return record.timing.median


def test_a_training_step_is_read_to_modules_phases_and_operations(path: Path) -> None:
    """Durations are differences of the rows; places are those of the ranges around the rows of the runtime table."""
    found = kernels(database(path, TRAINING))
    assert [(r.name, seconds(r), r.path, r.phase, r.operation) for r in found] == [
        ("Memcpy HtoD", 1e-6, UNATTRIBUTED, None, ""),
        ("void gemm<float>(int)", 3e-6, "net.fc", "forward", "addmm"),
        ("relu", pytest.approx(0.5e-6), "net.fc", "forward", "relu"),
        ("wgrad", 4e-6, "net.fc", "backward", "mm"),
        ("sgd", pytest.approx(0.25e-6), "(optimizer)", "optimizer", "_foreach_add_"),
        ("relu", pytest.approx(0.125e-6), UNATTRIBUTED, None, ""),
    ]
    assert {r.case.mode for r in found} == {"train"}
    assert {r.case.device for r in found} == {"h200-sxm-141gb"}


def test_what_a_sum_of_times_does_not_tell_is_a_note(path: Path) -> None:
    overlapping = {**TRAINING, KERNEL: [kernel(2_000, 5_000, 11, 1), kernel(4_000, 6_000, 12, 3, stream=13)]}
    notes = rl.read(database(path, overlapping)).notes
    # The copy took 1 us, the kernels 3 us and 2 us, of which they shared 1 us.
    assert (
        notes[0]
        == "busy time 5.000 us, sum of times 6.000 us: 3 kernels, copies and fills on streams 7, 13, taken as one step"
    )
    assert "1 NVTX ranges have no end and are left out" in notes


def test_without_ranges_place_and_phase_stay_unknown(path: Path) -> None:
    rows = {KERNEL: TRAINING[KERNEL], RUNTIME: TRAINING[RUNTIME]}
    found = kernels(database(path, rows))
    assert {(r.path, r.phase, r.operation) for r in found} == {("", None, "")}
    assert {r.case.device for r in found} == {None}
    assert {r.path for r in kernels(database(path.with_name("b"), {KERNEL: TRAINING[KERNEL]}))} == {UNATTRIBUTED}


def test_ranges_of_a_user_are_modules_and_phases(path: Path) -> None:
    """As for counter files: a phase by its plain name, and every other range a module."""
    ranges = [
        pushed(0, 3_000, "Forward"),
        pushed(1_100, 1_300, "layer1"),
        pushed(1_400, 1_495, "layer2"),
        pushed(1_401, 1_494, "started elsewhere", kind=60),
    ]
    found = kernels(database(path, {KERNEL: TRAINING[KERNEL][:2], RUNTIME: TRAINING[RUNTIME], NVTX: ranges}))
    assert [(r.path, r.phase) for r in found] == [("layer1", "forward"), ("layer2", "forward")]


def test_a_namespace_is_an_operation_only_where_torch_wrote_ranges(path: Path) -> None:
    ranges = [pushed(1_100, 1_300, "Solver::step")]
    (found,) = kernels(database(path, {KERNEL: TRAINING[KERNEL][:1], RUNTIME: TRAINING[RUNTIME], NVTX: ranges}))
    assert (found.path, found.operation, found.phase) == ("Solver::step", "", None)


def test_older_numbers_of_nodes_lead_to_modules_too(path: Path) -> None:
    ranges = [
        pushed(1_100, 1_500, "fc"),
        pushed(1_200, 1_300, "aten::addmm, seq = 5"),
        pushed(6_060, 6_290, "autograd::engine::evaluate_function: MmBackward, stashed seq=5, seq=0", thread=BACKWARD),
    ]
    rows = {KERNEL: TRAINING[KERNEL][2:3], RUNTIME: TRAINING[RUNTIME], NVTX: ranges}
    (found,) = kernels(database(path, rows))
    assert (found.name, found.path, found.phase) == ("wgrad", "fc", "backward")


def test_names_of_ranges_may_be_registered(path: Path) -> None:
    registered = (1_100, 1_300, 59, None, FORWARD, None, 2, 0)
    found = kernels(database(path, {KERNEL: TRAINING[KERNEL][:1], RUNTIME: TRAINING[RUNTIME], NVTX: [registered]}))
    assert [r.path for r in found] == ["gemm"]


def test_processes_that_count_alike_are_told_apart(path: Path) -> None:
    other = PROCESS + (1 << 24)
    rows = {
        KERNEL: [kernel(5_000, 6_000, 1, 1), (*kernel(7_000, 9_000, 1, 3)[:6], other, 3, 3)],
        RUNTIME: [call(100, 200, 1), call(100, 200, 1, thread=other | 9)],
        NVTX: [pushed(50, 300, "first"), pushed(50, 300, "second", thread=other | 9)],
    }
    assert [(r.path, seconds(r)) for r in kernels(database(path, rows))] == [("first", 1e-6), ("second", 2e-6)]


def test_an_older_schema_without_processes_is_read_and_guesses_nothing(path: Path) -> None:
    schema = {
        "StringIds": SCHEMA["StringIds"],
        KERNEL: "start INT, end INT, deviceId INT, streamId INT, correlationId INT, shortName INT",
        RUNTIME: "start INT, end INT, globalTid INT, correlationId INT, nameId INT",
        NVTX: "start INT, end INT, eventType INT, text TEXT, globalTid INT",
    }
    ranges: list[Row] = [(50, 300, 59, "first", FORWARD), (50, 300, 59, "second", BACKWARD)]
    rows: dict[str, list[Row]] = {
        KERNEL: [(5_000, 6_000, 0, 7, 1, 2), (6_000, 8_000, 0, 7, 2, 3)],
        RUNTIME: [(100, 110, FORWARD, 1, 4), (120, 130, FORWARD, 2, 4), (120, 130, BACKWARD, 2, 4)],
        NVTX: ranges,
    }
    found = kernels(database(path, rows, schema))
    assert [(r.name, r.path) for r in found] == [("gemm", "first"), ("relu", UNATTRIBUTED)]


def test_each_gpu_has_a_case_of_its_own(path: Path) -> None:
    """Times of two cards overlap, and are never added."""
    rows: dict[str, list[Row]] = {
        KERNEL: [kernel(0, 1_000, None, 1), kernel(0, 4_000, None, 1, device=1)],
        "TARGET_INFO_GPU": [(0, 0, TITLE, "", 9), (0, 1, "Tesla T4", "", 7)],
        "TARGET_INFO_CUDA_DEVICE": [(1, 0, 1), (0, 1, 1)],
    }
    records = rl.read(database(path, rows))
    assert [(case.device, case.options) for case in records.cases] == [
        ("tesla-t4", (("gpu", 0),)),
        ("h200-sxm-141gb", (("gpu", 1),)),
    ]
    assert [part.total().measured_seconds for _, _, part in records.split()] == [1e-6, 4e-6]


def test_graphs_copies_and_fills_have_names(path: Path) -> None:
    common = (0, 1, 7, None, PROCESS)
    rows = {
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [(0, 10, *common, 3, 4)],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [(20, 30, *common, 1, 2), (30, 40, *common, 1, 11), (40, 50, *common, 1, 99)],
        "CUPTI_ACTIVITY_KIND_MEMSET": [(50, 60, *common, 0, 1)],
    }
    found = rl.read(database(path, rows))
    assert [r.name for r in found if r.scope == "kernel"] == [
        "CUDA graph 3",
        "Memcpy DtoH",
        "Memcpy HtoD (unified memory)",
        "Memcpy",
        "Memset",
    ]
    assert any("CUDA graphs were traced as wholes" in note for note in found.notes)


def test_the_command_shows_a_database(path: Path) -> None:
    done = CliRunner().invoke(cli, ["read", str(database(path, TRAINING)), "--format", "csv"])
    assert done.exit_code == 0, done.output
    assert "h200-sxm-141gb" in done.output


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        (KERNEL, "UPDATE {} SET start = 'soon' WHERE rowid = 2", "row 2, column start holds 'soon', which is no whole"),
        (KERNEL, "UPDATE {} SET end = 5.5 WHERE rowid = 1", "row 1, column end holds 5.5"),
        (KERNEL, "UPDATE {} SET end = 1 WHERE rowid = 1", f"table {KERNEL} has an event from 2000 to 1 ns"),
        (KERNEL, "UPDATE {} SET demangledName = 77", "names text 77, which table StringIds does not hold"),
        (KERNEL, "ALTER TABLE {} DROP COLUMN end", f"table {KERNEL} has no column 'end'; it has start, deviceId"),
        (KERNEL, "ALTER TABLE {} RENAME COLUMN start TO begin", f"table {KERNEL} has no column 'start'"),
        (RUNTIME, "UPDATE {} SET globalTid = 'main' WHERE rowid = 1", "row 1, column globalTid holds 'main'"),
        (NVTX, "UPDATE {} SET text = 5.5 WHERE rowid = 3", "no text"),
        ("StringIds", "DROP TABLE {}", "which table StringIds does not hold"),
        ("StringIds", "UPDATE {} SET value = x'00' WHERE id = 1", "column value holds"),
    ],
)
def test_a_damaged_row_is_an_error_that_names_it(path: Path, table: str, change: str, message: str) -> None:
    with closing(sqlite3.connect(database(path, TRAINING, LOOSE))) as connection:
        connection.execute(change.format(table))
        connection.commit()
    with pytest.raises(FileError, match=r"profile\.sqlite") as caught:
        rl.read(path)
    assert message in str(caught.value)


LOOSE = {table: columns.replace(" NOT NULL", "").replace("text TEXT", "text") for table, columns in SCHEMA.items()}
"""Without the constraints that a real export has, by which SQLite itself would find a damage."""


def test_a_kernel_table_without_names_is_an_error(path: Path) -> None:
    schema = SCHEMA | {KERNEL: "start INT, end INT, deviceId INT"}
    with pytest.raises(FileError, match="no column with names of kernels"):
        rl.read(database(path, {KERNEL: [(0, 1, 0)]}, schema))


def test_other_databases_are_told_apart(path: Path) -> None:
    with pytest.raises(FileError, match="no export of Nsight Systems"):
        rl.read(database(path, {"t": [(1,)]}, {"t": "a"}))
    with pytest.raises(FileError, match="holds no kernel and no copy; profile with 'nsys profile --trace=cuda"):
        rl.read(database(path.with_name("b"), {NVTX: [pushed(0, 1, "a")]}))


def test_a_cut_or_unfinished_database_is_an_error(path: Path) -> None:
    whole = database(path, TRAINING).read_bytes()
    path.write_bytes(whole[:-4096])
    with pytest.raises(FileError, match="is cut: it has"):
        rl.read(path)
    path.write_bytes(whole)
    path.with_name(path.name + "-wal").write_bytes(b"rows that nobody wrote back")
    with pytest.raises(FileError, match="was not closed by its writer"):
        rl.read(path)


ENDLESS = f"""
    DROP TABLE {KERNEL};
    CREATE VIEW {KERNEL} AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
    SELECT i AS start, i AS end, 1 AS shortName FROM n
"""
"""A view that never ends, in place of the table."""
COMPUTED = f"""
    DROP TABLE {KERNEL};
    CREATE TABLE {KERNEL} (end INT, shortName INT, start AS (length(zeroblob(end))));
    INSERT INTO {KERNEL} VALUES (900000000, 1)
"""
"""A table that runs a function whenever it is read."""
FOREIGN = f"""
    PRAGMA writable_schema = 1;
    UPDATE sqlite_master SET sql = 'CREATE VIRTUAL TABLE {KERNEL} USING csv(/etc/passwd)' WHERE name = '{KERNEL}'
"""
"""A table that another program would have to provide."""


@pytest.mark.parametrize("script", [ENDLESS, COMPUTED, FOREIGN])
def test_nothing_in_a_database_is_run(path: Path, script: str) -> None:
    with closing(sqlite3.connect(database(path, TRAINING))) as connection:
        connection.executescript(script)
        connection.commit()
    with pytest.raises(FileError, match=r"profile\.sqlite"):
        rl.read(path)


def test_a_tree_that_leads_in_circles_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many steps as a file of its size can need; here after none."""
    monkeypatch.setattr("rooflens.sources.profile.nsys.database._STEPS", 0)
    monkeypatch.setattr("rooflens.sources.profile.nsys.database._STEPS_PER_BYTE", 0)
    monkeypatch.setattr("rooflens.sources.profile.nsys.database._SLICE", 1)
    with pytest.raises(FileError, match="cannot be read: interrupted"):
        rl.read(database(path, TRAINING))


def test_any_name_of_a_file_will_do(path: Path) -> None:
    odd = path.with_name("what? 100%23 #1.sqlite")
    assert len(kernels(database(odd, TRAINING))) == 6
    packed = path.with_name("packed.sqlite.gz")
    packed.write_bytes(gzip.compress(odd.read_bytes()))
    with pytest.raises(FileError, match="if it is compressed, unpack it"):
        rl.read(packed)


def test_reading_changes_nothing(path: Path) -> None:
    before = database(path, TRAINING).read_bytes()
    path.chmod(0o444)
    rl.read(path)
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == [path.name]


CELLS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5), st.binary(max_size=5))


@settings(deadline=None)
@given(st.data())
def test_a_changed_cell_is_an_error_or_changes_only_its_event(tmp_path_factory: Any, data: st.DataObject) -> None:
    """Every activity whose row was not touched keeps its time and its name, whatever another cell holds."""
    path = tmp_path_factory.mktemp("cell") / "profile.sqlite"
    table = data.draw(st.sampled_from([table for table in TRAINING if table != "TARGET_INFO_GPU"]))
    row = data.draw(st.integers(0, len(TRAINING[table]) - 1))
    column = data.draw(st.integers(0, len(TRAINING[table][row]) - 1))
    changed = [list(cells) for cells in TRAINING[table]]
    changed[row][column] = data.draw(CELLS)
    database(path, {**TRAINING, table: changed}, LOOSE)
    names = ["void gemm<float>(int)", "relu", "wgrad", "sgd", "relu"]
    right = sorted(zip(names, (3e-6, 0.5e-6, 4e-6, 0.25e-6, 0.125e-6), strict=True))
    if table == KERNEL:
        right.remove((names[row], (3e-6, 0.5e-6, 4e-6, 0.25e-6, 0.125e-6)[row]))
    try:
        found = [(r.name, round(seconds(r), 12)) for r in kernels(path)]
    except FileError:
        return
    for its in right:
        assert its in found
        found.remove(its)


def test_a_gpu_that_no_machine_has_is_told_with_the_file(tmp_path: Path) -> None:
    changed = [list(cells) for cells in TRAINING[KERNEL]]
    changed[0][2] = -(2**63)  # its device
    path = database(tmp_path / "profile.sqlite", {**TRAINING, KERNEL: changed}, LOOSE)
    with pytest.raises(FileError, match=r"profile.sqlite' tells what cannot be: gpu cannot be a number of 20 digits"):
        kernels(path)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_damaged_bytes_are_an_error_or_read(tmp_path_factory: Any, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("bytes") / "profile.sqlite"
    raw = bytearray(database(path, TRAINING).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(raw)
    try:
        found = rl.read(path)
    except FileError:
        return
    assert all(seconds(record) >= 0 for record in found if record.timing is not None)
