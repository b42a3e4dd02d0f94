"""Files of the Empirical Roofline Tool and of NERSC's scripts, made by their form with numbers of our own."""

from __future__ import annotations

import json
from typing import Any

KEYWORDS = """\
memroofs 8000 2500.5 800
mem_roof_names 'L1' 'L2' 'HBM'
comproofs 7000 3500
comp_roof_names 'FMA' 'No-FMA'

# omit the following if only plotting roofs
AI_HBM 2.5 10
AI_L2 2 4
AI_L1 0.8 nan
FLOPS 1800 4200
labels 'small #1''large'
"""
REPORT = """\
  288.50 FP32 GFLOPs EMP
META_DATA
FLOPS          16
OPENMP_THREADS 4
CONFIG  {'ERT_RESULTS': ['Results.here'], 'ERT_GPU': [False]}

 1000.25 L1 EMP
  500.50 L2 EMP
  290.00 L3 EMP
   68.75 DRAM EMP
META_DATA
UNAME  ('Linux', 'x86_64')
"""
SUM = "    11.03 GFLOPs\n\n  1458.88 Weight\n\n   176.44 L1\n    18.30 DRAM\n\nMETA_DATA\nFLOPS 1\n"
# 64 B: 2 x 64 x 1000 B in 1 us are 128 GB/s at best, and 8 FLOP per 8 B are 64 GFLOP/s. 64 MB: 128 MB in 2 ms are
# 64 GB/s at best.
TRY = """\
          64         1000           1.000       128000        64000
          64         1000           2.000       128000        64000
    64000000            1        2000.000    128000000     64000000
    64000000            2        8000.000    256000000    128000000

META_DATA
FLOPS          8
GPU_BLOCKS     80
GPU_THREADS    64
"""


def ert(gflops: Any = 288.5, *, gpu: bool = False) -> dict[str, Any]:
    levels = [["L1", 1000.25], ["L2", 500.5], ["L3", 290.0], ["DRAM", 68.75]]
    metadata: dict[str, Any] = {"ERT_VERSION": "1.1.0", "CONFIG": {"ERT_RESULTS": ["Results.my-box"]}}
    if gpu:
        metadata["GPU_BLOCKS"] = 80
    return {
        "empirical": {
            "gbytes": {"data": levels, "metadata": {"FLOPS": 1}},
            "gflops": {"data": [["GFLOPs", gflops]], "metadata": {"FLOPS": 16}},
            "metadata": metadata,
        },
        "spec": {"gbytes": {"data": []}, "gflops": {"data": [["GFLOPs", 1e6]]}},
    }


DADD, DMUL, DFMA = 1000.0, 2000.0, 8000.0
FADD, FMUL, FFMA = 10.0, 0.0, 45.0
TENSOR = 4.0
BYTES = {"dram__bytes.sum": 4000.0, "lts__t_bytes.sum": 8000.0, "l1tex__t_bytes.sum": 16000.0}
COUNT, CYCLES, CLOCK = 2, 3000.0, 1e9


def table(count: int = COUNT) -> dict[str, float | str]:
    """A row as postprocess.py makes it: sums over launches, of clocks too, so that it divides by their number."""
    lanes = DADD + DMUL + 2 * DFMA + FADD + FMUL + 2 * FFMA
    tensor = 512 * TENSOR
    seconds = CYCLES / (count * CLOCK / count)
    counters = {"dadd": DADD, "dmul": DMUL, "dfma": DFMA, "fadd": FADD, "fmul": FMUL, "ffma": FFMA}
    counters |= dict.fromkeys(("hadd", "hmul", "hfma"), 0.0)
    return {
        "Kernel Name": "void mul<double>(int, int)",
        **BYTES,
        "sm__cycles_elapsed.avg": CYCLES,
        "sm__cycles_elapsed.avg.per_second": count * CLOCK,
        "sm__inst_executed_pipe_tensor.sum": TENSOR,
        **{f"sm__sass_thread_inst_executed_op_{name}_pred_on.sum": value for name, value in counters.items()},
        "Count": float(count),
        "Time": seconds,
        "CC FLOPs": lanes,
        "TC FLOPs": tensor,
        "all FLOPs": lanes + tensor,
        "AI HBM": (lanes + tensor) / 4000,
        "AI L2": (lanes + tensor) / 8000,
        "AI L1": (lanes + tensor) / 16000,
        "GFLOP/s": (lanes + tensor) / seconds / 1024**3,
        "TC GFLOP/s": tensor / seconds / 1024**3,
    }


def as_csv(*rows: dict[str, float | str]) -> str:
    lines = [",".join(rows[0])]
    lines += [",".join(f'"{cell}"' if isinstance(cell, str) else repr(cell) for cell in row.values()) for row in rows]
    return "\n".join(lines) + "\n"


ROCPROF = "device,HBMBw,HBMBwLow,L2Bw,LDSBw,FP32Flops,FP32FlopsHigh,BF16Flops,MFMAF16Flops,MFMAF6Flops,MFMAI8Ops\n"
ROCPROF_ROW = "0,1388.7,1300,3000.5,9000,20937.7,21000,N/A,150000,300000,160000\n"
VALID = {
    "roofline.json": json.dumps(ert(), indent=3),
    "report": REPORT,
    "try.001": TRY,
    "data.txt": KEYWORDS,
    "pd.csv": as_csv(table(), table(5)),
    "roofline.csv": ROCPROF + ROCPROF_ROW,
}
