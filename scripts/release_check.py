"""Build the wheel and the source distribution, and try them: `.venv/bin/python scripts/release_check.py`.

    python scripts/release_check.py --python python3.11 --python python3.13 --extra "" --extra onnx
    python scripts/release_check.py --wheels FOLDER      no network: pip takes every package from a folder

It looks inside both files, then makes a clean environment for each Python and extra, installs the wheel there with that
extra alone, and runs what needs it. Without --extra it takes those that need no torch, which is some gigabytes; name
torch, vision, llm or all for the others. Results go to stdout, a line each; the exit code is 1 if one failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIGHT = ("", "pandas", "gpu", "onnx", "ncu", "slurm")
READS = "import rooflens as rl; rl.devices(); print(rl.table(rl.read({records!r})))"
TRIES = {
    "torch": "import rooflens as rl, torch; rl.estimate(torch.nn.ReLU(), inputs=torch.zeros(4), name='one').total()",
    "vision": "import rooflens as rl; assert rl.estimate('resnet18', batch=1).parameters == 11_689_512",
    "llm": "import rooflens as rl; rl.estimate('hf:llama', batch=1, seq_len=4).total()",
    "pandas": "import rooflens as rl; rl.read({records!r}).to_pandas()",
    "gpu": "import pynvml",
    "onnx": "import onnx, rooflens.graph.reader",
    "ncu": "import importlib.metadata as m; m.version('ncu-report')",
    "slurm": "import submitit",
}
"""What each extra is for, as a program; "all" is every one of them."""
WITHOUT_TORCH = ("", "pandas", "gpu", "ncu", "slurm", "onnx")


class Failed(Exception):
    """A check that failed, as a sentence."""


def main() -> int:
    """Check, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], help="an interpreter to try; default: this one")
    parser.add_argument("--extra", action="append", default=[], help='an extra to try alone; "" is none')
    parser.add_argument("--wheels", type=Path, help="a folder with all packages: nothing is downloaded")
    given = parser.parse_args()
    if given.wheels is not None:  # pip reads these wherever it runs, also where the wheel is built
        os.environ |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(given.wheels.resolve())}
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        try:
            wheel, sdist = built(place / "dist")
            for line in looked_inside(wheel, sdist):
                print(line, flush=True)
        except Failed as error:
            print(f"FAILED  {error}")
            return 1
        for python in given.python or [sys.executable]:
            for extra in given.extra or LIGHT:
                what = f"{version_of(python)}, {f'extra {extra}' if extra else 'no extra'}"
                try:
                    tried(place / "env", python, wheel, extra)
                    print(f"passed  {what}", flush=True)
                except Failed as error:
                    failed += 1
                    print(f"FAILED  {what}: {error}", flush=True)
    return int(failed > 0)


def built(dist: Path) -> tuple[Path, Path]:
    """Return the wheel and the source distribution; the wheel is made from the latter, as pip would make it."""
    run([sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT)])
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    return wheel, sdist


def looked_inside(wheel: Path, sdist: Path) -> Iterator[str]:
    """Yield what both files hold.

    Raises:
        Failed: something is missing, or two places name another version.
    """
    version = stated(r'__version__ = "(.+)"', ROOT / "src" / "rooflens" / "__init__.py")
    if stated(r"^version: (.+)$", ROOT / "CITATION.cff") != version:
        raise Failed(f"CITATION.cff names another version than {version}")
    if f"## [{version}]" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise Failed(f"CHANGELOG.md has no section [{version}]")
    if wheel.name != f"rooflens-{version}-py3-none-any.whl":
        raise Failed(f"the wheel is called {wheel.name}")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        about = f"rooflens-{version}.dist-info"
        entries = packed.read(f"{about}/entry_points.txt").decode()
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    source = {name for name in source if "__pycache__" not in name}
    needed = source | {f"{about}/licenses/LICENSE", "rooflens/py.typed"}
    if missing := needed - set(names):
        raise Failed(f"the wheel lacks {', '.join(sorted(missing)[:5])}")
    if strange := [name for name in names if not name.startswith(("rooflens/", about))]:
        raise Failed(f"the wheel holds {strange[0]}")
    if "rooflens = rooflens.__main__:main" not in entries:
        raise Failed("the wheel has no command")
    with tarfile.open(sdist) as packed_source:
        top = {name.split("/")[1] for name in packed_source.getnames() if "/" in name}
    if lacking := {"src", "tests", "CITATION.cff", "SECURITY.md", "LICENCES.md", "LICENSE", "CHANGELOG.md"} - top:
        raise Failed(f"the source distribution lacks {', '.join(sorted(lacking))}")
    size = f"{wheel.stat().st_size / 1e6:.1f} MB in {len(names)} files"
    yield f"passed  version {version}, wheel of {size}, source distribution of {sdist.stat().st_size / 1e6:.1f} MB"


def tried(env: Path, python: str, wheel: Path, extra: str) -> None:
    """Install the wheel in a clean environment, and run what its extra is for.

    Raises:
        Failed: it cannot be installed, or something that it has to do fails.
    """
    run([python, "-m", "venv", "--clear", str(env)])
    own = str(env / "bin" / "python")
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    asked = f"{wheel}[{extra}]" if extra else str(wheel)
    run([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *constraints, asked])
    run([own, "-m", "pip", "check"])
    command = str(env / "bin" / "rooflens")
    for words in (["--version"], ["--help"], ["devices", "show", "t4"], ["models"]):
        run([command, *words])
    records = str(next((ROOT / "studies").glob("*/recorded/*.jsonl")))
    extras = (*TRIES,) if extra == "all" else (extra,) if extra else ()
    for code in (READS, *(TRIES[name] for name in extras)):
        run([own, "-c", code.format(records=records)])
    if extra in WITHOUT_TORCH:
        refused = subprocess.run([command, "estimate", "resnet18"], capture_output=True, text=True, check=False)
        if refused.returncode != 1 or "rooflens[" not in refused.stderr:
            raise Failed(f"without torch an estimate says {refused.stderr.strip()[-200:]!r}")


def version_of(python: str) -> str:
    """Return what an interpreter calls itself."""
    done = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or python


def stated(pattern: str, path: Path) -> str:
    """Return what a file says at a place."""
    found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise Failed(f"{path.name} names no version")
    return found[1]


def run(command: Sequence[str]) -> None:
    """Run a program away from the source; Failed with its last line if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tempfile.gettempdir(), env=clean())
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise Failed(f"{' '.join(Path(word).name for word in command[:4])} ended with {done.returncode}: {lines[-1:]}")


def clean() -> dict[str, str]:
    """The environment without a path to the source."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


if __name__ == "__main__":
    sys.exit(main())
