"""What is to be run: :class:`rooflens.runs.run.Run`, and the table of its options.

Only the standard library is needed; :mod:`rooflens.runs.options` alone is so light that ``--help`` may load it.
"""
