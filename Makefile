# `make` alone lists the targets. Each sets up what it needs; the virtual environment is made once for each state of
# requirements.lock and pyproject.toml.

SHELL := bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-faults fuzz audit test-slurm repro snakemake ui bench bench-gpu bench-peer lint lock clean

PYTHON ?= python3
VENV ?= .venv
BIN := $(abspath $(VENV))/bin
STAMP := $(VENV)/installed-$(shell cat requirements.lock pyproject.toml | cksum | cut -d ' ' -f 1)
DEMO := work/demo

# Both engines start `python -m bleuprint …`: this must be the environment's python, not the system's.
export PATH := $(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

venv: $(STAMP)  ## install everything, at the releases of requirements.lock, into .venv

$(STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$$($(PYTHON) --version) is too old: 3.11 or newer is needed (make PYTHON=python3.12)" >&2; exit 1; }
	@echo "Installing into $(VENV): some minutes, about 2.5 GB."
	$(PYTHON) -m venv $(VENV)
	sed '/^torch==/d' requirements.lock >$(VENV)/hashed.txt
	grep -o '^[a-z][^ ]*==[^ ]*' requirements.lock >$(VENV)/pinned.txt
	$(BIN)/python -m pip install -qq --require-hashes --no-deps --requirement $(VENV)/hashed.txt
	$(BIN)/python -m pip install -qq --constraint $(VENV)/pinned.txt "$$(grep '^torch==' requirements.lock)"
	$(BIN)/python -m pip check
	$(BIN)/python -m pip install -qq --no-deps --no-build-isolation --editable .
	@touch $@

# A clone, so that params.yaml, results/ and reports/ here stay as they are; where git knows nothing, a copy. PYTHONPATH:
# the clone runs its own code, not the code here that is installed in .venv.
demo: $(STAMP)  ## the toy table from nothing, in a clone: a minute or a few
	rm -rf $(DEMO)
	mkdir -p $(DEMO)
	if [ -e .git ] && git rev-parse --quiet --verify HEAD >/dev/null; then git clone --quiet . $(DEMO); else \
	  tar -cf - --exclude=./.git --exclude=./.venv --exclude=./data --exclude=./runs --exclude=./work . | tar -xf - -C $(DEMO) && \
	  printf '[core]\n    no_scm = true\n' >$(DEMO)/.dvc/config.local; fi
	cd $(DEMO) && export PYTHONPATH=src && python -m bleuprint use demo && dvc repro
	@echo
	@sed -n '/^## Results/,/^## Metrics/p' $(DEMO)/reports/demo/results.md | grep '^|'
	@echo
	@echo "The report is $(DEMO)/reports/demo/report.html, for a browser; results.md beside it has the same tables. Next:"
	@echo "  make repro                                            the table of README.md: hours on two cores"
	@echo "  make ui                                               losses and scores in the browser"
	@echo "  dvc exp run -S experiments.tiny.train.max_steps=200   a recipe of your own, in .venv"

# In two processes: each test waits much for the commands that it started. TEST_PROCESSES=0 is pytest alone.
TEST_PROCESSES ?= 2
PYTEST := python -m pytest --numprocesses $(TEST_PROCESSES)

test: $(STAMP)  ## all tests, with the toy table under both engines
	@# A file's tests stay together, for the projects that they share.
	$(PYTEST) --dist loadfile

test-faults: $(STAMP)  ## the whole fault suite: kills, full disks, flipped bits, bad input; writes reports/RELIABILITY.md
	rm -f work/faults.jsonl
	BLEUPRINT_TEST_FAULTS=1 $(PYTEST) --dist worksteal tests/system/faults; result=$$?; python tests/reliability.py; exit $$result

# atheris is no part of the environment: it has builds for Linux alone. What it tried is printed; one run's stands in reports/LOG.md.
FUZZ_SECONDS ?= 600
fuzz: $(STAMP)  ## mutated bytes into every parser of what comes from outside; FUZZ_SECONDS=600 in all
	python -m pip install -qq --require-hashes --requirement tests/fuzz/requirements.lock
	mkdir -p work/fuzz
	for name in sgml text params manifest; do \
	  python tests/fuzz/fuzz_$$name.py work/fuzz/$$name -max_total_time=$$(($(FUZZ_SECONDS) / 4)) -max_len=4096 \
	    -artifact_prefix=work/fuzz/ -verbosity=0 || exit; done
	@cat work/fuzz/*.counts

# Of an environment of its own: what it needs is no part of ours.
audit: $(STAMP)  ## known vulnerabilities of the releases in requirements.lock, where their list can be reached
	[ -x work/audit/bin/pip-audit ] || { $(PYTHON) -m venv work/audit && work/audit/bin/python -m pip install -qq pip-audit; }
	python tests/audit.py work/audit/bin/pip-audit $(VENV)/hashed.txt

test-slurm: $(STAMP)  ## the toy table on a Slurm of one node, as root: installs Debian's packages; a few minutes
	BLEUPRINT_TEST_SLURM=1 python -m pytest tests/cluster

repro: $(STAMP)  ## the active table by DVC (BLEUPRINT_MIRROR=file:///… where there is no internet)
	@python -m bleuprint check
	@python -m bleuprint unlock
	dvc repro
	@# Snakemake remembers nothing of what DVC ran: without this it would plan by file times and miss changed parameters.
	snakemake --touch --forceall --quiet all

snakemake: $(STAMP)  ## the active table by Snakemake, which commits to DVC what it ran
	snakemake --cores 2

ui: $(STAMP)  ## losses and scores in the browser, while they grow: http://127.0.0.1:5000
	python -m bleuprint ui

# Each is a command of its own, `python benchmarks/….py`; the finished default table must be there (`make repro`).
bench: $(STAMP)  ## how fast it is, by ratios; appends its tables to benchmarks/RESULTS.md
	[ -d data/corpora/multi30k-words ] || python -m bleuprint tokenize multi30k-words
	python benchmarks/training.py tiny
	python benchmarks/training.py base
	python benchmarks/decoding.py
	python benchmarks/tokenizing.py
	python benchmarks/scoring.py
	python benchmarks/startup.py

bench-gpu: $(STAMP)  ## how fast a GPU trains, and the hours that the table `full` would take there; appends its table too
	for corpus in multi30k-words multi30k-bpe; do \
	  [ -d data/corpora/$$corpus ] || python -m bleuprint tokenize $$corpus || exit; done
	python benchmarks/gpu.py

bench-peer: $(STAMP)  ## JoeyNMT beside us, in an environment of its own below work/
	python benchmarks/peer.py

lint: $(STAMP)  ## style, types, unused dependencies, both engines' own checks
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile workflow/rules/*.smk
	snakemake --lint
	deptry .
	mypy

# torch's line and the words above it are kept; raise its release by hand.
lock: $(STAMP)  ## resolve pyproject.toml anew into requirements.lock, with hashes: about ten minutes
	mkdir -p work/lock
	grep '^torch==' requirements.lock >work/lock/torch.txt
	pip-compile --quiet --upgrade --generate-hashes --extra dev --extra postgresql --extra slurm --build-deps-for editable \
	  --unsafe-package torch --unsafe-package pip --constraint work/lock/torch.txt --strip-extras --no-header --no-annotate \
	  --no-emit-index-url --no-emit-find-links --no-emit-options --output-file work/lock/others.txt pyproject.toml
	{ sed '/^torch==/q' requirements.lock; grep -E '^([a-z]|    --hash)' work/lock/others.txt; } >work/lock/requirements.lock
	mv work/lock/requirements.lock requirements.lock

clean:  ## remove logs, the demo and the tools' caches; data, runs and unfinished trainings stay
	rm -rf work/demo work/lock work/logs work/benchmarks dvc_plots .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
