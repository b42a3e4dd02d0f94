"""How fast a deep-learning model can run on a device, how fast it does run, and what stands between the two.

The public names are loaded when they are first used, so that ``import rooflens`` costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rooflens.api.catalogue import calibrate, device, devices
    from rooflens.api.checking import check
    from rooflens.api.comparing import compare
    from rooflens.api.counting import count_program, counters
    from rooflens.api.estimation import estimate, largest_batch
    from rooflens.api.explaining import explain
    from rooflens.api.measurement import measure
    from rooflens.api.reading import read
    from rooflens.api.regions import region
    from rooflens.api.showing import chart, roofline, table
    from rooflens.api.studies import (
        run_study,
        run_study_on_cluster,
        study_records,
        study_report,
        study_status,
        study_verdicts,
    )
    from rooflens.costs import Demand, register_operation
    from rooflens.errors import RooflensError
    from rooflens.records import Call, Case, Ceiling, Device, Record, Timing, Work
    from rooflens.results import RecordSet

__version__ = "0.1.0"

__all__ = [
    "Call",
    "Case",
    "Ceiling",
    "Demand",
    "Device",
    "Record",
    "RecordSet",
    "RooflensError",
    "Timing",
    "Work",
    "__version__",
    "calibrate",
    "chart",
    "check",
    "compare",
    "count_program",
    "counters",
    "device",
    "devices",
    "estimate",
    "explain",
    "largest_batch",
    "measure",
    "read",
    "region",
    "register_operation",
    "roofline",
    "run_study",
    "run_study_on_cluster",
    "study_records",
    "study_report",
    "study_status",
    "study_verdicts",
    "table",
]

_HOMES = {
    "rooflens.api.catalogue": (
        "calibrate",
        "device",
        "devices",
    ),
    "rooflens.api.checking": ("check",),
    "rooflens.api.comparing": ("compare",),
    "rooflens.api.counting": (
        "count_program",
        "counters",
    ),
    "rooflens.api.estimation": (
        "estimate",
        "largest_batch",
    ),
    "rooflens.api.explaining": ("explain",),
    "rooflens.api.measurement": ("measure",),
    "rooflens.api.reading": ("read",),
    "rooflens.api.regions": ("region",),
    "rooflens.api.showing": (
        "chart",
        "roofline",
        "table",
    ),
    "rooflens.api.studies": (
        "run_study",
        "run_study_on_cluster",
        "study_records",
        "study_report",
        "study_status",
        "study_verdicts",
    ),
    "rooflens.costs": ("Demand", "register_operation"),
    "rooflens.errors": ("RooflensError",),
    "rooflens.records": ("Call", "Case", "Ceiling", "Device", "Record", "Timing", "Work"),
    "rooflens.results": ("RecordSet",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker that saw this would accept any misspelt name

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return __all__


class _Package(ModuleType):
    """Keeps a public function in its place when a subpackage of the same name is imported.

    Python sets every imported submodule on its parent. ``rooflens.roofline`` the package would thereby replace
    ``rooflens.roofline`` the function, at a moment that depends on who imports what first. The name belongs to the
    function; the package is reached as ``from rooflens.roofline import ...``.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOME_OF or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
