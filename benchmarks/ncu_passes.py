"""Ask CUPTI in how many passes the counters of `rooflens counters` are read; no card is needed:

    PYTHONPATH=src:. python benchmarks/ncu_passes.py --out benchmarks/results/ncu-passes.json

The library is the one that torch for CUDA brings along. It counts as Nsight Compute does: of the sets that were also
asked on cards (results/ncu-sets.json) each has as many passes. Chips that it does not know are left out.
"""

from __future__ import annotations

import argparse
import ctypes
import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.ncu_probe import sets, variants

from rooflens.records import AS_IS, DTYPES
from rooflens.sources.counters.metrics import chips_of
from rooflens.sources.counters.ncu import metric_groups, metric_set

CAPABILITIES = ("7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "12.0")
PACKAGE = "nvidia-cuda-cupti"
_SETS = Path(__file__).parent / "results" / "ncu-sets.json"
_HANDLE, _SIZE, _BYTES = ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint8)


class Refused(Exception):
    """CUPTI does not know a chip, or a counter of it."""


def parameters(**fields: Any) -> type[ctypes.Structure]:
    """Return a structure of parameters, as cupti_profiler_host.h has them."""
    every = [("structSize", _SIZE), ("pPriv", _HANDLE), *fields.items()]
    return type("Parameters", (ctypes.Structure,), {"_fields_": every})


_Initialize = parameters(type=ctypes.c_int, chip=ctypes.c_char_p, available=_HANDLE, host=_HANDLE)
_AddMetrics = parameters(host=_HANDLE, names=ctypes.POINTER(ctypes.c_char_p), number=_SIZE)
_ImageSize = parameters(host=_HANDLE, size=_SIZE)
_Image = parameters(host=_HANDLE, size=_SIZE, image=_BYTES)
_Passes = parameters(size=_SIZE, image=_BYTES, passes=_SIZE)
_Host = parameters(host=_HANDLE)


class Cupti:
    """CUPTI's Profiler Host API, which needs no card."""

    def __init__(self) -> None:
        spec = find_spec("nvidia.cu13")
        folders = [] if spec is None else list(spec.submodule_search_locations or ())
        library = next((path for its in folders for path in Path(its).glob("lib/libcupti.so.*")), None)
        if library is None:
            raise SystemExit(f"there is no CUPTI here; install it (pip install {PACKAGE})")
        self._library = ctypes.CDLL(str(library))

    def passes(self, chip: str, names: Sequence[str]) -> int:
        """Return in how many passes counters are read on a chip."""
        host = self._call("Initialize", _Initialize(chip=chip.encode())).host
        try:
            listed = (ctypes.c_char_p * len(names))(*(name.encode() for name in names))
            self._call("ConfigAddMetrics", _AddMetrics(host=host, names=listed, number=len(names)))
            size = self._call("GetConfigImageSize", _ImageSize(host=host)).size
            image = (ctypes.c_uint8 * size)()
            self._call("GetConfigImage", _Image(host=host, size=size, image=image))
            return int(self._call("GetNumOfPasses", _Passes(size=size, image=image)).passes)
        finally:
            self._call("Deinitialize", _Host(host=host))

    def _call(self, name: str, asked: Any) -> Any:
        asked.structSize = ctypes.sizeof(asked)
        if code := getattr(self._library, f"cuptiProfilerHost{name}")(ctypes.byref(asked)):
            raise Refused(f"{name}: error {code}")
        return asked


def rows(cupti: Cupti) -> Iterator[dict[str, Any]]:
    """Yield the passes of each group of counters by compute capability and dtype."""
    for cc in CAPABILITIES:
        for dtype in (*DTYPES, AS_IS):
            groups = metric_groups(cc, dtype) if dtype != AS_IS else (metric_set(cc, dtype),)  # a program runs once
            try:
                passes = [cupti.passes(chips_of(cc)[0], group) for group in groups]
            except Refused as error:
                print(f"{cc} {dtype}: {error}")
                continue
            yield {
                "cc": cc,
                "chip": chips_of(cc)[0],
                "dtype": dtype,
                "counters": [len(group) for group in groups],
                "passes": passes,
            }


def agreement(cupti: Cupti) -> dict[str, int]:
    """Return of how many sets that cards were asked about CUPTI tells the same passes, and of how many it does not."""
    every = metric_set("9.0", "bf16")
    names = {its.name: its.metrics for its in (*variants(every), *sets(every))}
    found = {"same": 0, "other": 0}
    for row in json.loads(_SETS.read_text())["rows"]:
        its = names.get(row["variant"].removesuffix(", at the same time"))
        if its is not None and len(row["passes"]) == 1:
            same = cupti.passes("GH100", its) == int(row["passes"][0])
            found["same" if same else "other"] += 1
            told = "" if same else ", CUPTI tells another number"
            print(f"{row['variant']}: {row['passes'][0]} on {row['card']}{told}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    out = parser.parse_args().out
    cupti = Cupti()
    found = {"cupti": version(PACKAGE), "cards": agreement(cupti), "rows": list(rows(cupti))}
    for row in found["rows"]:
        print(row)
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
