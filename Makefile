# make up: a working system on this machine. make test, make lint: what a change has to pass.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Tests of a file stay in one process, as they share rings; files that take long come first by name.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -rs
# More extras, each with a comma before it: make install EXTRAS=,routers
EXTRAS ?=
# On the platform that they are made for, packages have the versions and hashes of locks/ (tools/lock.py); elsewhere the
# ranges of pyproject.toml hold. With any more extras it is the larger lock, which has all of them.
LOCK := locks/$(if $(EXTRAS),ci,dev).txt
LOCKED := import platform, sys; sys.exit((sys.platform, platform.machine(), sys.version_info[:2]) != ("linux", "x86_64", (3, 11)))
# Where torch for CPUs is, unless pip is configured to find it elsewhere.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
STAMP := .venv/.installed
# Where a machine forbids to cache bytecode, each process of the tests rewrites all their asserts again (10 s of a core).
export PYTHONDONTWRITEBYTECODE :=
# make test runs what has changed since the merge base with origin/main, or since a commit: make test SINCE=v0.1.0
SINCE ?=
ALL ?=

.PHONY: help install lock sbom images up test test-all lint soak rehearse figures protos wheels gpu-wheels clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP)  ## make .venv with everything in it (again only when the versions change)

$(STAMP): pyproject.toml constraints.txt $(LOCK)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (the first time this takes some minutes)"
	@if $(BIN)/python -c '$(LOCKED)'; then \
		$(PIP) config list | grep find-links > /dev/null || index="--extra-index-url $(TORCH_INDEX)"; \
		$(PIP) install -qq $$index --require-hashes --no-deps -r $(LOCK) && \
		$(PIP) install -qq --no-build-isolation --no-deps -e .; \
	else \
		$(PIP) install -qq -c constraints.txt -e '.[all,dev$(EXTRAS)]'; \
	fi
	@touch $@

# Tools for releases have an environment of their own, which nobody needs for anything else.
RELEASE := .venv-release
$(RELEASE)/.installed: locks/release.txt
	@test -x $(RELEASE)/bin/python || $(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip --disable-pip-version-check install -qq --require-hashes --no-deps -r $<
	@touch $@

lock: $(RELEASE)/.installed  ## write locks/ anew; newest versions with ARGS=--upgrade
	@PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" $(RELEASE)/bin/python -m tools.lock $(ARGS)

sbom: $(RELEASE)/.installed  ## what each image is made of, as CycloneDX, in dist/sbom/
	@PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" $(RELEASE)/bin/python -m tools.sbom dist/sbom

images:  ## run the stages of the Dockerfile in directories, without an engine (root, debootstrap): minutes, gigabytes
	@$(BIN)/python -m tools.images $(ARGS)

up: install  ## start the ring with the demo model; options in ARGS, e.g. make up ARGS="--workers 2"
	@exec $(BIN)/signalbox up $(ARGS)

test: install  ## what the change reaches, all in a fresh clone or with ALL=1; options: make test ARGS="tests/k8s -n 0"
	@$(PYTEST) -m "not slow" $(if $(ALL),,--reach=$(SINCE)) $(ARGS)

test-all: install  ## all tests, with those that take long: what .ci/run calls
	@$(PYTEST) $(ARGS)

lint: install  ## ruff, mypy, and the counts that may only fall
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $$($(BIN)/python -m tools.packages typed)
	$(BIN)/python -m tools.structure

soak: install  ## faults for real rings, overload, long streams, a poison, and the simulation's full counts: hours
	$(BIN)/python -m tests.chaos faults $(ARGS)
	$(BIN)/python -m tests.chaos poison
	$(BIN)/python -m tests.chaos overload --minutes 10
	$(BIN)/python -m tests.chaos long
	$(BIN)/python -m tests.loop_watch
	SIGNALBOX_FUZZ=8 $(BIN)/python -m pytest tests/contract/test_fuzz.py tests/contract/test_hostile_peers.py \
		tests/contract/test_hostile_clients.py \
		tests/contract/test_hostile_scheduler.py tests/worker_svc/test_fuzzed_orders.py
	SIGNALBOX_UPGRADES=5 $(BIN)/python -m pytest -s tests/k8s/network
	SIGNALBOX_AGENTS=1 $(BIN)/python -m pytest -rs tests/contract/agents tests/contract/sdks
	SIGNALBOX_COMBINATIONS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -m "sampled or soak"
	SIGNALBOX_COMBINATIONS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup tests/worker_svc/gguf/test_gemma3.py \
		tests/worker_svc/runner/cpu/test_other_cpus.py
	SIGNALBOX_COMBINATIONS=1 SIGNALBOX_SIMULATION=1 $(BIN)/python -m pytest tests/simulation \
		tests/scheduler_svc/parts
	PYTHONHASHSEED=0 $(BIN)/python -m tests.simulation.run --seeds 0:20000 --jobs 2
	$(BIN)/python -m tests.parsing.run --cases 100000
	$(BIN)/python -m tools.images

rehearse: install  ## run k8s/overlays/cpu-demo on this machine as its manifests say (needs kubectl)
	@$(BIN)/python -m tools.rehearsal $(ARGS)

figures: install  ## figures of the documents from docs/data/; MEASURE="NAME..." or all, CHECK=1 or release
	@$(BIN)/python -m tools.figures $(if $(MEASURE),--measure $(filter-out all,$(MEASURE))) $(if $(CHECK),--check $(CHECK))

protos: install  ## write signalbox/v1 anew from protos/
	$(BIN)/python protos/generate.py

wheels: install  ## wheels in dist/, with compiled kernels; other machines in ARGS="--machine x86_64 aarch64"
	$(BIN)/python -m tools.wheels $(ARGS)

gpu-wheels: install  ## dist/gpu-wheels: what `python -m benchmarks.gpu` needs beside torch, on a machine without network
	$(BIN)/python -m tools.gpu_wheels $(ARGS)

clean:  ## remove .venv and caches
	rm -rf .venv .venv-release build dist .pytest_cache .mypy_cache .ruff_cache
