"""What fuzzing once found stays mended, the readers survive a short round of it, and the fuzzer finds what is there."""

from __future__ import annotations

import itertools
import json
import random
from contextlib import suppress
from pathlib import Path

import pytest
from scripts import fuzz_readers, fuzzing

from rooflens.errors import RooflensError
from rooflens.readers import readers

ROOT = Path(__file__).parents[1]
ONCE = sorted((ROOT / "tests" / "data" / "fuzz").iterdir())


@pytest.mark.parametrize("path", ONCE, ids=lambda path: path.name)
def test_what_was_found_stays_mended(path: Path) -> None:
    reader = fuzz_readers.readers()[path.name.partition("-")[0]]
    with suppress(*reader.refusals):
        reader.call(path.read_bytes())


def test_seeds_are_read() -> None:
    """A seed that is refused leads nowhere; one of ncu's own layouts holds no launch."""
    for name, reader in fuzz_readers.readers().items():
        refused = 0
        for seed in reader.seeds:
            try:
                reader.call(seed)
            except RooflensError:
                refused += 1
        assert refused <= (name == "counters"), name


def test_the_fuzzer_is_led_by_branches_to_what_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four letters in a row: by chance alone one in 256^4 inputs, letter by letter a few thousand."""
    ticks = itertools.count()
    monkeypatch.setattr(fuzzing.time, "monotonic", lambda: next(ticks) / 10_000)  # inputs for seconds

    def hidden(data: bytes) -> None:
        for place, letter in enumerate(b"ROOF"):
            if data[place : place + 1] != bytes([letter]):
                break
        else:
            raise ZeroDivisionError("found")

    reader = fuzzing.Reader(call=hidden, seeds=[b"....."], refusals=(RooflensError,))
    outcome = fuzzing.fuzz(reader, 5, random.Random(1), tmp_path, "toy", below=__file__)
    assert outcome.findings == ["ZeroDivisionError: found"]
    assert (tmp_path / "toy-1").read_bytes()[:4] == b"ROOF"


def test_a_call_that_hangs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzzing, "HANGS", 0.2)

    def endless(data: bytes) -> None:
        while True:
            pass

    reader = fuzzing.Reader(call=endless, seeds=[b"x"], refusals=(RooflensError,))
    assert fuzzing.fuzz(reader, 0.1, random.Random(1), tmp_path, "toy", below=__file__).findings == ["hangs"]


def test_every_reader_of_the_product_is_fuzzed() -> None:
    """A seed is no use to a reader that does not recognise it."""
    seeds = [seed for its in fuzz_readers.readers().values() for seed in its.seeds]
    assert {next((r.name for r in readers() if r.recognises(seed)), "") for seed in seeds} >= {
        r.name for r in readers()
    }


def test_a_reader_whose_process_dies_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dies = tmp_path / "python"
    dies.write_text("#!/bin/sh\nkill -9 $$\n")
    dies.chmod(0o755)
    monkeypatch.setattr(fuzz_readers.sys, "executable", str(dies))
    found = dict(fuzz_readers._outcomes(["traces", "nvprof"], 1, 0, jobs=2))
    assert found.keys() == {"traces", "nvprof"}
    assert all(its.findings == ["its process ended with exit code -9"] for its in found.values())


def test_the_page_quotes_the_results() -> None:
    page, results = fuzz_readers.PAGE.read_text(), json.loads(fuzz_readers.RESULTS.read_text())
    assert fuzzing.quoted(page, results) == page
    assert "| counters | " in page
    assert all(its["seconds"] >= 600 and its["found"] == 0 for its in results.values())
