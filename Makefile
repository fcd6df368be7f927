# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Everything from a fresh machine with Python 3.11 and make; `make` lists the targets.
PYTHON ?= python3
JOBS ?= 2
BASE ?= HEAD
VENV := .venv
PY := $(VENV)/bin/python
# What the demo needs is one group of packages, the site another; all others come with the tests.
DEMO_READY := $(VENV)/.ready-demo
DOCS_READY := $(VENV)/.ready-docs
READY := $(VENV)/.ready
OLD = "error: spyre-mlir needs Python 3.11 or later; name one: make venv PYTHON=python3.11"
# No pattern of the shell: zsh ends where one fits nothing.
REMOVE_PACKAGES = rm -rf build; mkdir -p dist; find dist -maxdepth 1 -name 'spyre_mlir-*' -exec rm -f {} +
PYTEST = $(PY) -m pytest -q -n $(JOBS) --dist loadfile test/python

.DEFAULT_GOAL := help
.PHONY: help venv demo check check-changed check-docs check-all check-lit check-most check-python check-lowest durations
.PHONY: bench screenshots lint format docs wheel package man clean

# Tests start hundreds of processes, each of which would compile the package from its sources.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

venv: $(READY) ## the Python environment, in .venv

# The stamps make the environment once, and again when the dependencies change. uv installs in a tenth of pip's time;
# torch comes by pip, whose configuration says which build of it a machine takes.
INSTALL = $(PY) -m uv pip install --quiet --python $(PY) --editable

$(DEMO_READY): pyproject.toml
	@test -x $(PY) || $(PYTHON) -c 'import sys; sys.exit($(OLD) if sys.version_info < (3, 11) else 0)'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --no-compile uv torch==2.13.0
	$(INSTALL) '.[torch]'
	touch $@

$(DOCS_READY): $(DEMO_READY)
	$(INSTALL) '.[torch,docs]'
	touch $@

$(READY): $(DEMO_READY)
	$(INSTALL) '.[torch,test,dev]'
	touch $@

demo: $(DEMO_READY) ## compile and run a small model, with its report
	$(PY) -m spyre_mlir.tools.demo

check: check-lit check-most ## what matters most, in minutes

check-all: check-lit check-python ## all tests

check-lit: $(READY)
	$(VENV)/bin/lit -sv -j$(JOBS) test

# Which tests it leaves out, and how: test/python/conftest.py.
check-most: $(READY)
	$(PYTEST) -m "not exhaustive and not documents"

check-changed: $(READY) ## the tests that reach what is changed since BASE, and a few end to end
	$(PY) test/python/changed.py --base $(BASE) --jobs $(JOBS)

check-docs: $(READY) ## the tests of pages, examples, packages and browsers
	$(PYTEST) -m documents

durations: $(READY) ## run all tests and record which take long
	rm -f test/python/durations.json
	$(PYTEST) --record-durations

check-python: $(READY)
	$(PYTEST)

bench: $(READY) ## all benchmarks, written to docs/benchmarks.md
	$(PY) -m benchmarks --all --markdown docs/benchmarks.md

screenshots: $(READY) ## the pictures of a report in docs/, by a headless Chromium
	$(PY) -m benchmarks.screenshots

# Without torch, which has one version; uv alone knows how to choose the lowest versions.
check-lowest: $(READY) ## the lit tests with the lowest versions of all dependencies
	rm -rf dist/lowest
	$(PY) -m uv venv --quiet --python $(PY) dist/lowest
	$(PY) -m uv pip install --quiet --python dist/lowest --resolution lowest-direct \
	    '.[cp-sat,calibrate,checkpoints,conformance,tune,experiments,dask,completion]'
	$(PY) -m uv pip uninstall --quiet --python dist/lowest spyre-mlir
	$(PY) -m uv pip install --quiet --python dist/lowest lit filecheck
	PATH="$$PWD/dist/lowest/bin:$$PATH" dist/lowest/bin/lit -sv -j$(JOBS) test

lint: $(READY) ## ruff and pyright
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright

format: $(READY) ## format and sort imports
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

# Both variables silence notices about the future of mkdocs, which are no warnings of these pages.
docs: $(DOCS_READY) ## the site of the manual, in dist/docs
	NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(PY) -m mkdocs build --quiet --strict
	$(PY) docs/generate/check_site.py dist/docs

wheel: $(DEMO_READY) ## a wheel, in dist/
	$(REMOVE_PACKAGES)
	$(PY) -m pip wheel --quiet --no-deps --wheel-dir dist .

package: $(READY) ## sdist and wheel, in dist/, checked
	$(REMOVE_PACKAGES)
	$(PY) -m build --outdir dist .
	$(PY) -m twine check --strict dist/*.whl dist/*.tar.gz
	$(PY) -m check_wheel_contents dist/*.whl

man: $(DEMO_READY) ## the man pages of the tools, in dist/man
	$(PY) -m spyre_mlir.tools.man_pages dist/man

clean: ## remove what was made, the environment too
	rm -rf $(VENV) build dist out .pytest_cache .ruff_cache
	find . -maxdepth 1 -name '*.egg-info' -exec rm -rf {} +
	find . -name __pycache__ -prune -exec rm -rf {} +
	find test -name Output -prune -exec rm -rf {} +
