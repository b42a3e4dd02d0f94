"""Names of ranges: how the module that runs and the phase of the step are written into a profile, and read from it."""

from __future__ import annotations

from urllib.parse import quote, unquote

from rooflens.records import PHASES, Phase

_MODULE, _PHASE = "rooflens:module:", "rooflens:phase:"
_FOREIGN_MODULE = "nn.Module: "
"""How torch.profiler names the calls of modules (`with_stack`, `with_modules`): class and a number."""
_OPTIMIZER = "Optimizer."
"""torch.optim names its own ranges ``Optimizer.step#SGD.step``."""


def module_range(path: str) -> str:
    """The name of the range in which the module at `path` runs.

    Quoted: a key of a ModuleDict may hold what a profiler cannot write into its file.
    """
    return _MODULE + quote(path, safe="")


def phase_range(phase: Phase) -> str:
    """The name of the range of a phase."""
    return _PHASE + phase


def module_of(name: str, inside: str | None) -> str | None:
    """The path of the module whose range has this name, None if it is no such range.

    torch's own ranges of modules tell only class and number: their paths are those words, from outside in.

    >>> module_of("rooflens:module:layer1.0", None), module_of("nn.Module: Linear_2", "Net_0")
    ('layer1.0', 'Net_0.Linear_2')
    """
    if name.startswith(_MODULE):
        return unquote(name.removeprefix(_MODULE))
    if name.startswith(_FOREIGN_MODULE):
        return ".".join(filter(None, [inside, name.removeprefix(_FOREIGN_MODULE)]))
    return None


def phase_of(name: str) -> Phase | None:
    """The phase whose range has this name, None if it is no such range."""
    return next((phase for phase in PHASES if name == _PHASE + phase), None)


def is_optimizer(name: str) -> bool:
    """Whether a range is one of torch.optim's."""
    return name.startswith(_OPTIMIZER)
