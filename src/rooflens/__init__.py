"""How fast a deep-learning model can run on a device, how fast it does run, and what stands between the two.

The public names are loaded when they are first used, so that ``import rooflens`` costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rooflens.api import (
        calibrate,
        chart,
        check,
        compare,
        count_program,
        counters,
        device,
        devices,
        estimate,
        explain,
        largest_batch,
        measure,
        read,
        region,
        roofline,
        run_study,
        run_study_on_cluster,
        study_records,
        study_report,
        study_status,
        study_verdicts,
        table,
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
    "rooflens.api": (
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
        "roofline",
        "run_study",
        "run_study_on_cluster",
        "study_records",
        "study_report",
        "study_status",
        "study_verdicts",
        "table",
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
