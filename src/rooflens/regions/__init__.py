"""The user's own training loop: its iterations are timed, and one of them is counted. Needs torch."""

COUNTERS = "ROOFLENS_COUNTERS"
"""Environment variable of ``rooflens counters -- COMMAND``: one iteration is marked for ncu, and none is timed. It
names the file that is told where calls ran, and which repeat others and are left out; none is, behind `EVERY`."""
EVERY = "every:"
LOCAL_RANK = "LOCAL_RANK"
"""Variable by which launchers (torchrun, accelerate) number the processes of a machine: the first one counts."""
