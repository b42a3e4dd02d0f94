"""Clocks, warm-up, and when to stop. Knows nothing of models."""

from rooflens.timing.clock import Clock, CudaClock, MonotonicClock
from rooflens.timing.sampling import Policy, sample
