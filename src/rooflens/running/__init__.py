"""How runs are run: estimated, measured, profiled and counted, in this process or in workers; and the cells of studies.

One worker program serves every kind of job (:mod:`rooflens.running.start`).
"""
