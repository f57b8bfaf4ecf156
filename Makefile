# Two commands: `make run` opens the app on a fresh machine, `make test` proves the checkout.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup run test faults screens check real bench clean

# The product and its tools; quick when there is nothing to do.
$(BIN)/.installed: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "tui-tuner needs Python 3.11 or newer: name one with make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tui-tuner needs Python 3.11 or newer: name one with make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# An engine: CUDA where NVML finds a card that the wheel can use, else the CPU engine with the practice model.
setup: $(BIN)/.installed
	$(BIN)/tui-tuner setup --yes

run: setup
	@if [ -t 0 ] && [ -t 1 ]; then exec $(BIN)/tui-tuner; else $(BIN)/tui-tuner plan | $(BIN)/tui-tuner run -; fi

test: $(BIN)/.installed
	$(BIN)/tui-tuner setup --yes --engine cpu
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -m 'engine and not long' tests/real
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target faults screens

# Both at once, after the real engine: the one mostly waits, the other mostly computes.
faults: $(BIN)/.installed
	$(BIN)/pytest tests/runner

screens: $(BIN)/.installed
	$(BIN)/pytest tests/unit tests/tui

check: $(BIN)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest tests/unit

real: $(BIN)/.installed
	$(BIN)/tui-tuner setup --yes --engine cpu
	$(BIN)/pytest -m 'engine or long'

bench: $(BIN)/.installed
	$(BIN)/tui-tuner setup --yes --engine cpu
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
