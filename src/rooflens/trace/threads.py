"""Threads that a step starts: nothing counts what runs in them. A trace refuses it, and a counted iteration says so."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import thread as pools
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from types import FrameType
from typing import Any, NoReturn
from unittest.mock import patch

from torch.utils._python_dispatch import TorchDispatchMode

from rooflens.errors import ModelError, cut
from rooflens.models.installed import is_installed

PATIENCE = 1.0
"""Seconds after a step for what it started to end."""


class RunsElsewhere(ModelError):
    """What runs in a thread of its own cannot be counted; raised there. The tracing thread raises an error anyway."""


class OtherThreads:
    """The threads that one thread starts meanwhile, the tasks that it gives to pools of threads, and what they start.

    Attributes:
        refuses: an operation of torch in them is an error there.
        seen: what ran in them and was not counted, as sentences.
        over: nothing of what they do matters any more.
    """

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses
        self.seen: list[str] = []
        self.over = False
        self.owner = threading.get_ident()
        self.inside: set[int] = set()
        self.submits = False
        self.started: list[threading.Thread] = []
        self.tasks: list[Future[Any]] = []

    def watched(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return what a thread does, so that its operations are seen. One that is refused ends without a traceback."""

        @wraps(work)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.inside.add(threading.get_ident())
            try:
                with _Seeing(self):
                    return work(*args, **kwargs)
            finally:
                self.inside.discard(threading.get_ident())

        return run

    def went_on(self) -> tuple[str, ...]:
        """Wait a little for the end of what was started, and return a note for each that goes on."""
        left = wait(self.tasks, PATIENCE).not_done
        for thread in self.started:
            if not _is_idle(thread):
                thread.join(PATIENCE)
        names = [thread.name for thread in self.started if thread.is_alive() and not _is_idle(thread)]
        names += [f"a task of a pool ({task})" for task in left]
        return tuple(
            f"{cut(name, 200)}, which the step started, went on when the step had ended: what it does is not counted"
            for name in names
        )


class _Seeing(TorchDispatchMode):
    """Sees every operation of torch in a thread."""

    def __init__(self, others: OtherThreads) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._others = others

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self._others.over:
            saw(self._others, str(func))
        return func(*args, **kwargs or {})


def saw(others: OtherThreads | None, what: str) -> None:
    """Note what runs in this thread; raise RunsElsewhere if that is refused."""
    where = f"{what} runs in the thread {cut(threading.current_thread().name, 100)!r}, which is not that of the model"
    if others is not None and not others.refuses:
        others.seen.append(where)
    else:
        refuse(others, where)


def refuse(others: OtherThreads | None, where: str) -> NoReturn:
    """End the work of this thread; the tracing thread tells why, whatever it makes of what is missing then."""
    message = f"{where}: what runs there cannot be counted; call it in the thread of the model"
    if others is not None:
        others.seen.append(message)
    raise RunsElsewhere(message)


def _is_idle(thread: threading.Thread) -> bool:
    """True if this is a thread of a pool that waits for its next task."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_filename == pools.__file__ and frame.f_code.co_name == "_worker"


_LOCK = threading.Lock()
_FOLLOWED: list[OtherThreads] = []
_PATCHES = ExitStack()


@contextmanager
def followed(others: OtherThreads) -> Iterator[None]:
    """Follow what this thread starts. Python's own functions are patched while any thread is followed."""
    with _LOCK:
        if not _FOLLOWED:
            _patch(_PATCHES)
        _FOLLOWED.append(others)
    try:
        yield
    finally:
        others.over = True
        with _LOCK:
            _FOLLOWED.remove(others)
            if not _FOLLOWED:
                _PATCHES.close()


def starter() -> OtherThreads | None:
    """Return whose thread or task this thread is; None if nobody who is followed has started it."""
    thread = threading.get_ident()
    return next((others for others in reversed(_FOLLOWED) if thread in others.inside), None)


def of_owner(owner: int) -> OtherThreads | None:
    """Return what a thread that traces follows; None if it traces nothing."""
    return next((others for others in reversed(_FOLLOWED) if others.owner == owner), None)


def _patch(patches: ExitStack) -> None:
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def starting(thread: threading.Thread) -> None:
        others = of_owner(threading.get_ident()) or starter()
        if others is not None and not others.submits:  # a pool's own threads live on after a task
            others.started.append(thread)
            thread.run = _silent(others.watched(thread.run))  # type: ignore[method-assign]
        start(thread)

    def submitting(pool: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        others = of_owner(threading.get_ident()) or starter()
        if others is None:
            return submit(pool, work, *args, **kwargs)
        others.submits = True
        try:
            task: Future[Any] = submit(pool, others.watched(work), *args, **kwargs)
        finally:
            others.submits = False
        others.tasks.append(task)
        return task

    patches.enter_context(patch.object(threading.Thread, "start", starting))
    patches.enter_context(patch.object(ThreadPoolExecutor, "submit", submitting))
    patches.enter_context(patch.object(threading, "excepthook", _quiet(threading.excepthook)))
    patches.enter_context(patch.object(sys, "unraisablehook", _quiet(sys.unraisablehook)))


def _silent(work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        with suppress(RunsElsewhere):
            work()

    return run


def _quiet(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook for errors that end threads, which says nothing of what is refused: the tracing thread tells it."""

    def quiet(ended: Any) -> None:
        if not issubclass(ended.exc_type, RunsElsewhere):
            hook(ended)

    return quiet


@contextmanager
def own_thread(name: str) -> Iterator[list[str]]:
    """Refuse what a step runs in other threads than this; gives notes, which are there at the end.

    Raises:
        ModelError: something ran there; in place of whatever came of it here.
    """
    others, notes = OtherThreads(refuses=True), list[str]()
    try:
        with followed(others):
            yield notes
            notes += others.went_on()
    finally:
        if others.seen:
            raise ModelError(f"{name}: {others.seen[0]}")


def bystanders() -> Iterator[str]:
    """Yield a note where other threads run code of the program: real tensors that a step hands to them are not seen."""
    frames = sys._current_frames()
    names = [
        cut(thread.name, 100)
        for thread in threading.enumerate()
        if thread is not threading.current_thread() and _runs_own_code(frames.get(thread.ident or 0))
    ]
    if names:
        yield (
            f"other threads of the program ran beside the step ({', '.join(names[:5])}): what it may have handed to"
            " them is not counted"
        )


def _runs_own_code(frame: FrameType | None) -> bool:
    """True if a frame, or one that called it, is of no installed package."""
    while frame is not None:
        if not is_installed(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False
