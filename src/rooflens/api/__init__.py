"""The public functions, each in a module with its kin, each with a twin on the command line.

``import rooflens`` names them all, and loads the module of a name when it is first used.
"""
