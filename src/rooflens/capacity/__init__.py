"""The largest batch, and the longest context, that fits into a device's memory."""

from rooflens.capacity.largest import asked_devices, asked_reserve, searched
from rooflens.capacity.step_sizes import Size, StepSizes
from rooflens.capacity.time_limits import asked_limits
from rooflens.capacity.worker import searched_in_worker
