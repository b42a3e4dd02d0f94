"""What happens when in all processes of a command: python benchmarks/measure_events.py OUT [measure resnet18 ...]

The command (default: the one whose wall time has a goal) runs in a process that notes what it sends to its workers,
what they answer, and which part of its time begins. Each line has seconds since that process was started, seconds of
processor time that the worker, or the command itself, has taken until then, and what happened.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rooflens.running.process import start_for
from rooflens.stopwatch import Stopwatch, process_began

USUAL = ["measure", "timm:resnet34", "-b", "1,32,128", "--budget", "0.35"]
OFTEN, PHASES = ("Share",), ("forward", "backward", "optimizer")
"""What is told with each sample."""
CHILD = "ROOFLENS_BENCHMARK_BEGAN"
"""The variable by which the process that runs the command knows when it was started."""


def main() -> None:
    if CHILD in os.environ:
        _command(Path(sys.argv[1]), sys.argv[2:], float(os.environ[CHILD]))
        return
    out, arguments = Path(sys.argv[1]), sys.argv[2:] or USUAL
    began = time.monotonic()
    command = [sys.executable, __file__, str(out), *arguments]
    with subprocess.Popen(command, env=os.environ | {CHILD: str(began)}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read()
        said = time.monotonic() - began
        process.wait()
    ended = f"{said:7.3f} {'':>6} output closed\n{time.monotonic() - began:7.3f} {'':>6} ended: {process.returncode}\n"
    with out.open("a") as file:
        file.write(ended)
    print(out.read_text())


class Events:
    """Lines of what happened."""

    def __init__(self, began: float) -> None:
        self._began, self._lines = began, list[tuple[float, str]]()
        self.of_threads: dict[int, Any] = {}

    def note(self, pid: int | None, what: str) -> None:
        """Note what happened now, to a process."""
        at = time.monotonic() - self._began
        taken = "" if pid is None else f"{_processor_seconds(pid):.2f}"
        self._lines.append((at, f"{at:7.3f} {taken:>6} {what}"))

    def write(self, out: Path) -> None:
        """Write them, in order."""
        out.write_text("".join(f"{line}\n" for _, line in sorted(self._lines)))


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _command(out: Path, arguments: list[str], began: float) -> None:
    del os.environ[CHILD]
    sys.argv = ["rooflens", *arguments]
    events, me = Events(began), os.getpid()
    since = process_began()
    events.note(me, f"interpreter; by its own clock it began at {'?' if since is None else f'{since - began:.3f}'}")
    start_for(sys.argv[1:])
    events.note(me, "workers started")
    from rooflens.running import isolation

    _listen_to(events, isolation)
    from rooflens import cli

    events.note(me, "command line imported")
    entered = Stopwatch.enter

    def enter(watch: Stopwatch, part: str, at: float | None = None) -> None:
        events.note(me, f"part: {part}" + ("" if at is None else f", since {at - began:.3f}"))
        entered(watch, part, at)

    Stopwatch.enter = enter  # type: ignore[assignment, method-assign]
    try:
        cli.main()
    finally:
        events.note(me, "command done")
        events.write(out)


def _listen_to(events: Events, isolation: Any) -> None:
    """Note what goes to and comes from workers."""
    worker = isolation._Worker
    listen, send, kill = worker._listen, worker._send, worker.kill

    def note(its: Any, what: object) -> None:
        events.note(its._process.pid, f"{getattr(its, 'kind', '?'):>8} {what}"[:160])

    def heard(its: Any) -> None:
        events.of_threads[threading.get_ident()] = its
        listen(its)

    def sent(its: Any, line: Any) -> None:
        its.kind = getattr(line, "kind", getattr(its, "kind", "?"))
        note(its, f"<- {type(line).__name__}")
        send(its, line)

    def killed(its: Any) -> None:
        note(its, "is ended")
        kill(its)
        note(its, "has ended")

    class Answers(queue.Queue[Any]):
        def put(self, item: Any, *rest: Any, **named: Any) -> None:
            its, name = events.of_threads.get(threading.get_ident()), getattr(item, "name", "")
            if its is not None and type(item).__name__ not in OFTEN and name not in PHASES:
                since = f", since {item.at - events._began:.3f}" if hasattr(item, "at") else ""
                note(its, f"-> {type(item).__name__} {name}{since}")
            super().put(item, *rest, **named)

    worker._listen, worker._send, worker.kill = heard, sent, killed
    isolation.queue = SimpleNamespace(Queue=Answers, Empty=queue.Empty)


if __name__ == "__main__":
    main()
