"""The user's own training loop: its iterations are timed, and one of them is counted. Needs torch."""

COUNTERS = "ROOFLENS_COUNTERS"
"""Environment variable of ``rooflens counters -- COMMAND``: one iteration is marked for ncu, and none is timed."""
