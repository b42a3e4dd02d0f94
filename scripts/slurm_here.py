"""Run a Slurm of one node on this machine, as root in a container too: controller, node and munge on loopback.

::

    python3 scripts/slurm_here.py install             # Debian's packages, where something is missing
    python3 scripts/slurm_here.py run COMMAND...      # start, run a command that finds this Slurm, stop
    python3 scripts/slurm_here.py run bash            # the same, to look around

Everything lies in one temporary folder, configuration, key and sockets included; nothing in /etc is read or changed, so
several can run at once. The node has the cores of the machine. Jobs of the partition `urgent` preempt those of
`main`, which are queued again. There is no accounting: `sacct` fails, as on clusters without it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PROGRAMS = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "setpriv": "util-linux",
}
"""What is needed, and Debian's package with it; slurm-wlm is the sum of the slurm ones."""
NODE_FIELDS = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")
START_SECONDS = 30.0
STOP_SECONDS = 30.0
CONFIGURATION = """\
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
MailProg=/bin/true
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
KillWait=2
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 {node}
PartitionName=main Nodes=ALL Default=YES PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF
"""


class Unavailable(Exception):
    """Slurm cannot run here; the message says what is missing."""


def missing() -> str:
    """Why Slurm cannot be started on this machine; empty if it can."""
    if sys.platform != "linux":
        return f"Slurm runs on Linux, this is {sys.platform}"
    absent = [name for name in PROGRAMS if not _found(name)]
    if absent:
        return f"no {', '.join(absent)} here; install with: python3 scripts/slurm_here.py install"
    return "" if os.geteuid() == 0 else "this Slurm runs as root (SlurmUser=root), and you are not"


def install() -> str:
    """Install what is missing from Debian's packages; what was done, or why nothing could be.

    Raises:
        subprocess.CalledProcessError: apt-get failed.
    """
    packages = sorted({package for name, package in PROGRAMS.items() if not _found(name)})
    if not packages:
        return "nothing to install: Slurm and munge are here"
    if not shutil.which("apt-get") or os.geteuid() != 0:
        needs = "root" if shutil.which("apt-get") else "apt-get"
        return f"cannot install {', '.join(packages)} without {needs}: tests that need Slurm will say so"
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in ("update", "install --yes --no-install-recommends " + " ".join(packages)):
        subprocess.run(["apt-get", "-qq", *words.split()], env=quiet, check=True)
    return f"installed {', '.join(packages)}"


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """Slurm runs inside this block; yields the environment variables with which commands find it.

    The daemons are children of this process and end with it, however it ends. Jobs that are left are cancelled, and
    what then still runs with this Slurm's environment is killed: a job that is cancelled while it starts can leave a
    process behind.

    Raises:
        Unavailable: something is missing, or a daemon did not start; its last words are in the message.
    """
    if why := missing():
        raise Unavailable(why)
    with tempfile.TemporaryDirectory(prefix="slurm-", ignore_cleanup_errors=True) as name, ExitStack() as daemons:
        folder = Path(name)
        folder.chmod(0o711)  # munge wants its socket to be reachable for everybody
        (folder / "spool").mkdir()
        (folder / "munge.key").touch(mode=0o600)
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "slurm.conf").write_text(_configuration(folder))
        found = {"SLURM_CONF": str(folder / "slurm.conf")}
        daemons.callback(_kill_what_is_left, folder)  # the first callback, so it runs after the daemons have ended
        files = {part: folder / f"munge.{part}" for part in ("socket", "key-file", "pid-file", "seed-file")}
        files["key-file"] = folder / "munge.key"
        daemons.enter_context(
            _daemon(folder, found, "munged", "--foreground", *(f"--{k}={v}" for k, v in files.items()))
        )
        _wait_for(folder, "munged", files["socket"].exists)
        daemons.enter_context(_daemon(folder, found, "slurmctld", "-D", "-c"))
        daemons.enter_context(_daemon(folder, found, "slurmd", "-D"))
        _wait_for(folder, "slurmctld and slurmd", lambda: _says(found, "sinfo", "-h", "-o", "%T").startswith("idle"))
        try:
            yield found
        finally:
            _cancel_all(found)


def _found(program: str) -> str | None:
    """Where a program lies: daemons are in folders that an ordinary user's path lacks."""
    return shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))


def _configuration(folder: Path) -> str:
    """The text of slurm.conf, with ports that are free now and the cores that slurmd itself finds."""
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        controller_port, node_port = one.getsockname()[1], other.getsockname()[1]
    seen = dict(word.split("=", 1) for word in _says({}, "slurmd", "-C").split() if "=" in word)
    return CONFIGURATION.format(
        folder=folder,
        host=seen["NodeName"],
        node=" ".join(f"{field}={seen[field]}" for field in NODE_FIELDS),
        controller_port=controller_port,
        node_port=node_port,
    )


@contextmanager
def _daemon(folder: Path, environment: dict[str, str], name: str, *arguments: str) -> Iterator[None]:
    """A daemon in the foreground, as a child of this process: nobody else would reap it in a container."""
    program = _found(name)
    assert program is not None
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", program, *arguments],
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the command; the daemons are needed to end its jobs
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(folder: Path, what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            logs = "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in sorted(folder.glob("*.log")))
            raise Unavailable(f"{what} did not start within {START_SECONDS:g} s\n{logs}")
        time.sleep(0.1)


def _cancel_all(environment: dict[str, str]) -> None:
    """Cancel what is left and wait until it is gone, so that no job outlives its Slurm."""
    _says(environment, "scancel", "--user=root")
    deadline = time.monotonic() + STOP_SECONDS
    while _says(environment, "squeue", "-h") and time.monotonic() < deadline:
        time.sleep(0.1)


def processes_of(folder: Path) -> list[int]:
    """The processes other than this one in whose command or environment a Slurm's folder stands."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            with suppress(OSError):  # it ended just now
                said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if str(folder).encode() in said:
                    found.append(int(entry.name))
    return found


def _kill_what_is_left(folder: Path) -> None:
    for process in processes_of(folder):
        with suppress(ProcessLookupError):  # it ended just now
            os.kill(process, signal.SIGKILL)


def _says(environment: dict[str, str], program: str, *arguments: str) -> str:
    """What a command prints; empty if it cannot."""
    with suppress(subprocess.TimeoutExpired):
        return subprocess.run(
            [_found(program) or program, *arguments],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        ).stdout
    return ""


def main(words: list[str]) -> int:
    """The command line: the exit code of the command that ran, 1 if Slurm cannot run here, 2 for wrong usage."""
    if words == ["install"]:
        print(install(), file=sys.stderr)
        return 0
    if words[:1] != ["run"] or len(words) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the daemons are stopped
    try:
        with running() as environment:
            print(f"Slurm runs: {shlex.join(f'{k}={v}' for k, v in environment.items())}", file=sys.stderr)
            return subprocess.run(words[1:], env=os.environ | environment, check=False).returncode
    except Unavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
