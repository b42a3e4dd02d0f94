"""How fast a deep-learning model can run on a device, how fast it does run, and what stands between the two.

The public names are loaded when they are first used, so that ``import rooflens`` costs next to nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers; what Python loads stands below
    from rooflens.api.catalogue import calibrate as calibrate
    from rooflens.api.catalogue import device as device
    from rooflens.api.catalogue import devices as devices
    from rooflens.api.catalogue import models as models
    from rooflens.api.checking import check as check
    from rooflens.api.choosing import advise as advise
    from rooflens.api.choosing import rank as rank
    from rooflens.api.comparing import compare as compare
    from rooflens.api.counting import count_program as count_program
    from rooflens.api.counting import counters as counters
    from rooflens.api.estimation import estimate as estimate
    from rooflens.api.estimation import largest_batch as largest_batch
    from rooflens.api.estimation import longest_context as longest_context
    from rooflens.api.explaining import explain as explain
    from rooflens.api.measurement import measure as measure
    from rooflens.api.reading import read as read
    from rooflens.api.regions import region as region
    from rooflens.api.replaying import replay as replay
    from rooflens.api.showing import chart as chart
    from rooflens.api.showing import explore as explore
    from rooflens.api.showing import roofline as roofline
    from rooflens.api.showing import table as table
    from rooflens.api.studies import run_study as run_study
    from rooflens.api.studies import run_study_on_cluster as run_study_on_cluster
    from rooflens.api.studies import study_records as study_records
    from rooflens.api.studies import study_report as study_report
    from rooflens.api.studies import study_status as study_status
    from rooflens.api.studies import study_verdicts as study_verdicts
    from rooflens.costs import Demand as Demand
    from rooflens.costs import register_operation as register_operation
    from rooflens.errors import RooflensError as RooflensError
    from rooflens.records import Call as Call
    from rooflens.records import Case as Case
    from rooflens.records import Ceiling as Ceiling
    from rooflens.records import Device as Device
    from rooflens.records import Record as Record
    from rooflens.records import Timing as Timing
    from rooflens.records import Work as Work
    from rooflens.results import RecordSet as RecordSet

    __all__: list[str]

__version__ = "0.1.0"

_HOMES = {
    "rooflens.api.catalogue": "calibrate device devices models",
    "rooflens.api.checking": "check",
    "rooflens.api.comparing": "compare",
    "rooflens.api.counting": "count_program counters",
    "rooflens.api.estimation": "estimate largest_batch longest_context",
    "rooflens.api.explaining": "explain",
    "rooflens.api.measurement": "measure",
    "rooflens.api.choosing": "advise rank",
    "rooflens.api.reading": "read",
    "rooflens.api.replaying": "replay",
    "rooflens.api.regions": "region",
    "rooflens.api.showing": "chart explore roofline table",
    "rooflens.api.studies": "run_study run_study_on_cluster study_records study_report study_status study_verdicts",
    "rooflens.costs": "Demand register_operation",
    "rooflens.errors": "RooflensError",
    "rooflens.records": "Call Case Ceiling Device Record Timing Work",
    "rooflens.results": "RecordSet",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


if not TYPE_CHECKING:  # a type checker that saw this would accept any misspelt name
    __all__ = [*_HOME_OF, "__version__"]  # noqa: PLE0604

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
