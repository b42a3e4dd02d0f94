"""Work under ceilings: bounds, points and ridges. Pure arithmetic on records.

Conventions (the only place where they are written as code):

- Times on one piece of silicon add; silicon and memory levels overlap. So a bound is the largest of the sums per
  silicon and the quotients per level. Where products run on the general lanes (`Ceiling.silicon` is ``fma`` for both),
  matrix and vector time add.
- A matrix resource without a rate is an error. A vector or special resource, or a level, without a rate is left out of
  the bound, which names it in `skipped`.
- Intensity is FLOP per byte *of a named level*.
- Efficiency is bound over measured time.
"""

from rooflens.roofline.bound import Bounds, bound, point, ridge, serial_bound
