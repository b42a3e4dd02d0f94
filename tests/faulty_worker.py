"""A worker whose cells do what they are told, for tests of isolation: die, hang, starve, or answer."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from rooflens.running import isolation
from rooflens.running.jobs import Share, StageEntered


def begin(setup: dict[str, Any]) -> isolation.Serve:
    served = 0

    def run(cell: dict[str, Any], tell: isolation.AnswerListener) -> bool:
        nonlocal served
        served += 1
        tell(StageEntered(name="forward"))
        print("what a model prints is no answer")  # noqa: T201
        time.sleep(cell.get("after", 0.0))
        match cell["fault"]:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                time.sleep(1000)
            case "exit":
                os._exit(3)
            case "raise":
                raise ValueError("wrong number")
            case "ask":
                input("is anybody there? ")
            case "starve":
                raise MemoryError
        with Path(setup["log"]).open("a") as log:
            log.write(f"{cell['number']}\n")
        tell(Share(done=0.5))
        tell(StageEntered(name=f"{os.getpid()} served {served}"))
        return bool(cell["fault"] != "unfit")

    return run


if __name__ == "__main__":
    isolation.serve(begin, start=dict, job=dict)
