# Every target installs what it needs into $(VENV) once; afterwards nothing touches the network
# until pyproject.toml or constraints.txt changes.
PYTHON ?= python3
NEWER  ?= python3.13  # for Opake alone
VENV   ?= .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.installed-core
FULL   := $(VENV)/.installed-full
EXTRAS := dev,torch,dask,flower,postgres,transformers

# One process a core: one BLAS thread each, two Numba threads so that the parallel kernels really run in
# parallel.
WORKERS ?= 2
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export NUMBA_NUM_THREADS ?= 2
export MPLBACKEND ?= Agg

# Tests start hundreds of processes; byte code that one has written spares the others a second or two.
unexport PYTHONDONTWRITEBYTECODE

# Tests of members, daemons and time limits wait: one process more than cores works meanwhile. Each takes
# neighbours, so that what a file prepares is prepared once, and helps the others at the end.
PYTEST := $(BIN)/python -m pytest -n $(shell expr $(WORKERS) + 1) --dist worksteal

.PHONY: help install demo test test-long audit mutate lint format bench bench-full bench-check peers docs matrix nightly release clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e .
	@touch $@

$(FULL): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $(CORE) $@

install: $(FULL)  ## everything: all extras and the development tools

demo: $(CORE)  ## private against non-private on data made on the spot; writes demo-report.html
	$(BIN)/sordino demo

test: $(FULL)  ## all tests but the long ones
	$(PYTEST) -m "not long"

test-long: $(FULL)  ## all tests, more examples each, then the mutation tests
	HYPOTHESIS_PROFILE=long $(PYTEST)
	$(MAKE) mutate

nightly: $(FULL)  ## long tests, sabotages, a shard of the mutants, pages and guard, in four hours, on one page
	$(BIN)/python tools/nightly.py --workers $(WORKERS)

audit: $(FULL)  ## attack every solver, estimator, statistic, network, search, chain and joint run; a row for each
	$(BIN)/python tools/audit.py

mutate: $(FULL)  ## break kernel/ and accounting/ line by line; every break must fail a test
	$(BIN)/python tools/mutate.py --jobs $(WORKERS)

lint: $(FULL)  ## style, strict types, layer rules, sizes, copies, dead code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/lint_house.py

format: $(FULL)  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(FULL)  ## the guard's measures, growth and the peers, in a quarter of an hour
	$(BIN)/python -m benchmarks guard growth
	$(BIN)/python -m benchmarks.peers --quick

bench-full: $(FULL)  ## every benchmark: speed, memory, scaling, accuracy, peers; hours
	$(BIN)/python -m benchmarks

bench-check: $(FULL)  ## compare with the committed results; fails on a slowdown or a loss of accuracy
	$(BIN)/python -m benchmarks.guard

peers: $(BIN)/python  ## the environments of the peers that `make bench` runs beside us
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install -r benchmarks/peers.txt
	$(NEWER) -m venv .venv-opake
	.venv-opake/bin/python -m pip install opake==0.16.1

docs: $(FULL)  ## HTML in docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

matrix: $(BIN)/python  ## lowest and newest versions of what pyproject.toml allows, on each Python that is here
	$(BIN)/python tools/matrix.py --workers $(WORKERS)

release: $(BIN)/python  ## build the archives, check them, use the wheel in an empty environment; publishes nothing
	$(BIN)/python tools/release.py

clean:  ## remove what the targets made, the environment excepted
	rm -rf build dist docs/_build docs/api/generated docs/gallery docs/sg_execution_times.rst .pytest_cache .mypy_cache .ruff_cache \
	  .import_linter_cache .hypothesis demo-report.html
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
