"""Which counters to collect on a chip."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from rooflens.errors import InvalidValue
from rooflens.sources.counters.metrics import chips_of, chips_with

_TENSOR = "sm__ops_path_tensor_{}.sum"


def metric_set(cc: str, dtype: str) -> tuple[str, ...]:
    """Return the fewest counters that tell FLOP by precision, bytes by level and time, for a case of a dtype.

    >>> "dram__bytes_op_read.sum" in metric_set("12.0", "fp32"), "dram__bytes_read.sum" in metric_set("9.0", "fp32")
    (True, True)

    Args:
        cc: compute capability.

    Raises:
        InvalidValue: no chip of this compute capability is known.
    """
    if not chips_of(cc):
        raise InvalidValue(
            f"no chip of compute capability {cc} is known: its counters have not been looked up; run ncu yourself with"
            " the metrics that 'ncu --query-metrics' lists, and read what it prints (rooflens read)"
        )
    sets = _sets()
    precisions = (sets["tensor"][precision] for precision in sets["dtypes"][dtype])
    tensor = [[[_TENSOR.format(name) for name in way] for way in ways] for ways in precisions]
    first = (name for ways in (*sets["first_of"], *tensor) for name in _first(ways, cc))
    wanted = [*sets["always"], *there(sets["where_there"], cc), *first]
    return tuple(dict.fromkeys(wanted))


def metric_groups(cc: str, dtype: str) -> tuple[tuple[str, ...], ...]:
    """Return the same counters in groups that are counted apart, each in one pass.

    One pass costs a third of several, since no memory is saved and put back. Only where chips were seen to read a group
    in one pass it is apart.
    """
    names = metric_set(cc, dtype)
    apart = [tuple(n for n in names if n.startswith(prefix)) for prefix in _sets()["apart"].get(cc, ())]
    rest = tuple(n for n in names if not any(n in group for group in apart))
    return (rest, *(group for group in apart if group))


def there(names: Iterable[str], cc: str) -> list[str]:
    """Return those of the names that a chip of a compute capability has.

    Only on 7.5 do chips differ: GTX 16 cards have no tensor cores, and ncu gives such a counter no value there.
    """
    chips = set(chips_of(cc))
    return [name for name in names if not chips.isdisjoint(chips_with(name))]


def _first(ways: Iterable[list[str]], cc: str) -> list[str]:
    """The first way to count something for which a chip has all names; none where it has no such unit."""
    return next((way for way in ways if len(there(way, cc)) == len(way)), [])


@cache
def _sets() -> Mapping[str, Any]:
    return tomllib.loads(files(__package__).joinpath("sets.toml").read_text(encoding="utf-8"))
