"""The largest batch that fits into a device's memory."""

from rooflens.capacity.batches import Batches
from rooflens.capacity.largest import AskedDevice, largest_batches

__all__ = ["AskedDevice", "Batches", "largest_batches"]
