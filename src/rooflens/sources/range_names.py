"""Names of ranges: how modules, phases and operations are written into a profile, and read from it."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from rooflens.records import EVERY_PHASE, PHASES, Phase

OURS = "rooflens:"
_MODULE, _PHASE, _CALL = f"{OURS}module:", f"{OURS}phase:", f"{OURS}call:"
_TORCH_MODULE = "nn.Module: "
"""How torch.profiler names the calls of modules (`with_stack`, `with_modules`): class and a number."""
_OPTIMIZER = "Optimizer."
"""torch.optim names its own ranges ``Optimizer.step#SGD.step``."""
OPTIMIZER_PATH = "(optimizer)"
"""The path of what an optimizer does."""
LOOP_PATH = "(loop)"
"""The path of what the user's own loop does outside of its model: the loss, for one."""
_THROUGH_PYTHON = ("PythonDispatchMode", "PythonSubclass")
"""torch's ranges around a call that a dispatch mode or a tensor's class takes."""
_MOST_DIGITS = 10
_EMITTED = re.compile(r", (?:(?:stashed )?seq ?= ?(\d{1,18})|(?:op_id|sizes|input_op_ids) = )")
"""What torch writes behind the name of an operation or a range; until 2020 it marked the number of a node."""


def module_range(path: str) -> str:
    """Return the name of the range in which the module at `path` runs.

    Quoted: a key of a ModuleDict may hold what a profiler cannot write into its file.
    """
    return _MODULE + quote(path, safe="")


def phase_range(phase: Phase) -> str:
    """Return the name of the range of a phase."""
    return _PHASE + phase


def call_range(number: int) -> str:
    """Return the name of the range around a call of an operation; calls of a step are numbered from 0."""
    return f"{_CALL}{number}"


def call_of(name: str) -> int | None:
    """Return the number of the call whose range has this name, None if it is no such range.

    >>> call_of(call_range(12)), call_of("rooflens:call:x"), call_of("aten::mm")
    (12, None, None)
    """
    number = name.removeprefix(_CALL)
    return int(number) if number != name and number.isdecimal() and len(number) < _MOST_DIGITS else None


def module_of(name: str, inside: str | None) -> str | None:
    """Return the path of the module whose range has this name, None if it is no such range.

    torch's own ranges of modules have class and number only: their paths are those words, from outside in.

    >>> module_of("rooflens:module:layer1.0", None), module_of("nn.Module: Linear_2", "Net_0")
    ('layer1.0', 'Net_0.Linear_2')
    """
    if name.startswith(_MODULE):
        return unquote(name.removeprefix(_MODULE))
    if name.startswith(_TORCH_MODULE):
        return ".".join(filter(None, [inside, name.removeprefix(_TORCH_MODULE)]))
    return None


def phase_of(name: str, plain: bool = False) -> Phase | None:
    """Return the phase whose range has this name, None if it is no such range.

    A `plain` name counts too: ``Forward``, as users write it.
    """
    ours = name.startswith(_PHASE)
    word = name.removeprefix(_PHASE) if ours else name.lower() if plain else ""
    return next((phase for phase in (EVERY_PHASE if ours else PHASES) if word == phase), None)


def is_optimizer(name: str) -> bool:
    """True if a range is one of torch.optim's."""
    return name.startswith(_OPTIMIZER)


def is_detour(name: str) -> bool:
    """True if a range is torch's own around a call that goes through Python: it tells nothing of the call."""
    return name in _THROUGH_PYTHON


def emitted(text: str) -> tuple[str, int | None]:
    """Return a name without what emit_nvtx writes behind it, and the autograd number in that.

    >>> emitted("aten::conv2d, seq = 216, op_id = 1080"), emitted("layer1")
    (('aten::conv2d', 216), ('layer1', None))
    """
    written = _EMITTED.search(text)
    if written is None:
        return text, None
    return text[: written.start()], None if written[1] is None else int(written[1])
