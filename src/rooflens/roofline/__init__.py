"""Work under ceilings: bounds, points and ridges. Pure arithmetic on records.

Conventions (the only place where they are written as code):

- On one piece of silicon times add; silicon and memory levels overlap, so a bound is the largest of the per-silicon
  sums and the per-level quotients. Where products run on the general lanes (`Ceiling.silicon` is ``fma`` for both),
  matrix and vector time add.
- A matrix resource without a rate is an error. A vector or special resource without one leaves that part out and the
  bound names it in `skipped`. A level without a rate is skipped.
- Intensity is FLOP per byte *of a named level*.
- Efficiency is bound over measured time.
"""

from rooflens.roofline.bound import Bounds, bound, serial_bound
from rooflens.roofline.point import point, ridge

__all__ = ["Bounds", "bound", "point", "ridge", "serial_bound"]
