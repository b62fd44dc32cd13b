# Chappe: `make help` tells what there is.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# What a node runs with, and all of it: also tools, tests and Spark, which is ten times as large.
STAMP := $(VENV)/.installed
ALL := $(VENV)/.installed-all
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Each file is what to install and what holds: pip looks for `name[extra]`, which another package asks
# for, by the latter alone, and else finds the newest there is.
LOCKED := --require-hashes -r constraints.txt -c constraints.txt
LOCKED_MORE := $(LOCKED) -r constraints-more.txt -c constraints-more.txt
# Debian packages that tests start private servers of, those that let disks fail, lose their power
# and fill up, and networks lose datagrams, and Java for Spark; benchmarks need more.
JAVA := openjdk-17-jre-headless
PACKAGES := redis-server nginx libnginx-mod-stream supervisor zookeeper dnsmasq-base strace e2fsprogs mount iproute2 iptables $(JAVA)
BENCH_PACKAGES := mosquitto rabbitmq-server valgrind
RESULTS := benchmarks/RESULTS.md
# Half of the time tests wait for other processes: one more at once than there are cores, 4 at most.
JOBS := $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 3 ? cores + 1 : 4)))
# Whoever forbids Python to keep what it has compiled means other folders: tests start hundreds of
# processes, and each would compile all of this anew, for longer than the rest of its start takes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup run test check lint types layers demo bench proof lock packages java clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(ALL) java ## Make .venv with everything: what runs, and what checks, measures and tells of it
$(STAMP): constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(LOCKED)
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@
$(ALL): $(STAMP) constraints-more.txt
	$(PIP) $(LOCKED_MORE)
	@touch $@

run: $(STAMP) ## Start a hub for development on this machine, with embedded parts
	$(BIN)/chappe serve --dev

test: check ## Run every check and every test

check: setup packages lint types layers ## What CI runs: format, lint, types, layers, tests
	$(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	$(BIN)/mypy

layers: setup
	$(BIN)/lint-imports

# Install Debian packages when root, name them otherwise; RUNLEVEL=1 starts no server. Where that is
# not possible: $(2) is said besides, and $(3) done.
define install
command -v dpkg-query >/dev/null || { echo "this is no Debian: see that there are $(1)$(2)"; exit 0; }; \
	missing=""; for p in $(1); do \
	  dpkg-query --show --showformat '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ]; then echo "installing$$missing"; { apt-get update -qq && \
	    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; } || \
	    { echo "could not install$$missing: please do it by hand$(2)"; $(3); }; \
	  else echo "please install, as root: apt-get install$$missing$(2)"; $(3); fi; fi
endef

packages: # Servers for the tests, and Java
	@$(call install,$(PACKAGES),,exit 1)

HAS_JAVA = "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])'
java: # For Spark, unless there is one that will do
	@$(HAS_JAVA) || { $(call install,$(JAVA), (for the pipeline; all else goes on without),true); }

demo: PACKAGES := redis-server $(JAVA)
demo: setup packages ## Run a cluster, kill a node, make tables of all messages, write a report
	$(BIN)/python examples/demo.py

bench: PACKAGES += $(BENCH_PACKAGES)
bench: setup packages ## Measure speed and memory beside NATS, Redis, Mosquitto and RabbitMQ
	$(BIN)/python -m benchmarks --write $(RESULTS)

proof: setup ## Run every proof at its full count, resumable; writes benchmarks/PROOF.md (ONLY=rooms: some)
	$(BIN)/python -m benchmarks.proof $(ONLY)

NODE_EXTRAS := --extra redis --extra zookeeper --extra kubernetes --extra parquet
LOCK := $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate --no-emit-options
lock: setup # Choose versions anew and write them down with their hashes, each in one of two files
	$(PIP) pip-tools
	$(LOCK) --upgrade $(NODE_EXTRAS) --extra dev --extra pipeline --output-file constraints-more.txt pyproject.toml
	cp constraints-more.txt constraints.txt
	$(LOCK) $(NODE_EXTRAS) --build-deps-for editable --output-file constraints.txt pyproject.toml
	sed -i '/^#/d;/^$$/d' constraints.txt constraints-more.txt
	awk 'NR == FNR {if (/==/) seen[$$1]; next} /==/ {skip = $$1 in seen} !skip' constraints.txt constraints-more.txt > $(VENV)/more
	mv $(VENV)/more constraints-more.txt

clean: ## Remove what was made here
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
