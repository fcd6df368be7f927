# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Everything from a fresh machine with Python 3.11 and make; `make` lists the targets.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
PYTEST = $(PY) -m pytest -q -n $(JOBS) --dist loadfile test/python

.DEFAULT_GOAL := help
.PHONY: help venv demo check check-all check-lit check-most check-python bench screenshots lint format wheel man clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

venv: $(READY) ## the Python environment, in .venv

# The stamp makes the environment once, and again when the dependencies change.
$(READY): pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet torch==2.13.0
	$(PY) -m pip install --quiet --editable '.[torch,test,dev]'
	touch $@

demo: $(READY) ## compile and run a small model, with its report
	$(PY) -m spyre_mlir.tools.demo

check: check-lit check-most ## what matters most, in minutes

check-all: check-lit check-python ## all tests

check-lit: $(READY)
	$(VENV)/bin/lit -sv -j$(JOBS) test

# Which tests it leaves out, and how: test/python/conftest.py.
check-most: $(READY)
	$(PYTEST) -m "not exhaustive"

check-python: $(READY)
	$(PYTEST)

bench: $(READY) ## all benchmarks, written to docs/benchmarks.md
	$(PY) -m benchmarks --all --markdown docs/benchmarks.md

screenshots: $(READY) ## the pictures of a report in docs/, by a headless Chromium
	$(PY) -m benchmarks.screenshots

lint: $(READY) ## ruff and pyright
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright

format: $(READY) ## format and sort imports
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

wheel: $(READY) ## a wheel, in dist/
	rm -rf dist
	$(PY) -m pip wheel --quiet --no-deps --wheel-dir dist .

man: $(READY) ## the man pages of the tools, in dist/man
	$(PY) -m spyre_mlir.tools.man_pages dist/man

clean: ## remove what was made, the environment too
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
	find test -name Output -prune -exec rm -rf {} +
