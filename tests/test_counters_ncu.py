"""A program under ncu, which is played by a script: what is asked of it, how it is followed, stopped and understood."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rooflens.errors import CountersUnavailable, InvalidValue
from rooflens.running.awaited import awaited
from rooflens.sources.counters.metrics import chips_of, chips_with
from rooflens.sources.counters.ncu import CollectedReport, Tool, find, metric_groups, metric_set, started

CAPABILITIES = ("7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")
PATCHED = {f"smsp__sass_thread_inst_executed_op_{p}{op}_pred_on.sum" for p in "dfh" for op in ("add", "mul", "fma")}


@pytest.mark.parametrize("cc", CAPABILITIES)
@pytest.mark.parametrize("dtype", ["fp32", "default", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16", "as-is"])
def test_a_set_holds_what_is_needed_and_nothing_that_the_chip_lacks(cc: str, dtype: str) -> None:
    names = metric_set(cc, dtype)
    assert set(names) >= PATCHED | {"gpu__time_duration.sum", "l1tex__t_bytes.sum", "lts__t_sectors_srcunit_tex.sum"}
    assert len(set(names)) == len(names)
    for name in names:
        assert set(chips_of(cc)) & set(chips_with(name)), name
    if cc not in ("8.7", "11.0", "12.1"):  # integrated memory has no counters
        assert {"dram__bytes_read.sum", "dram__bytes_op_read.sum"} & {*names}


def test_names_that_differ_by_chip() -> None:
    """Sections 2.2, 2.4, 3.1 and 5 of the reference name these."""
    hopper, blackwell, ada = metric_set("9.0", "bf16"), metric_set("12.0", "bf16"), metric_set("8.9", "bf16")
    tensor = "sm__ops_path_tensor_"
    assert f"{tensor}op_hgmma_src_bf16_dst_fp32_sparsity_off.sum" in hopper
    assert f"{tensor}op_hmma_src_bf16_dst_fp32_sparsity_off.sum" in hopper
    assert "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum" in hopper
    assert "dram__bytes_op_read.sum" in blackwell
    assert "dram__bytes_read.sum" not in blackwell
    assert f"{tensor}src_bf16_dst_fp32_sparsity_off.sum" in ada
    assert "sm__inst_executed_pipe_tensor_v2.sum" in ada
    assert "sm__inst_executed_pipe_tensor.sum" not in ada
    assert f"{tensor}src_fp16_bf16_tf32_dst_fp32.sum" in metric_set("7.5", "fp16")
    assert not any(tensor in name for name in metric_set("9.0", "fp32"))


@pytest.mark.parametrize("cc", CAPABILITIES)
def test_groups_hold_each_counter_once_and_are_apart_only_where_one_pass_was_seen(cc: str) -> None:
    groups = metric_groups(cc, "bf16")
    assert sorted(name for group in groups for name in group) == sorted(metric_set(cc, "bf16"))
    assert all(groups)
    assert (len(groups) > 1) == (cc == "9.0")
    assert set(metric_groups("9.0", "fp32")[1]) == PATCHED  # without tensor counters there are two
    assert len(metric_groups("9.0", "fp32")) == 2


def test_a_model_s_step_takes_at_most_three_passes_on_every_chip_that_cupti_knows() -> None:
    """What benchmarks/ncu_passes.py asked, of the counters that are collected today."""
    found = json.loads((Path(__file__).parents[1] / "benchmarks/results/ncu-passes.json").read_text())
    assert found["cards"]["other"] == 0  # a card was asked too, and agreed
    for row in found["rows"]:
        whole = row["dtype"] == "as-is"  # a program runs once
        groups = (metric_set(row["cc"], "as-is"),) if whole else metric_groups(row["cc"], row["dtype"])
        assert row["counters"] == [len(group) for group in groups], "the counters changed: ask CUPTI again"
        assert sum(row["passes"]) <= (5 if whole else 3)
        assert len(groups) == 1 or set(row["passes"]) == {1}


def test_a_chip_that_is_not_known_is_told() -> None:
    with pytest.raises(InvalidValue, match=r"compute capability 99\.9"):
        metric_set("99.9", "fp32")


def test_the_command_says_all_that_versions_differ_in() -> None:
    tool = Tool(path="/opt/ncu", version="2025.3.1", options=frozenset({"--import-sass"}))
    command = tool.command(["a.sum", "b.sum"], Path("run.ncu-rep"), cache="none", program=["python", "train.py"])
    assert command[0] == "/opt/ncu"
    assert command[-2:] == ["python", "train.py"]
    pairs = dict(itertools.pairwise(command))
    assert pairs["--clock-control"] == "none"
    assert pairs["--cache-control"] == "none"
    assert pairs["--metrics"] == "a.sum,b.sum"
    assert pairs["--profile-from-start"] == "off"
    assert pairs["--import-sass"] == "no"
    assert "--nvtx" in command
    old = Tool(path="/opt/ncu", version="2020.1", options=frozenset())
    assert "--import-sass" not in old.command([], Path("x"), cache="all", program=["p"])


def collect(command: list[str], report: Path, **how: Any) -> CollectedReport:
    with started(command) as run:
        return run.followed(report, **how)


def played(tmp_path: Path, text: str) -> list[str]:
    """A command that plays ncu; `report` is where it writes."""
    script = tmp_path / "ncu.py"
    head = f"import signal, sys, time\nreport = {str(tmp_path / 'run.ncu-rep')!r}\n"
    head += "def say(text): print(text, flush=True)\n"
    script.write_text(head + text)
    return [sys.executable, str(script)]


KERNELS = """
for n in range(4):
    say(f'==PROF== Profiling "gemm" - {n}: 0%....50%....100% - 3 passes')
open(report, "w").write("done")
"""


def test_a_run_is_followed(tmp_path: Path) -> None:
    told: list[tuple[float, str]] = []
    heard: list[str] = []
    done = collect(
        played(tmp_path, "say('loss 0.5')\n" + KERNELS),
        tmp_path / "run.ncu-rep",
        limit=30,
        expected=4,
        progress=lambda share, what: told.append((share, what)),
        echo=heard.append,
    )
    assert (done.kernels, done.passes, done.stopped, done.code, done.whole) == (4, 3, False, 0, True)
    assert [share for share, _ in told] == [0.25, 0.5, 0.75, 1.0]
    assert told[0][1] == "kernel 1 of 4"
    assert "left" in told[1][1]
    assert heard == ["loss 0.5"]


@pytest.mark.parametrize("script", ["", "{} {}\necho over\n"])  # the command ncu is a script that runs the program ncu
def test_a_time_limit_stops_ncu_and_keeps_what_it_has(tmp_path: Path, script: str) -> None:
    """It is asked as a person would ask, by an interrupt, and then writes its report."""
    text = """
def stop(*_):
    open(report, "w").write("part")
    say('==PROF== Trying to shutdown target application')
    say('==ERROR== The application returned an error code (9).')
    sys.exit(130)
signal.signal(signal.SIGINT, stop)
say('==PROF== Profiling "gemm" - 0: 0%....50%....100% - 3 passes')
open(report + ".begun", "w").close()
time.sleep(60)
"""
    command = played(tmp_path, text)
    if script:
        (tmp_path / "ncu").write_text(script.format(*command))
        command = ["sh", str(tmp_path / "ncu")]
    told: list[str] = []
    with started(command) as run:
        while not (tmp_path / "run.ncu-rep.begun").exists():
            assert not run.has_ended
            time.sleep(0.01)
        done = run.followed(tmp_path / "run.ncu-rep", limit=0.1, progress=lambda _, what: told.append(what))
    assert done.stopped
    assert not done.whole
    assert done.kernels == 1
    assert done.seconds < 30
    assert "the time limit is over: ncu writes what it has, in at most 20 s" in told


def test_an_ncu_that_does_not_stop_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = f"""
import subprocess
signal.signal(signal.SIGINT, signal.SIG_IGN)  # and what it starts ignores it too
child = subprocess.Popen(["sleep", "60"])
open({str(pid)!r}, "w").write(str(child.pid))
open(report, "w").write("part")
time.sleep(60)
"""
    with started(played(tmp_path, text)) as run:
        while not (tmp_path / "run.ncu-rep").exists():
            assert not run.has_ended
            time.sleep(0.01)
        done = run.followed(tmp_path / "run.ncu-rep", limit=0.1, grace=0.2)
    assert done.stopped
    deadline = time.monotonic() + 10
    while _runs(int(pid.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access", "NVreg_RestrictProfilingToAdmin"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "LibraryNotLoaded"),
        ("==WARNING== No kernels were profiled.", "marked no step"),
        ("==ERROR== Profiling failed because a driver resource was unavailable. Ensure", "only one can at a time"),
    ],
)
def test_why_nothing_was_counted_is_told(tmp_path: Path, says: str, expected: str) -> None:
    with pytest.raises(CountersUnavailable, match=expected):
        collect(played(tmp_path, f"say({says!r})\n"), tmp_path / "run.ncu-rep", limit=30)


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(CountersUnavailable, match="ValueError: no data"):
        collect(played(tmp_path, "say('ValueError: no data')\nsys.exit(1)\n"), tmp_path / "run.ncu-rep", limit=30)


def test_an_ncu_that_is_named_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "ncu"
    script.write_text("#!/bin/sh\necho 'Version 2025.3.1.0 (build 1)'\necho '  --import-sass arg (=yes)'\n")
    script.chmod(0o755)
    monkeypatch.setenv("ROOFLENS_NCU", str(script))
    find.cache_clear()
    tool = find()
    assert tool.version == "2025.3.1.0"
    assert "--import-sass" in tool.options
    find.cache_clear()
    script.write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(CountersUnavailable, match="does not tell its version"):
        find()
    find.cache_clear()
    monkeypatch.setenv("ROOFLENS_NCU", str(tmp_path / "missing"))
    with pytest.raises(CountersUnavailable, match="cannot run"):
        find()
    find.cache_clear()


def test_a_report_is_printed_and_a_failure_is_told(tmp_path: Path) -> None:
    script = tmp_path / "ncu"
    script.write_text('#!/bin/sh\necho "$@"\necho \'"ID"\'\ncase $2 in *bad*) exit 3;; esac\n')
    script.chmod(0o755)
    tool = Tool(path=str(script), version="1", options=frozenset())
    with tool.printed(Path("good.ncu-rep")) as lines:
        first, second = lines
    assert first.split() == ["--import", "good.ncu-rep", "--csv", "--page", "raw", "--print-units", "base"]
    assert second == '"ID"\n'
    with pytest.raises(CountersUnavailable, match="code 3"), tool.printed(Path("bad.ncu-rep")) as lines:
        list(lines)


PARENT = """
import subprocess, sys
from importlib import import_module
from rooflens.sources.counters.ncu import started

program = import_module("rooflens.cli.main")

def counts(**_):
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    ncu = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"  # an ncu that runs a program
    with started([sys.executable, "-c", ncu]) as run:
        print(run._run.stdout.readline().decode(), flush=True)
        subprocess.run(["sleep", "60"])

program.cli.main = counts
program.main()
"""


def test_ncu_and_its_program_end_with_who_started_them(tmp_path: Path) -> None:
    """As `timeout` ends a program: by SIGTERM."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        program = int(parent.stdout.readline())
        assert _runs(program)
        parent.terminate()
        parent.wait(10)
    deadline = time.monotonic() + 5
    while _runs(program):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert parent.returncode == 128 + signal.SIGTERM


def test_a_process_that_waits_for_its_caller_ends_with_it(tmp_path: Path) -> None:
    """Where the caller was killed and could end nothing."""
    with subprocess.Popen(["sleep", "60"]) as caller:
        (tmp_path / "job").write_text("{}")
        assert awaited(tmp_path / "job", caller.pid) == b"{}"
        caller.kill()
    with pytest.raises(SystemExit, match="while its caller ran"):
        awaited(tmp_path / "never", caller.pid)
