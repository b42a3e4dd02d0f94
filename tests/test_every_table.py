"""Every command's tables at every width: what they print is caught, and no word of it is broken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from tests.test_whole_words import WIDTHS, words

from rooflens.cli.main import cli
from rooflens.report import render
from rooflens.report.table import Table, for_people

DATA = Path(__file__).parent / "data" / "ncu"
COMMANDS = (
    "models",
    "devices list --vendor intel",
    "devices show t4 l4",
    "rank alexnet -b 4 --device t4 --device l4 --mode train",
    "estimate alexnet -b 4 --mode train --device t4 --device l4 --device a100-sxm4-40gb",
    "estimate alexnet --by module --device t4",
    "estimate alexnet --by op --device t4",
    f"read {DATA / 'raw_resnet18_b1_fp32.csv'}",
    f"read {DATA / 'long_alexnet_b4_fp16_nvtx.csv'} --by module --device h200-sxm",
    f"check {DATA / 'raw_resnet18_b1_fp32.csv'}",
    f"compare {DATA / 'raw_resnet18_b1_fp32.csv'} {DATA / 'raw_resnet18_b32_tf32.csv'} --question kernels",
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.replace(str(DATA), "").split()[:4]))
def test_no_command_breaks_a_word(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    caught: list[Table] = []
    draw = render._draw

    def catching(tables: Sequence[Table], *how: Any) -> str:
        caught.extend(tables)
        return draw(tables, *how)

    monkeypatch.setattr(render, "_draw", catching)
    result = CliRunner().invoke(cli, command.split(), prog_name="rooflens")
    assert result.exit_code in (0, 3), result.output
    assert caught
    for width in WIDTHS:
        for table in caught:
            lines = draw([table], width, False).splitlines()
            grids, _ = render._layout(for_people(table), width)
            assert max(map(cell_len, lines), default=0) <= width
            assert words(grids) - {word for line in lines for word in line.split()} == set()
