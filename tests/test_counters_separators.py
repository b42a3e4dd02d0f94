"""Numbers of counter files that can be read in two ways: what decides, and what is told where nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest

import rooflens as rl

IDENTITY = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size"'
THREADS = "device__attribute_max_threads_per_multiprocessor"


def raw(folder: Path, cells: tuple[str, str, str, str], *, more: str = "launch__func", value: str = "0") -> rl.Record:
    """A raw page of one launch: unit and cell of its time, unit and cell of its DRAM bytes, and one column more."""
    unit, time, per, moved = cells
    path = folder / "report.csv"
    path.write_text(
        f'{IDENTITY},"Device","CC","gpu__time_duration.sum","dram__bytes.sum","{more}"\n'
        f'"","","","","","","","","","","","{unit}","{per}",""\n'
        f'"0","1","a","h","k","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","{time}","{moved}","{value}"\n'
    )
    (record,) = rl.read(path)
    return record


def seen(record: rl.Record) -> tuple[float, float]:
    """Seconds, and DRAM bytes."""
    assert record.timing is not None
    assert record.work is not None
    return record.timing.median, record.work.bytes["dram"]


def test_a_column_that_can_be_read_in_two_ways_is_told_with_both(tmp_path: Path) -> None:
    """In English 1,250 us are 1250 us; in German 1.25 us. The bytes are printed without a separator."""
    record = raw(tmp_path, ("us", "1,250", "byte", "512"))
    assert seen(record) == (1.25e-3, 512)
    (doubt,) = record.doubts
    assert doubt == (
        "gpu__time_duration.sum can be read in two ways, and nothing in the file tells which: '1,250' was read as 1.250"
        " ms, as ncu writes it in English; where a comma is the decimal sign it is 1.250 us"
    )


def test_every_such_column_is_told(tmp_path: Path) -> None:
    record = raw(tmp_path, ("us", "96.256", "Kbyte", "1.024"))
    assert seen(record) == pytest.approx((96.256e-6, 1024))
    assert [doubt.partition(" ")[0] for doubt in record.doubts] == ["gpu__time_duration.sum", "dram__bytes.sum"]
    assert "'1.024' was read as 1.024 KB" in record.doubts[1].replace("kB", "KB")
    assert "it is 1.024 MB" in record.doubts[1]


@pytest.mark.parametrize(
    ("cells", "more", "value", "expected"),
    [
        # Bytes are whole, so what separates them groups thousands; nanoseconds, threads and blocks too.
        (("us", "1,250", "byte", "4,096"), "launch__func", "0", (1.25e-3, 4096)),
        (("us", "1,250", "byte", "4.096"), "launch__func", "0", (1.25e-6, 4096)),
        (("ns", "1.250", "Kbyte", "4,096"), "launch__func", "0", (1.25e-6, 4096)),
        (("us", "1.250", "Kbyte", "4.096"), "launch__grid_size", "1,024", (1.25e-6, 4096)),
        (("us", "1.250", "Kbyte", "4,096"), THREADS, "2.048", (1.25e-3, 4096)),
    ],
)
def test_what_is_whole_by_what_it_counts_decides(
    tmp_path: Path, cells: tuple[str, str, str, str], more: str, value: str, expected: tuple[float, float]
) -> None:
    record = raw(tmp_path, cells, more=more, value=value)
    assert seen(record) == pytest.approx(expected)
    assert record.doubts == ()
    assert any("nothing in the file tells the decimal separator but that" in note for note in record.notes)


def test_a_cell_with_one_reading_outweighs_what_counts_whole_numbers(tmp_path: Path) -> None:
    """0,5 is German, so 1.024 are 1024; 0.5 is English, and a fraction of a byte stays one."""
    for cells, expected in (
        (("us", "0,5", "byte", "1.024"), (0.5e-6, 1024)),
        (("us", "0.5", "byte", "1.024"), (0.5e-6, 1.024)),
    ):
        record = raw(tmp_path, cells)
        assert seen(record) == pytest.approx(expected)
        assert not any("nothing in the file tells" in note for note in record.notes)


def test_whole_numbers_that_contradict_each_other_decide_nothing(tmp_path: Path) -> None:
    record = raw(tmp_path, ("us", "1,250", "byte", "4.096"), more="launch__grid_size", value="1,024")
    assert seen(record) == pytest.approx((1.25e-3, 4.096))
    assert [doubt.partition(" ")[0] for doubt in record.doubts] == ["gpu__time_duration.sum", "dram__bytes.sum"]


LABELS = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
)
LABEL = '"0","1","a","h","k","1","7","(1, 1, 1)","(1, 1, 1)","0","8.0","{}","{}","{}","{}"\n'


@pytest.mark.parametrize(
    ("label", "unit", "value", "seconds"),
    [
        ("Grid Size", "", "1,024", 1.25e-3),
        ("Grid Size", "", "1.024", 1.25e-6),
        ("Elapsed Cycles", "cycle", "8.523", 1.25e-6),
        ("Elapsed Cycles", "Kcycle", "8.523", 1.25e-3),  # a fraction of a thousand decides nothing
    ],
)
def test_labels_of_whole_numbers_decide_too(tmp_path: Path, label: str, unit: str, value: str, seconds: float) -> None:
    """In a page of details, and in the page for people."""
    speed = "GPU Speed Of Light Throughput"
    table = tmp_path / "details.csv"
    table.write_text(
        LABELS + LABEL.format(speed, "Duration", "usecond", "1,250") + LABEL.format(speed, label, unit, value)
    )
    page = tmp_path / "page.txt"
    ruler = "    ---------------- ----------- ------------\n"
    page.write_text(
        f"  k (1, 1, 1)x(1, 1, 1), Context 1, Stream 7, Device 0, CC 8.0\n    Section: {speed}\n{ruler}"
        f"    Duration            usecond        1,250\n    {label}    {unit}      {value}\n{ruler}"
    )
    for path in (table, page):
        (record,) = rl.read(path)
        assert record.seconds == pytest.approx(seconds), path
        assert bool(record.doubts) == (unit == "Kcycle")


def test_a_mean_of_counts_is_no_whole_number(tmp_path: Path) -> None:
    """A summary of three launches: 1.250 bytes on average may be one and a quarter."""
    path = tmp_path / "summary.csv"
    path.write_text(
        '"Process ID","Process Name","Host Name","Device","CC","Kernel Name","Block Size","Grid Size","Invocations",'
        '"Section Name","Metric Name","Metric Unit","Minimum","Maximum","Average"\n'
        '"1","a","h","0","9.0","k","(1, 1, 1)","(1, 1, 1)","4","s","dram__bytes.sum","byte","1","2","1.250"\n'
    )
    (record,) = rl.read(path)
    assert record.work is not None
    assert record.work.bytes["dram"] == 1.25
    assert record.doubts[0].startswith("dram__bytes.sum can be read in two ways")
