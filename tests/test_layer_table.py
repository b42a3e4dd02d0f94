"""The table of layers, and tables of operations and kernels, against numbers that are derived by hand."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.figure_samples import operation
from tests.level_samples import CASE as LEVELS
from tests.level_samples import cached, kernel
from tests.table_samples import INFERENCE, conv_net, device, estimated
from torch import Tensor, nn

import rooflens as rl
from rooflens.errors import InvalidValue
from rooflens.records import Call, Case, Record, Timing, Work
from rooflens.records import Tensor as Described
from rooflens.report.part_tables import part_rows
from rooflens.results import RecordSet, join


class TwoLayers(nn.Module):
    """Two layers of 8 x 8 that share a weight, an activation that is called twice, and a layer that is not called."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.relu = nn.ReLU()
        self.head = nn.Linear(8, 4)
        self.spare = nn.Linear(3, 3)
        self.head.weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.relu(self.second(self.relu(self.first(x)))))
        return result


class Blocks(nn.Module):
    """A convolution and a pooling, each in a block of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, (3, 1)), nn.MaxPool2d(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.stem(x) * 2.0  # type: ignore[no-any-return]


@cache
def two_layers(mode: str = "inference") -> rl.RecordSet:
    return rl.estimate(TwoLayers(), inputs=torch.zeros(2, 8), mode=mode, device="t4", name="two")


def rows(records: rl.RecordSet, **asked: object) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(rl.table(records, format="csv", **asked))))  # type: ignore[arg-type]


def column(found: list[dict[str, str]], key: str) -> list[str]:
    return [row[key] for row in found]


def test_layers_have_class_sizes_and_parameters() -> None:
    found = rows(two_layers(), by="module")
    assert column(found, "path") == ["", "first", "second", "relu", "head", "spare"]
    assert column(found, "class") == ["TwoLayers", "Linear", "Linear", "ReLU", "Linear", "Linear"]
    assert column(found, "input") == ["2x8", "2x8", "2x8", "2x8", "2x8", ""]
    assert column(found, "output") == ["2x4", "2x8", "2x8", "2x8", "2x4", ""]
    assert column(found, "module_calls") == ["1", "1", "1", "2", "1", "0"]
    # 8 x 8 + 8; of the second only the bias, 8; 8 x 4 + 4, of which the bias of 4 is trained; 3 x 3 + 3 are not used.
    assert column(found, "parameters") == ["128", "72", "8", "0", "36", "12"]
    assert column(found, "trainable") == ["96", "72", "8", "0", "4", "12"]
    assert column(found, "weight_bytes") == ["512", "288", "32", "0", "144", "48"]
    # Results of 2 x 8 numbers of 4 bytes: one of each layer, two of the activation; 2 x 4 of the head.
    assert column(found, "result_bytes") == ["288", "64", "64", "128", "32", ""]
    # 2 x 2 x 8 x 8 FLOP of products in the layers, half in the head.
    assert column(found, "matmul_flops") == ["640", "256", "256", "0", "128", ""]
    assert two_layers().parameters == 128
    assert sum(float(row["share"] or 0) for row in found[1:]) == pytest.approx(1)


def test_people_are_told_what_surprises() -> None:
    text = rl.table(two_layers(), by="module", width=160)
    assert "frozen" not in text
    assert "  trainable" in text  # since something is not trained
    (shared,) = (line for line in text.splitlines() if line.startswith("  second"))
    assert "= 8" in shared
    (spare,) = (line for line in text.splitlines() if line.startswith("  spare"))
    assert "not called" in spare
    for note in ("they are counted there, once", "another one may use its parameters", "those of its first call"):
        assert note in text
    plain = rl.estimate(nn.Linear(4, 4), inputs=torch.zeros(1, 4), name="plain")
    assert "counted there" not in rl.table(plain, by="module", width=160)
    told = rl.table(plain, by="module", width=100)
    assert "  trainable" not in told
    assert "20 parameters, all of them trainable; weights and buffers 80.00 B; inputs 512.0 B" in told


def test_kernels_and_own_work_of_blocks() -> None:
    records = rl.estimate(Blocks(), inputs=torch.zeros(1, 3, 8, 8), name="blocks")
    tree = rows(records, by="module")
    assert column(tree, "path") == ["", "(itself)", "stem", "stem.0", "stem.1"]
    assert column(tree, "kernel") == ["", "", "", "3x1", "2x2"]
    assert column(tree, "output") == ["1x4x3x4", "", "1x4x3x4", "1x4x6x8", "1x4x3x4"]
    # One FLOP for each of 4 x 3 x 4 results, and with those of the stem they make all.
    top = rows(records, by="module", depth=1)
    assert column(top, "path") == ["", "(itself)", "stem"]
    whole, own, stem = map(float, column(top, "flops"))
    assert (own, own + stem) == (48, whole)
    # Sorted, no row holds another one: they add up to the whole.
    flat = rows(records, by="module", sort="flops")
    assert column(flat, "path") == ["stem.0", "stem.1", ""]
    assert sum(float(row["flops"]) for row in flat) == float(tree[0]["flops"])
    assert "blocks (itself)" in rl.table(records, by="module", sort="flops")


def test_training_has_the_loss_and_the_optimizer_outside_of_the_model() -> None:
    found = rows(two_layers("train"), by="module")
    assert column(found, "path")[-2:] == ["(loss)", "(optimizer)"]
    assert column(found, "parameters")[-2:] == ["", ""]
    assert column(found, "module_calls")[:6] == ["1", "1", "1", "2", "1", "0"]


def test_sizes_survive_a_file_and_older_files_have_none(tmp_path: Path) -> None:
    path = two_layers().save(tmp_path / "two.jsonl")
    assert rows(rl.read(path), by="module") == rows(two_layers(), by="module")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert any(line.pop("modules", None) for line in lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    older = rows(rl.read(path), by="module")
    assert column(older, "path") == ["", "first", "relu", "second", "head"]  # in the order in which they ran
    assert set(column(older, "class")) == {""}
    assert "class" not in rl.table(rl.read(path), by="module")


def test_equal_layers_of_a_decoder_have_the_sizes_of_the_first() -> None:
    """The third layer does not run in a trace: it does what the first two did."""
    found = {row["path"]: row for row in rows(rl.estimate("hf:llama", batch=1, seq_len=4), by="module", depth=9)}
    first, third = found["model.layers.0.mlp.up_proj"], found["model.layers.2.mlp.up_proj"]
    names = ("class", "input", "output", "parameters", "module_calls")
    assert [first[name] for name in names] == [third[name] for name in names]
    assert first["output"] == "1x4x11008"


def test_operations_of_equal_shapes_are_one_row() -> None:
    found = rows(two_layers(), by="op")
    assert sorted(column(found, "operation")) == ["addmm", "addmm", "relu"]
    both = next(row for row in found if row["path"] == "first second")
    assert (both["calls"], both["flops"]) == ("2", str(2 * (256 + 16)))  # and a bias is added to each of 16 results
    assert both["shapes"] == "8 2x8 8x8 -> 2x8"
    expected = [float(row["predicted_seconds"]) for row in found]
    assert expected == sorted(expected, reverse=True)


def call(n: int) -> Call:
    tensor = Described((n,), "fp32", 4 * n)
    return Call("relu", (("self", tensor),), (tensor,), 4 * n, 4 * n)


def test_times_go_to_operations_where_they_can_be_told_apart() -> None:
    """Module a calls relu on 2 and on 3 numbers, 1 ms together; b and c call it on 5; d is not estimated."""
    case = Case(model="net", device="toy")

    def piece(path: str, n: int) -> Record:
        work = Work(flops={"vector.fp32": n}, bytes={"dram": 8 * n})
        return Record(case=case, source="estimate", scope="op", path=path, kind="elementwise", name="relu",
                      phase="forward", work=work, call=call(n))  # fmt: skip

    def timed(path: str, name: str, seconds: float) -> Record:
        timing = Timing(samples=(seconds,), origin="profiler")
        return Record(case=case, source="profile", scope="op", path=path, kind="elementwise", name=name,
                      phase="forward", timing=timing)  # fmt: skip

    estimates = [piece("a", 2), piece("a", 3), piece("b", 5), piece("c", 5)]
    times = [timed("a", "relu", 1e-3), timed("b", "relu", 2e-3), timed("c", "relu", 4e-3), timed("d", "copy_", 8e-3)]
    (item,) = join(RecordSet([*estimates, *times], devices={"toy": device()}))
    found = {(row.part.name, row.part.call): row for row in part_rows(item, "op")}
    assert {key: row.seconds for key, row in found.items()} == {
        ("copy_", None): 8e-3,
        ("relu", None): 1e-3,
        ("relu", call(5)): pytest.approx(6e-3),
        ("relu", call(2)): None,
        ("relu", call(3)): None,
    }
    # 80 bytes at 1 GB/s in 6 ms.
    assert found["relu", call(5)].ceilings["dram"] == pytest.approx(80 / 1e9 / 6e-3)
    (family,) = part_rows(item, "family")
    assert family.seconds == pytest.approx(15e-3)


def pooling(path: str, n: int, stride: int) -> tuple[Record, Record]:
    """An estimate and a time of 2 ms; the shapes do not tell the stride."""
    given, returned = Described((n, 8, 8), "fp32", 256 * n), Described((n, 4, 4), "fp32", 64 * n)
    call = Call("max_pool", (("self", given), ("stride", stride)), (returned,), 320 * n, 0)
    piece = Record(case=Case(model="net", device="toy"), source="estimate", scope="op", path=path, kind="pooling",
                   name="max_pool", phase="forward", work=Work(flops={"vector.fp32": n}, bytes={"dram": n}),
                   call=call)  # fmt: skip
    timing = Timing(samples=(2e-3,), origin="profiler")
    return piece, replace(piece, source="profile", work=None, call=None, timing=timing)


def test_what_tells_operations_of_one_name_apart_is_shown_in_any_width() -> None:
    shapes_apart = RecordSet([*pooling("a", 2, 2), *pooling("b", 3, 2)], devices={"toy": device()})
    strides_apart = RecordSet([*pooling("a", 2, 2), *pooling("b", 2, 1)], devices={"toy": device()})
    for width in (60, 80, 200):
        text = rl.table(shapes_apart, by="op", width=width)
        assert "2x8x8 -> 2x4x4" in text
        assert "3x8x8 -> 3x4x4" in text
        apart = [line for line in rl.table(strides_apart, by="op", width=width).splitlines() if "2x8x8 ->" in line]
        assert {line.split("2x4x4")[1].split()[0] for line in apart} == {"a", "b"}


def test_notes_go_with_the_columns_that_they_explain() -> None:
    records = RecordSet([*pooling("a", 2, 2), *pooling("b", 3, 2)], devices={"toy": device()})
    note = "of tensor cores, of DRAM"
    assert note in rl.table(records, by="op", width=250)
    narrow = rl.table(records, by="op", width=80).split("hidden (terminal too narrow)")
    assert "of DRAM" in narrow[1]
    assert note not in narrow[0]
    assert note not in rl.table(records, by="op", format="md", columns=["measured_seconds"])
    assert "weights: parameters" in rl.table(two_layers(), by="module", width=250)
    assert "weights: parameters" not in rl.table(two_layers(), by="module", width=80)


def test_rows_are_sorted_cut_and_their_columns_chosen() -> None:
    records = two_layers()
    assert column(rows(records, by="module", sort="parameters", top=2), "path") == ["first", "head"]
    assert column(rows(records, by="module", sort="class"), "class") == ["Linear"] * 4 + ["ReLU"]
    assert column(rows(records, by="module", sort="order"), "path")[:2] == ["", "first"]
    (row,) = rows(records, by="family", top=1, columns=["FLOP", "dram_bytes"])
    assert list(row)[-3:] == ["family", "flops", "dram_bytes"]
    text = rl.table(records, by="op", top=1)
    expected = [float(row["predicted_seconds"]) for row in rows(records, by="op")]
    rest = 100 * (1 - max(expected) / sum(expected))
    assert f"2 more hold {rest:.3g} % of the expected time" in text  # what they are sorted by
    flops = [float(row["flops"]) for row in rows(records, by="op")]
    assert f"hold {100 * (1 - max(flops) / sum(flops)):.3g} % of the FLOP" in rl.table(
        records, by="op", top=1, sort="flops"
    )
    assert "% of the expected time" in rl.table(records, by="op", top=1, sort="operation")
    assert "(--top 3 shows all)" in text
    with pytest.raises(InvalidValue, match=r"no column 'speed' in this table; known: .*predicted_seconds"):
        rl.table(records, by="op", sort="speed")
    unknown = RecordSet([replace(r, case=replace(r.case, device="abacus")) for r in records])
    assert "no ceilings of abacus are known here" in rl.table(unknown, by="op", width=200)
    assert "no ceilings of abacus are known here" in rl.table(unknown, by="module", width=200)
    with pytest.raises(InvalidValue, match="hold no kernels"):
        rl.table(records, by="kernel")


def test_columns_that_were_asked_for_and_are_empty_are_told() -> None:
    records = RecordSet(record for path in "ab" for record in pooling(path, 2, 2)[1:])
    told = "not known, and so not shown: shapes"
    # The times of a profile: neither shapes nor kernels of a convolution are known.
    assert told in rl.table(records, by="op", columns=["operation", "shapes", "calls"]).splitlines()
    assert told not in rl.table(two_layers(), by="op", columns=["operation", "shapes"])
    assert "not shown: kernel" in rl.table(two_layers(), by="module", columns=["class", "kernel", "kernel"])
    assert "not shown" not in rl.table(records, by="op", columns=["calls"])
    (row,) = rows(records, by="op", columns=["shapes"])
    assert row["shapes"] == ""  # a file keeps its columns


def test_the_summary_is_what_is_arranged_if_no_piece_is_named() -> None:
    several = estimated() + RecordSet(
        [replace(r, case=replace(r.case, batch=4)) for r in conv_net(INFERENCE)], devices=estimated().devices
    )
    assert column(rows(several, sort="batch"), "batch") == ["4", "2"]
    text = rl.table(several, columns=["bound"], width=60)
    assert "Operation families" not in text
    assert "FLOP" not in text.split("\n\n")[1]


def test_by_phase_and_by_model_are_the_summary() -> None:
    records = two_layers("train")
    assert column(rows(records, by="phase"), "phase") == ["forward", "backward", "optimizer", "step"]
    assert column(rows(records, by="model"), "phase") == ["step"]


@pytest.mark.parametrize("format", ["md", "tex", "json"])
def test_other_formats_hold_the_same_table(format: str) -> None:
    text = rl.table(two_layers(), by="module", format=format)  # type: ignore[arg-type]
    assert "Linear" in text
    if format == "json":
        assert [row["class"] for row in json.loads(text)][:2] == ["TwoLayers", "Linear"]


def test_a_picture_by_module_has_a_mark_for_each_module_at_a_depth() -> None:
    records = rl.estimate(Blocks(), inputs=torch.zeros(1, 3, 8, 8), name="blocks", device="t4")

    def marks(**asked: Any) -> set[str]:
        return {mark.hover[0].split(",")[0] for mark in rl.roofline(records, **asked).marks if not mark.whole}

    assert marks(by="module", depth=1) == {"stem", "blocks (itself)"}
    assert marks(by="module") == {"stem.0", "stem.1", "blocks (itself)"}
    assert marks(by="module-family") >= {"stem.0 convolution", "blocks elementwise"}
    assert marks(by="op") == {"stem.0/convolution", "stem.1/max_pool2d_with_indices", "mul"}
    with pytest.raises(InvalidValue, match="depth -1 is negative"):
        rl.roofline(records, by="module", depth=-1)


def test_counted_families_of_modules_have_their_shares_of_ceilings() -> None:
    launches = [
        kernel(path="a.x", kind="convolution"),
        kernel(path="a.y", kind="convolution", flops=3e9),
        kernel(path="b", kind="normalization"),
    ]
    records = RecordSet(launches, devices={"toy-100": cached()})
    first, second = rows(records, by="module-family", depth=1)
    assert (first["path"], first["family"], second["path"], second["family"]) == (
        *("a", "convolution", "b", "normalization"),
    )
    # 4 GFLOP at 10 TFLOP/s, 800 MB at 16 TB/s, 200 MB at 4 and 20 MB at 1, of 2 ms.
    keys = ("general_lanes_share", "l1_share", "l2_share", "dram_share")
    assert [float(first[key]) for key in keys] == pytest.approx([0.2, 0.025, 0.025, 0.01])


def test_an_estimate_beside_counters_hides_no_kernel() -> None:
    estimate = operation(LEVELS, "a", "convolution", vector=1e9)
    records = RecordSet([estimate, kernel("gemm")], devices={"toy-100": cached()})
    assert "gemm" in rl.table(records, by="kernel")
    with pytest.raises(InvalidValue, match="hold no kernels"):
        rl.table(records.where(source="estimate"), by="kernel")
