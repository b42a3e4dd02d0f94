# Every target works on a fresh clone: it makes .venv and installs what it needs there, with the versions in
# constraints.txt. Another Python: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
CODE := src tests $(sort $(dir $(wildcard examples/*.py benchmarks/*.py scripts/*.py)))

.DEFAULT_GOAL := help
.PHONY: help install demo studies docs test check lint types layers spelling format coverage clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 12

install: $(READY) ## make .venv and install everything (about 6 GB with torch), once

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; (3, 11) <= v < (3, 14) or \
	sys.exit(f"rooflens needs Python 3.11 to 3.13, $(PYTHON) is {v[0]}.{v[1]}; name another one: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[all,dev]'
	@touch $@

demo: $(READY) ## estimate, measure and draw three models, run a small study; results in out/demo
	$(BIN)/python examples/demo.py

studies: $(READY) ## rebuild the five studies, without a GPU, and their pages; CHECK=--check fails if stale
	$(BIN)/python scripts/studies.py $(CHECK)

docs: $(READY) ## build the site of the pages into out/site, without a network, and check its links
	$(BIN)/python scripts/build_site.py

test: $(READY) ## run the tests
	$(BIN)/python -m pytest --numprocesses 3 --dist worksteal

check: lint types layers spelling docs test ## everything that CI runs

lint: $(READY) ## rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY) ## mypy, strict
	$(BIN)/mypy $(CODE)

layers: $(READY) ## no lower layer imports a higher one
	$(BIN)/lint-imports --no-logo

spelling: $(READY) ## codespell
	$(BIN)/codespell

format: $(READY) ## format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

coverage: $(READY) ## run the tests and list the lines that no test reaches
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --cov --cov-report term

clean: ## remove results, builds and caches; .venv stays
	rm -rf out build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
