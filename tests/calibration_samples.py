"""A calibration of a fraction of a second, for tests."""

from __future__ import annotations

from rooflens.sources.calibrate import TrialSizes

TINY = TrialSizes(
    products=((64, 64, 64), (64, 128, 32)),
    convolution=(1, 8, 8, 3),
    stream_bytes=1 << 18,
    stream_caches=0,
    working_sets=(4 << 10, 8 << 10, 16 << 10),
    sweep_bytes=1 << 16,
    rounds=10,
    launches=5,
    compiled=False,
)
