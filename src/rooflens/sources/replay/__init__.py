"""Replays calls alone on this machine's GPU: their time on the device, without a model's code or weights."""

from rooflens.sources.replay.timed_calls import Untimed, timed_call
