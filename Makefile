# make setup | demo | test | gpu | recovery | e2e | kubernetes | chaos | lint | protos | services | chart | docs | site | figures | figures-check | help

PYTHON ?= python3
VENV := .venv
NATIVE := CMakeLists.txt $(shell find native -type f)

# Modules are compiled once, also where the environment asks for none to be kept: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup demo test pytest gpu recovery e2e kubernetes chaos lint protos services chart docs site figures figures-check

help:
	@echo "make setup    environment in $(VENV), command at $(VENV)/bin/esd"
	@echo "make demo     trains a model on real data: random dispatch, the ESD paper's, and joint"
	@echo "make test     lint, and all tests but those of recovery and e2e"
	@echo "make pytest   those tests alone"
	@echo "make gpu      the tests that need a GPU; says what it did not find"
	@echo "make recovery whole runs in which processes are killed, restarted and fail over"
	@echo "make e2e      the whole system in containers, on a real engine"
	@echo "make kubernetes  installs the chart on a real Kubernetes, which is built once from Debian's source; needs root"
	@echo "make chaos    kills processes and cuts links of 30 real runs and compares the models; at most 15 minutes"
	@echo "make lint     ruff, mypy, import rules, clang-format, buf"
	@echo "make protos   regenerates the code in protos/"
	@echo "make services rewrites what follows from esd/cluster/services.toml and from the values of the chart"
	@echo "make chart    lints and renders the chart, and checks it against the schemas of Kubernetes"
	@echo "make docs     regenerates docs/reference/ and docs/quickstart.ipynb"
	@echo "make site     makes build/site, the documentation as a site with search"
	@echo "make figures  measures the costs and counts that README and docs quote, and writes them; some minutes"
	@echo "make figures-check  the same, and only says what is stale"

setup: $(VENV)/.ready

$(VENV)/.dependencies: requirements.lock requirements-torch.lock scripts/debian-packages
	scripts/debian-packages python3-venv python3-dev
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --requirement requirements-torch.lock
	@touch $@

$(VENV)/.ready: $(VENV)/.dependencies pyproject.toml $(NATIVE)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup
	@$(VENV)/bin/esd demo

lint: setup
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/clang-format --dry-run -Werror $(filter %.h %.cpp %.cu,$(NATIVE))
	$(VENV)/bin/buf lint

test: setup
	@$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: setup
	scripts/debian-packages redis-server prometheus chromium fonts-dejavu-core systemd
	$(VENV)/bin/pytest -n 4 --dist loadfile --no-loadscope-reorder

gpu: setup
	$(VENV)/bin/python -m scripts.gpu

recovery: setup
	scripts/debian-packages redis-server
	$(VENV)/bin/pytest -n 2 --dist loadfile tests/recovery

e2e: setup
	scripts/debian-packages docker.io docker-compose debootstrap iproute2
	scripts/e2e $(VENV)/bin/python tests/e2e

kubernetes: setup
	scripts/kubernetes $(VENV)/bin/python

chaos: setup
	scripts/debian-packages redis-server
	$(VENV)/bin/python -m hardening.chaos

protos: setup
	$(VENV)/bin/python -m esd.protos.generate

services: setup
	$(VENV)/bin/python -m scripts.compose
	$(VENV)/bin/python -m scripts.chart

chart: setup
	$(VENV)/bin/pytest -n 2 --dist loadfile $(wildcard tests/unit/deploy/test_chart*.py) tests/unit/deploy/test_one_description.py

docs: setup
	$(VENV)/bin/python -m scripts.reference
	$(VENV)/bin/python -m scripts.notebook

site: setup
	$(VENV)/bin/sphinx-build --fail-on-warning --quiet -c docs/site docs build/site

figures: setup
	$(VENV)/bin/python -m scripts.figures

figures-check: setup
	$(VENV)/bin/python -m scripts.figures --check
