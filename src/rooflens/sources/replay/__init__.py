"""Replays calls alone on this machine's GPU: their time on the device, without a model's code or weights."""

from rooflens.sources.replay.kept_times import KeptTimes, replayed
from rooflens.sources.replay.operands import Untimed
from rooflens.sources.replay.suite_times import measured_constants, suite_times
from rooflens.sources.replay.timed_calls import kept_path, products_in, time_alone, timed_call
