"""The command line: one file per command; each parses, calls its twin in rooflens.api and renders."""

from rooflens.cli.main import main
