"""The command line as records keep it: only what is known to be harmless.

Kept are the tool's own options by name, with numbers, words of its own, and names of devices and models; commands; and
names of files without their folders. Everything else may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import PurePath

from rooflens.devices import find
from rooflens.errors import RooflensError
from rooflens.known_models import known_model
from rooflens.records import DTYPES, EVERY_PHASE, MODES
from rooflens.runs.options import OPTIONS

LEFT_OUT = "***"
"""Stands for one or several words."""
_COMMANDS = (
    "estimate rank advise measure counters calibrate read plot study compare check explain explore models devices"
    " replay"
)
COMMANDS = frozenset(f"{_COMMANDS} run resume status report list show".split())
OF_MODELS = frozenset(("estimate", "rank", "advise", "measure", "counters", "explain"))
"""Commands that a model follows."""
_OTHERS = "allow-missing in-full every largest-batch longest-context open suite version"
_FLAGS = "causal debug estimate fail-if-doubtful force fresh list no-estimate no-recorded quick quiet retry timings"
FLAGS = frozenset(("-q", *(f"--{name}" for name in f"{_FLAGS} {_OTHERS}".split()))) | {
    f"--{name.replace('_', '-')}" for name, line in OPTIONS.items() if line.kind is bool
}
_PRIVATE = "account chart cluster dim gres partition path title vendor work"
PRIVATE = frozenset(f"--{name}" for name in _PRIVATE.split())
"""Options whose values are the user's own words."""
_VALUED = (
    "across against baseline batch budget by cache columns cpus depth device dtype fail-if-slower fail-on figures"
    " folder format jobs junit keep kind level limit max-time-per-token max-time-to-first-token mode model out output"
    " over parallel phase price question reserve roof shape sort source tables time time-limit top trace width"
)
VALUED = frozenset(("-b", "-d", "-j", "-o", *(f"--{name}" for name in _VALUED.split()))) | {
    f"--{name.replace('_', '-')}" for name, line in OPTIONS.items() if line.kind not in (bool, dict)
}
_WORDS = (
    "table json csv md tex text png svg pdf html model phase module family module-family op operator kernel dram l2 l1"
    " all none cpu cuda measured bound runs evidence kernels devices correlation scaling phases throughput answers case"
    " device batch cost energy predicted time dtype mode options info warning error estimate measure counters replay"
    " gpu tpu soc accelerator"
)
WORDS = frozenset((*_WORDS.split(), *DTYPES, *MODES, *EVERY_PHASE)) | {
    word for line in OPTIONS.values() for word in line.choices
}
"""What the choices of the command line are; a test holds them against it."""
_NUMBERS = re.compile(r"[-+]?\d[\d.,xe+-]*(?: ?[kMGT]?i?B|%)?(?::(?:fp|bf|int)\d+)?")
"""Numbers, lists of them, amounts of memory and shapes."""
_MODEL = re.compile(r"(?:timm:|hf:)?[A-Za-z][\w.-]{0,63}")
_SUFFIXES = "py json jsonl toml onnx csv txt tsv sqlite nsys-rep ncu-rep gz html png svg pdf md tex xml log sh ipynb"
_FILE = re.compile(rf"(?:hf:)?[\w+. -]{{1,100}}\.(?:{'|'.join(_SUFFIXES.split())})(?::\w{{1,64}})?")
_PROGRAM = re.compile(r"[\w+.-]{1,64}")
_OURS = "rooflens"


def harmless(command: Sequence[str]) -> tuple[str, ...]:
    """Return what is known to be harmless of a command line.

    >>> harmless(["/home/ann/bin/rooflens", "measure", "resnet18", "-b", "1,2", "--pass", "X", "-o", "/data/a.jsonl"])
    ('rooflens', 'measure', 'resnet18', '-b', '1,2', '***', '-o', 'a.jsonl')
    """
    kept: list[str] = []
    for word, several in groupby(_kept(list(command))):
        kept += [word] if word == LEFT_OUT else several
    return tuple(kept)


def _kept(rest: list[str]) -> Iterator[str]:
    if not rest:
        return
    program = _program(rest.pop(0))
    yield program
    # Words of another program may be anything; so may those that follow an option that is not ours.
    ours, trusted, model_follows = program == _OURS, True, False
    while rest:
        word = rest.pop(0)
        name, sign, value = word.partition("=")
        if word == "--":
            yield word
            yield from (_program(rest.pop(0)),) if rest else ()
            ours, trusted = False, True
        elif word in FLAGS:
            yield word
            trusted = True
        elif name in VALUED or name in PRIVATE:
            value = value if sign or not rest else rest.pop(0)
            number = name in VALUED and _NUMBERS.fullmatch(value) is not None
            shown = LEFT_OUT if name in PRIVATE else value if number else _word(value, name == "--model")
            yield from (name, shown)
            trusted = shown != LEFT_OUT
        elif word.startswith("-") or not trusted:
            yield LEFT_OUT
            trusted = False
        elif ours and word in COMMANDS:
            yield word
            model_follows = word in OF_MODELS
        else:
            yield _word(word, model_follows) if ours else _file(word) or LEFT_OUT
            model_follows = False


def _word(text: str, may_be_model: bool) -> str:
    named = may_be_model and (_MODEL.fullmatch(text) or known_model(text))
    known = text in WORDS or named or _is_device(text)
    return text if known else _file(text) or LEFT_OUT


def _file(text: str) -> str | None:
    """Return the name of a file without its folder; None if it is none that is known to be harmless."""
    name = re.split(r"[/\\]", text)[-1]
    name = f"hf:{name}" if text.startswith("hf:") and not name.startswith("hf:") else name
    return name if _FILE.fullmatch(name) else None


def _program(path: str) -> str:
    """Return the name of a program without its folder."""
    pure = PurePath(path)
    if pure.name == "__main__.py" and pure.parent.name == _OURS:
        return _OURS
    return pure.name if _PROGRAM.fullmatch(pure.name) else LEFT_OUT


@cache
def _is_device(name: str) -> bool:
    """True if the catalogue has a device of this name."""
    if name.lower().endswith(".toml") or not re.fullmatch(r"[\w ().+-]{1,80}", name):
        return False
    try:
        find(name)
    except RooflensError:
        return False
    return True
