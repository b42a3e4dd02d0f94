"""Roofs and points that others measured: the Empirical Roofline Tool (ERT), and the recipes of NERSC.

Rates in these files are GB/s and GFLOP/s of 10^9. A file gives ceilings as a device, points as records, or both.
"""

from rooflens.sources.roofs.ceilings import Roofs
from rooflens.sources.roofs.formats import ROOF_FILES, RoofFormat, device_of_roofs, format_of, read_roofs
