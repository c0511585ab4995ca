# `make demo` and `make test` do all their own set-up: a virtual environment and the locked packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(VENV)/uv/bin/uv
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps
# Four processes, each with a stack of its own: much of the suite waits for other processes.
PARALLEL ?= -n 4 --dist worksteal

# Hundreds of processes load the same modules; each would compile them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo up test test-fast lint types check bench lock wheel clean

demo: $(VENV)/local.done
	@$(BIN)/kfm demo

up: $(VENV)/local.done
	@$(BIN)/kfm up

test: $(VENV)/dev.done
	@$(BIN)/python -m pytest $(PARALLEL)

test-fast: $(VENV)/dev.done
	@$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

check: lint types

lint: $(VENV)/dev.done
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

types: $(VENV)/dev.done
	@$(BIN)/mypy

bench: $(VENV)/dev.done
	@$(BIN)/python -m bench

wheel: $(VENV)/dev.done
	@$(BIN)/python -m hatchling build -t wheel

# Needed only after a change of the dependencies in pyproject.toml.
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-find-links --no-annotate --no-header --no-strip-extras
lock: $(VENV)/dev.done
	$(COMPILE) pyproject.toml --extra local --group dev -o requirements/dev.txt
	$(COMPILE) pyproject.toml --extra local --group build -c requirements/dev.txt -o requirements/local.txt
	$(COMPILE) pyproject.toml -c requirements/dev.txt -o requirements/runtime.txt
	$(COMPILE) --group uv -o requirements/uv.txt

clean:
	rm -rf $(VENV) .kfm dist build

# uv installs twenty times faster than pip. It is not part of the environment, and where it fails pip does the work.
# The import at the end compiles what every process of Dagster loads; they all start at once, and each would compile it.
define install
	@echo "installing (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@( $(PIP) --require-hashes --target $(VENV)/uv --upgrade -r requirements/uv.txt && \
		$(UV) pip install --quiet --python $(BIN)/python --no-deps --require-hashes -r requirements/$(1).txt ) || \
		$(PIP) --no-compile --require-hashes -r requirements/$(1).txt
	@$(PIP) --no-build-isolation -e .
	@$(BIN)/python -c "import kfm_pipelines.preload, dagster_webserver.cli, dagster._daemon.cli"
endef

$(VENV)/local.done: requirements/local.txt pyproject.toml
	$(call install,local)
	@touch $@

# These include the local ones.
$(VENV)/dev.done: requirements/dev.txt pyproject.toml
	$(call install,dev)
	@touch $(VENV)/local.done $@
