"""Databases as ``nsys export --type sqlite`` writes them, made by NVIDIA's schema reference: no nsys made them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

PROCESS = 0x1_000_4D2 << 24
"""A serialised process id: hardware and virtual machine, then the process, then bits for the thread."""
FORWARD, BACKWARD = PROCESS | 1234, PROCESS | 1235
TITLE = "NVIDIA H200"

ACTIVITY = (
    "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,"
    " streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER"
)
SCHEMA = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{ACTIVITY}, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{ACTIVITY}, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{ACTIVITY}, value INTEGER NOT NULL, bytes INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_RUNTIME": (
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,"
        " correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL"
    ),
    "NVTX_EVENTS": (
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER,"
        " endGlobalTid INTEGER, textId INTEGER, domainId INTEGER"
    ),
    "TARGET_INFO_GPU": "vmId INTEGER, id INTEGER, name TEXT, busLocation TEXT, computeMajor INTEGER",
    "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER NOT NULL, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{ACTIVITY}, graphId INTEGER NOT NULL, graphExecId INTEGER NOT NULL",
}
STRINGS = ("", "void gemm<float>(int)", "gemm", "relu", "cudaLaunchKernel", "cudaMemcpyAsync", "wgrad", "sgd")
Row = Sequence[Any]


def kernel(start: int, end: int, correlation: int | None, name: int, *, device: int = 0, stream: int = 7) -> Row:
    return start, end, device, 1, stream, correlation, PROCESS, name, name


def call(start: int, end: int, correlation: int, *, thread: int = FORWARD) -> Row:
    return start, end, 0, thread, correlation, STRINGS.index("cudaLaunchKernel"), 0


def pushed(start: int, end: int | None, text: str, *, thread: int = FORWARD, domain: int = 0, kind: int = 59) -> Row:
    return start, end, kind, text, thread, None, None, domain


def database(path: Path, rows: Mapping[str, Iterable[Row]], schema: Mapping[str, str] = SCHEMA) -> Path:
    """A database with these rows; as in a real one, tables that would be empty are missing."""
    strings = {"StringIds": list(enumerate(STRINGS))} if "StringIds" in schema else {}
    with closing(sqlite3.connect(path)) as connection:
        for table, its in {**strings, **rows}.items():
            lines = [tuple(row) for row in its]
            connection.execute(f"CREATE TABLE {table} ({schema[table]})")
            if lines:
                connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(lines[0]))})", lines)
        connection.commit()
    return path


TRAINING: Mapping[str, Sequence[Row]] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": [
        kernel(2_000, 5_000, 11, 1),
        kernel(5_000, 5_500, 12, 3),
        kernel(9_000, 13_000, 13, 6),
        kernel(15_000, 15_250, 14, 7),
        kernel(20_000, 20_125, 15, 3, stream=13),
    ],
    "CUPTI_ACTIVITY_KIND_MEMCPY": [(100, 1_100, 0, 1, 7, 10, PROCESS, 4096, 1)],
    "CUPTI_ACTIVITY_KIND_RUNTIME": [
        call(50, 90, 10),
        call(1_210, 1_290, 11),
        call(1_410, 1_490, 12),
        call(6_110, 6_190, 13, thread=BACKWARD),
        call(14_010, 14_090, 14),
        call(19_000, 19_010, 15),
    ],
    "NVTX_EVENTS": [
        pushed(1_000, 5_900, "rooflens:phase:forward"),
        pushed(1_100, 1_500, "rooflens:module:net.fc"),
        pushed(1_200, 1_300, "aten::addmm, seq = 5, op_id = 1"),
        pushed(1_400, 1_495, "aten::relu, seq = 6, op_id = 2"),
        pushed(6_000, 13_900, "rooflens:phase:backward"),
        pushed(6_050, 6_300, "autograd::engine::evaluate_function: AddmmBackward0, seq = 5", thread=BACKWARD),
        pushed(6_060, 6_290, "AddmmBackward0, seq = 5, op_id = 3", thread=BACKWARD),
        pushed(6_100, 6_200, "aten::mm, op_id = 4", thread=BACKWARD),
        pushed(13_950, 14_500, "rooflens:phase:optimizer"),
        pushed(14_000, 14_400, "Optimizer.step#SGD.step"),
        pushed(14_005, 14_100, "aten::_foreach_add_, op_id = 5"),
        pushed(1_205, 1_295, "ncclAllReduce", domain=3),
        pushed(1_000, None, "never closed"),
        (1_250, None, 34, "a mark", FORWARD, None, None, 0),
    ],
    "TARGET_INFO_GPU": [(0, 0, TITLE, "0000:01", 9)],
    "TARGET_INFO_CUDA_DEVICE": [(0, 0, 1234)],
}
"""A training step of one layer: nanoseconds that are easily told apart."""
