"""Workers: whatever a cell does to its process, the others are served, once each."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rooflens.running.endings import EndedProcess, ending
from rooflens.running.isolation import Lost, Workers
from rooflens.running.jobs import Answer, Done, StageEntered

ENTRY = "tests.faulty_worker"
FAULTS = ("kill", "segfault", "hang", "exit", "raise", "starve")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


def workers(log: Path, limit: float = 20.0, **options: Any) -> Workers:
    return Workers({"log": str(log)}, limit=limit, program=ENTRY, **options)


def told_of(answers: list[Answer]) -> list[tuple[int, int]]:
    """The process and the number of each job that it served, as :mod:`tests.faulty_worker` tells them."""
    stages = [answer.name.split() for answer in answers if isinstance(answer, StageEntered) and "served" in answer.name]
    return [(int(pid), int(count)) for pid, _, count in stages]


def served(log: Path) -> list[int]:
    return [int(line) for line in log.read_text().split()]


def test_one_worker_serves_one_cell_after_another(log: Path) -> None:
    told: list[Answer] = []
    with workers(log) as pool:
        for number in range(3):
            assert pool.run({"number": number, "fault": None}, told.append) == Done(fit=True)
    assert [count for _, count in told_of(told)] == [1, 2, 3]
    assert len({pid for pid, _ in told_of(told)}) == 1
    assert served(log) == [0, 1, 2]


@pytest.mark.parametrize(("fresh", "fault"), [(True, None), (False, "unfit")])
def test_a_worker_is_replaced_when_asked_for_and_when_it_is_not_fit(log: Path, fresh: bool, fault: str | None) -> None:
    told: list[Answer] = []
    with workers(log, fresh=fresh) as pool:
        for number in range(2):
            pool.run({"number": number, "fault": fault}, told.append)
    assert [count for _, count in told_of(told)] == [1, 1]


ENDED = "the worker process ended by itself with code 1 before it gave an answer: "


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("kill", "crash", "the worker process was killed by SIGKILL; memory had not run out"),
        ("spin", "crash", "the worker process was killed by SIGKILL, since its limit of processor time, "),
        ("spin softly", "crash", "the worker process was killed by SIGXCPU, since its limit of processor time, "),
        ("flood", "crash", "the worker process ended by itself with code 4 before it gave an answer: last"),
        ("segfault", "crash", "the worker process was killed by SIGSEGV: File"),
        ("exit", "crash", "the worker process ended by itself with code 3 before it gave an answer"),
        (
            "raise",
            "crash",
            ENDED + "ValueError: wrong number",
        ),
        ("ask", "crash", ENDED + "EOFError"),
        ("starve", "crash", ENDED + "MemoryError"),
        ("hang", "timeout", "the time limit of 1 s was over; it was killed"),
    ],
)
def test_how_a_cell_was_lost_is_told(log: Path, fault: str, kind: str, message: str) -> None:
    with workers(log, limit=1.0 if fault == "hang" else math.inf) as pool:
        lost = pool.run({"number": 0, "fault": fault})
    assert isinstance(lost, Lost)
    assert (lost.kind, lost.stage) == (kind, "forward")
    assert lost.message.startswith(message)


def test_the_last_words_are_those_of_the_job_that_was_lost(log: Path) -> None:
    with workers(log) as pool:
        pool.run({"number": 0, "fault": None, "says": "of an earlier job"})
        lost = pool.run({"number": 1, "fault": "exit", "says": ""})
    assert isinstance(lost, Lost)
    assert lost.message == "the worker process ended by itself with code 3 before it gave an answer"


def test_a_copy_that_a_model_forks_does_not_answer(log: Path) -> None:
    told: list[Answer] = []
    with workers(log) as pool:
        for number in range(2):
            assert pool.run({"number": number, "fault": "copy"}, told.append) == Done(fit=True)
    assert [count for _, count in told_of(told)] == [1, 2]
    assert len({pid for pid, _ in told_of(told)}) == 1


def test_what_a_model_leaves_behind_ends_with_its_worker(log: Path, tmp_path: Path) -> None:
    note = tmp_path / "left"
    with workers(log, limit=60.0) as pool:
        begun = time.monotonic()
        lost = pool.run({"number": 0, "fault": "leave", "left": str(note)})
        assert isinstance(lost, Lost)
        assert lost.message.startswith("the worker process ended by itself with code 5 before it gave an answer")
        assert time.monotonic() - begun < 60  # and not when the one that holds its pipes ends
        assert pool.run({"number": 1, "fault": None}) == Done(fit=True)
    assert not _runs(int(note.read_text()))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (3, 4, "was killed by SIGKILL, as the system does when memory runs out"),
        (3, 3, "was killed by SIGKILL; memory had not run out"),
        (None, None, "was killed by SIGKILL, as the system does when memory runs out, and as others may do"),
    ],
)
def test_a_kill_is_one_for_memory_where_the_system_counted_one(
    before: int | None, after: int | None, message: str
) -> None:
    evidence = EndedProcess(seconds=100.0, limit=None, memory_kills=after)
    assert ending(-signal.SIGKILL, evidence, before) == message


def test_random_faults_at_random_points_cost_their_own_cells_only(log: Path) -> None:
    chance = random.Random(2026)
    faults = [*FAULTS * 4, *[None] * 24]
    chance.shuffle(faults)
    answers: list[Done | Lost] = []
    with workers(log, limit=1.5) as pool:
        for number, fault in enumerate(faults):
            answers.append(pool.run({"number": number, "fault": fault, "after": chance.uniform(0, 0.05)}))
    healthy = [number for number, fault in enumerate(faults) if fault is None]
    assert served(log) == healthy  # every one, in order, and none twice
    assert [number for number, answer in enumerate(answers) if not isinstance(answer, Lost)] == healthy
    assert sum(isinstance(answer, Lost) for answer in answers) == 24


def test_a_worker_that_somebody_else_kills_costs_the_cell_it_was_at(log: Path) -> None:
    pids: list[int] = []

    def tell(answer: Answer) -> None:
        pids.extend(pid for pid, _ in told_of([answer]))

    with workers(log) as pool:
        pool.run({"number": 0, "fault": None}, tell)
        threading.Timer(0.3, lambda: os.kill(pids[0], signal.SIGKILL)).start()
        lost = pool.run({"number": 1, "fault": "hang"})
        assert isinstance(lost, Lost)
        assert lost.kind == "crash"
        assert pool.run({"number": 2, "fault": None}, tell) == Done(fit=True)
    assert pids[0] != pids[1]
    assert served(log) == [0, 2]


def test_a_worker_that_is_killed_between_two_cells_costs_none(log: Path) -> None:
    pids: list[int] = []

    def tell(answer: Answer) -> None:
        pids.extend(pid for pid, _ in told_of([answer]))

    with workers(log) as pool:
        for number in range(2):
            assert pool.run({"number": number, "fault": None}, tell) == Done(fit=True)
            os.kill(pids[-1], signal.SIGKILL)
            os.waitid(os.P_PID, pids[-1], os.WEXITED | os.WNOWAIT)  # it is gone, and still there to be asked
    assert len(set(pids)) == 2
    assert served(log) == [0, 1]


def test_a_worker_that_cannot_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    with Workers({}, limit=5, program="tests.no_such_worker") as pool:
        lost = pool.run({})
    assert isinstance(lost, Lost)
    assert (lost.kind, lost.stage) == ("crash", "start")
    assert "No module named" in lost.message


def test_no_worker_outlives_its_caller(log: Path) -> None:
    program = (
        "import os, signal\n"
        "from rooflens.running.isolation import Workers\n"
        f"pool = Workers({{'log': {str(log)!r}}}, limit=100, program={ENTRY!r})\n"
        "pool.run({'number': 0, 'fault': None}, lambda a: print(getattr(a, 'name', ''), flush=True))\n"
        "pool.run({'number': 1, 'fault': 'hang'}, lambda a: os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    paths = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": paths},
    )
    assert done.returncode == -signal.SIGKILL
    worker = next(int(line.split()[0]) for line in done.stdout.splitlines() if "served" in line)
    for _ in range(100):
        if not _runs(worker):
            break
        time.sleep(0.1)
    assert not _runs(worker)


def _runs(pid: int) -> bool:
    """Whether a process is there and is no zombie that nobody collects."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
