# `make` alone prints the targets. Every step says what it does and how long it took.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup programs operators demo test test-more bench-demo bench-agent bench-scheduling generate verify lint docs clean

UV_VERSION := 0.13.9
SETUP := .venv/.outrider-setup
BIN := .venv/bin
STEP := @tools/step
SOURCES := outrider scheduler_plugin webhook node_agent remediation inpod testbed bench tools tests
# Exit code 5 of pytest means that it ran no test; it passes through and fails the target.
PYTEST := $(BIN)/python -m pytest --durations=10
# Two at a time, each file whole in one process: half of the time is waiting. A control plane is there for each.
TWO := -n 2 --dist loadfile
# Every stage has tests of real processes, which wait for real time-outs that a busy machine can miss: what failed is run
# once more, alone, and the output says so.
PYTEST_AGAIN := tools/pytest-again $(PYTEST)

help: ## Print these targets
	@echo "Outrider keeps GPU training on Kubernetes running through bad hardware."
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 26

setup: $(SETUP) ## Make .venv from the lock file

$(SETUP): pyproject.toml uv.lock tools/bootstrap
	$(STEP) "Python environment from uv.lock" tools/bootstrap $(UV_VERSION)

demo: $(SETUP) ## Lose a GPU under a real training job on a local Kubernetes, and watch it go on
	$(STEP) "Demo" $(BIN)/python -m testbed.demo.demo

programs: $(SETUP) ## Build what the testbed runs into the cache, once: Kubernetes, helm, images, PyTorch
	$(STEP) "Programs of the testbed" $(BIN)/python -m testbed build

test: lint programs ## Lint, types and all tests but the long ones
	$(STEP) "Unit and chart tests" $(PYTEST_AGAIN) $(TWO) -m "not control_plane and not cluster and not slow"
	$(STEP) "Tests on a real control plane" $(PYTEST_AGAIN) $(TWO) -m "control_plane and not cluster and not slow"
	$(STEP) "Scenario tests on real nodes" $(PYTEST_AGAIN) -m "cluster and not slow"

operators: $(SETUP) ## Build the job controllers that only the long tests run: JobSet, LeaderWorkerSet, Kubeflow's, KubeRay
	$(STEP) "Job controllers" $(BIN)/python -m testbed build --operators

test-more: programs operators ## The long tests
	$(STEP) "Long tests" $(PYTEST_AGAIN) -m slow

lint: $(SETUP) ## Formatting, lint, types, import rules, spelling
	$(STEP) "ruff check" $(BIN)/ruff check $(SOURCES)
	$(STEP) "ruff format" $(BIN)/ruff format --check $(SOURCES)
	$(STEP) "mypy --strict" $(BIN)/mypy
	$(STEP) "import rules" $(BIN)/lint-imports
	$(STEP) "spelling" $(BIN)/codespell $(SOURCES) charts docs README.md CHANGELOG.md CONTRIBUTING.md Makefile

generate: $(SETUP) ## Write generated files: CRDs, reference pages
	$(STEP) "Custom resource definitions" $(BIN)/python -m tools.crds
	$(STEP) "Chart reference pages" $(BIN)/python -m tools.chart_docs
	$(STEP) "Fault reference page" $(BIN)/python -m tools.fault_docs
	$(STEP) "Pages of what is covered" $(BIN)/python -m tools.capability_docs
	$(STEP) "Metrics page" $(BIN)/python -m tools.metric_docs

verify: generate ## Fail where generated files differ from the committed ones
	$(STEP) "Generated files are committed" git diff --exit-code -- charts/outrider/files/crds docs/reference

bench-demo: $(SETUP) ## Figures of the demo: bench/out/demo.json and a table
	$(STEP) "Demo bench" $(BIN)/python -m bench.demo

SOAK_MINUTES ?= 0
bench-agent: $(SETUP) ## Figures of the node agent: bench/out/agent.json and a table; SOAK_MINUTES=30 watches its memory too
	$(STEP) "Agent bench" $(BIN)/python -m bench.agent --soak-minutes $(SOAK_MINUTES)

bench-scheduling: $(SETUP) ## Figures of gang scheduling at 5,000 nodes: bench/out/scheduling.json and a table
	$(STEP) "Scheduling bench" $(BIN)/python -m bench.scheduling

docs: $(SETUP) ## Build the documentation site into site/
	$(STEP) "Documentation" $(BIN)/zensical build

clean: $(SETUP) ## Stop all testbeds; remove caches, the environment and build results
	$(STEP) "Clean" tools/clean
