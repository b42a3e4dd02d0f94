"""``rooflens devices``: what people see, and what programs read."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rooflens.cli import devices as command
from rooflens.devices import catalogue, files
from rooflens.errors import InvalidValue, UnknownDevice

NASTY = """
title = "[red]Board[/red] | *x*"
vendor = "[bold]Acme"
kind = "gpu"
notes = "see [link=x]here[/link]"
[bandwidth]
dram = { value = "1 TB/s", verified = false, reference = "[dim]sheet" }
"""


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command.devices, arguments, catch_exceptions=False)


def text_of(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0
    return result.stdout


def rows_of(*arguments: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text_of(*arguments, "--format", "csv"))))


def test_the_list_has_every_device_on_one_line_of_at_most_80_columns() -> None:
    text = text_of("list")
    assert max(map(len, text.splitlines())) <= 80
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert {d.name for d in catalogue()} <= lines.keys()
    assert " ".join(lines["a100-sxm4-40gb"].split()) == "a100-sxm4-40gb 2020 19.5 T 312 T 1.56 T 40.0 G"
    assert " ".join(lines["h20-96gb"].split()) == "h20-96gb ? 2024 ? 44.0 T ? 148 T ? 4.00 T 96.0 G"
    assert " ".join(lines["geforce-256-sdr"].split()) == "geforce-256-sdr 1999 - - 2.66 G 32.0 M"
    assert "\x1b" not in text


def test_the_bare_group_lists() -> None:
    assert run().stdout == text_of("list")


def test_the_list_can_be_narrowed() -> None:
    assert [row["name"] for row in rows_of("list", "--vendor", "AWS")] == ["graviton3"]
    assert {row["kind"] for row in rows_of("list", "--kind", "tpu")} == {"tpu"}
    assert "no device" in text_of("list", "--vendor", "aws", "--kind", "gpu")
    assert rows_of("list", "--vendor", "aws", "--kind", "gpu") == []


def test_a_wrong_filter_says_what_there_is() -> None:
    with pytest.raises(InvalidValue, match="unknown vendor 'acme'; the catalogue has AMD"):
        run("list", "--vendor", "acme")
    result = run("list", "--kind", "toaster")
    assert result.exit_code == 2
    assert "'gpu', 'cpu', 'tpu', 'soc', 'accelerator'" in result.stderr


def test_the_list_as_csv_is_in_base_units_and_names_what_is_unverified() -> None:
    by_name = {row["name"]: row for row in rows_of("list")}
    assert list(by_name) == [device.name for device in catalogue()]
    a100 = by_name["a100-sxm4-40gb"]
    assert (a100["dram"], a100["memory"], a100["units"], a100["year"]) == (
        "1555000000000",
        "40000000000",
        "108",
        "2020",
    )
    assert float(a100["matmul.bf16"]) == 312e12
    assert a100["unverified"] == "torch_memory special.fp32"
    assert by_name["geforce-256-sdr"]["vector.fp32"] == ""
    assert "facts" not in a100
    assert by_name["epyc-9654"]["unverified"].split() == ["year", "matmul.bf16", "matmul.int8", "special.fp32"]


def test_one_device_in_full() -> None:
    text = text_of("show", "a100-sxm4-40gb")
    assert max(map(len, text.splitlines())) <= 80
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    # 312 TFLOP/s over 1555 GB/s is 200.6 FLOP per byte.
    assert lines["matmul.bf16"][1:7] == ["312.0", "TFLOP/s", "200.6", "tensor", "fp32", "datasheet"]
    assert lines["matmul.fp32"][1:7] == ["19.50", "TFLOP/s", "12.54", "fma", "fp32", "derived"]
    assert lines["special.fp32"][1] == "?"
    assert lines["dram"][1:3] == ["1.555", "TB/s"]
    assert lines["memory"][1:3] == ["40.00", "GB"]
    assert "In-Depth, table 3" in text
    assert "NVIDIA A100-SXM4-40GB" in text
    assert "not verified" in text


def test_several_devices_and_counts() -> None:
    shown = json.loads(text_of("show", "t4", "2x v100-sxm2-16gb", "--format", "json"))
    assert [(d["name"], d["count"]) for d in shown] == [("tesla-t4", 1), ("2x tesla-v100-sxm2-16gb", 2)]


def test_json_holds_everything() -> None:
    (shown,) = json.loads(text_of("show", "t4", "--format", "json"))
    ceilings: dict[str, dict[str, Any]] = {c["resource"]: c for c in shown["ceilings"]}
    assert ceilings["matmul.fp16"]["rate"] == 65e12
    assert ceilings["matmul.fp16"]["ridge"] == 65e12 / 320e9
    assert ceilings["dram"]["ridge"] is None
    assert shown["facts"]["memory"]["value"] == 16e9
    assert "t4" in shown["aliases"]
    assert json.loads(text_of("list", "--vendor", "nvidia", "--format", "json"))[-3]["vendor"] == "NVIDIA"
    assert len(json.loads(text_of("list", "--format", "json"))) == len(catalogue())


def test_one_row_per_value_as_csv() -> None:
    rows = {row["quantity"]: row for row in rows_of("show", "h20")}
    assert rows["matmul.bf16"]["value"] == "148000000000000"
    assert rows["matmul.bf16"]["verified"] == "false"
    assert rows["memory"]["unit"] == "B"
    # 148 TFLOP/s over 4 TB/s.
    assert float(rows["matmul.bf16"]["ridge"]) == 37


@pytest.mark.parametrize("format_", ["table", "md", "tex"])
def test_text_of_a_user_is_shown_as_it_is(tmp_path: Path, format_: str) -> None:
    path = tmp_path / "board.toml"
    path.write_text(NASTY, encoding="utf-8")
    text = text_of("show", str(path), "--format", format_)
    shown = text.replace("\\", "").replace("{[}", "[")
    assert "[red]Board[/red]" in shown
    assert "[bold]Acme" in shown
    assert "[dim]sheet" in shown
    assert "[link=x]here[/link]" in shown


def test_markdown_has_one_table_per_vendor() -> None:
    text = text_of("list", "--format", "md")
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        f"### {vendor}" for vendor in sorted({device.vendor for device in catalogue()}, key=str.lower)
    ]
    assert "| tesla-t4 | 2018 | 8.10 T | 65.0 T | 320 G | 16.0 G |" in text


def test_output_goes_to_files_by_their_suffix(tmp_path: Path) -> None:
    table, flat = tmp_path / "sub" / "devices.csv", tmp_path / "devices.json"
    result = run("show", "t4", "--format", "md", "-o", str(table), "-o", str(flat))
    assert result.stdout == text_of("show", "t4", "--format", "md")
    assert result.stderr == f"wrote {table}\nwrote {flat}\n"
    assert table.read_text(encoding="utf-8").splitlines() == text_of("show", "t4", "--format", "csv").splitlines()
    assert json.loads(flat.read_text(encoding="utf-8"))[0]["name"] == "tesla-t4"


def test_a_suffix_that_says_nothing_is_wrong_usage(tmp_path: Path) -> None:
    result = run("list", "-o", str(tmp_path / "devices.png"))
    assert result.exit_code == 2
    assert "known: .json .csv .md .tex .txt" in result.stderr
    (tmp_path / "folder.csv").mkdir()
    result = run("list", "-o", str(tmp_path / "folder.csv"))
    assert result.exit_code == 2
    assert "folder.csv' is a folder; name a file" in result.stderr


def test_the_case_of_a_suffix_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "T4.CSV"
    run("show", "t4", "-o", str(path))
    assert path.read_text(encoding="utf-8").splitlines() == text_of("show", "t4", "--format", "csv").splitlines()


def test_an_unknown_device_names_near_ones() -> None:
    with pytest.raises(UnknownDevice, match="did you mean geforce-rtx-3090"):
        run("show", "rtx 3090 ti")


@pytest.mark.parametrize("arguments", [(), ("list",), ("show",)])
def test_help_has_examples(arguments: tuple[str, ...]) -> None:
    text = text_of(*arguments, "--help")
    assert "  Examples:\n    rooflens devices" in text
    assert "\b" not in text


def test_choices_are_those_of_the_code_below() -> None:
    assert command.KINDS == files.KINDS
