# Perdure: everything that a newcomer or a developer runs. Needs Python 3.11 or newer and make, nothing else.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
EXAMPLE := examples/field_station

# Both name the pins: one for what is installed, one for what builds the package.
INSTALL := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/python -m pip install \
	--quiet --disable-pip-version-check
CODE := src tests scripts examples benchmarks
# Three on two cores: tests wait for processes now and then. Whoever is done takes over half of what another has left.
PYTEST := $(BIN)/pytest -n 3 --dist worksteal

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: .venv/.demo ## run an example, kill its worker in the middle, and see every job finish
	@$(BIN)/python $(EXAMPLE)/demo.py

.PHONY: dev
dev: .venv/.demo ## a server and a worker for the example, reloaded when it changes
	$(BIN)/perdure dev $(EXAMPLE)/app.py

.PHONY: lint
lint: .venv/.test ## format, lint rules and types
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy

.PHONY: check
check: lint ## what to run before each commit: lint, tidy rules, and the tests that need no other process
	$(PYTEST) -q tests/test_tidy.py tests/core tests/store tests/engine tests/api tests/sdk -k "not postgres"

# What tests take from Debian: a real browser for the dashboard, and Prometheus for the rules of its alerts. It is
# installed where that is allowed.
.PHONY: debian
debian:
	@missing=""; \
	command -v "$${PERDURE_CHROMIUM:-chromium}" > /dev/null || missing="chromium"; \
	command -v promtool > /dev/null || missing="$$missing prometheus"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing; \
	else \
		echo "the tests need these Debian packages: $$missing (or another Chromium in PERDURE_CHROMIUM)" >&2; exit 1; \
	fi

.PHONY: test
test: lint debian ## everything, on both databases, with real processes
	$(PYTEST) tests

.PHONY: faults
faults: .venv/.test ## break real processes, databases, disks and networks at full length; half an hour
	PERDURE_FAULTS=full $(BIN)/pytest tests/faults

.PHONY: bench
bench: .venv/.test ## measure throughput, latency and growth on this machine
	$(BIN)/python -m benchmarks

.PHONY: soak
soak: .venv/.test ## field cases that need real minutes, about fifteen of them; stops by itself
	$(BIN)/python -m benchmarks.soak

SEEDS ?= 300

.PHONY: sim
sim: .venv/.test ## simulate SEEDS=300 worlds, in virtual time, until an invariant breaks
	$(BIN)/python -m tests.sim run --seeds $(SEEDS)

.PHONY: sim-mutants
sim-mutants: .venv/.test ## look whether the simulation finds mistakes that are made on purpose
	$(BIN)/python -m tests.sim mutants

.PHONY: format
format: .venv/.test ## rewrite the code in the house format
	$(BIN)/ruff check --fix-only --quiet $(CODE)
	$(BIN)/ruff format $(CODE)

.PHONY: clean
clean: ## remove everything that make made
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist demo-run
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Perdure needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv

.venv/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[demo]'
	@touch $@

.venv/.test: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[test,demo]'
	@touch $@ .venv/.demo
