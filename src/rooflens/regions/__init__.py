"""The user's own training loop: its iterations are timed, and one of them is counted."""

from rooflens.regions.loop import Region, region

__all__ = ["Region", "region"]
