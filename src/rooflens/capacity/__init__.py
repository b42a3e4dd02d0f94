"""The largest batch that fits into a device's memory."""

from rooflens.capacity.batches import Batches
from rooflens.capacity.largest import asked_devices, asked_reserve, largest_batches, searched
from rooflens.capacity.worker import searched_in_worker
