"""The largest batch that fits into a device's memory."""

from rooflens.capacity.batches import Batches
from rooflens.capacity.largest import Target, largest_batches

__all__ = ["Batches", "Target", "largest_batches"]
