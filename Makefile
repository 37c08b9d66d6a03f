# Two commands for a newcomer: make demo, make test. Each sets up .venv by itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := hookscope-out
MODEL := --model mobilenet_v2 --weights IMAGENET1K_V1

.PHONY: help demo test browser lint format bench clean
.DEFAULT_GOAL := help

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed ## the three subcommands on real photographs with real weights
	$(BIN)/python tests/real_weights.py
	$(BIN)/hookscope list-layers mobilenet_v2 --depth 2
	$(BIN)/hookscope capture sample_images/chelsea.png sample_images/coffee.png $(MODEL) \
	    --layer features.0.0 --layer features.3 --layer features.17 --out $(DEMO)
	$(BIN)/hookscope gradcam sample_images $(MODEL) --view overlay --view heatmap --out $(DEMO)
	@echo
	@echo "The pictures are in $(DEMO)/"

# The README's pictures, by the README's commands.
gallery: $(VENV)/.installed ## the pictures of the README
	$(BIN)/python tests/real_weights.py
	mkdir -p .gallery
	$(BIN)/hookscope capture sample_images/chelsea.png $(MODEL) -l features.3 -o $(DEMO)
	cp $(DEMO)/mobilenet_v2_features.3_chelsea.png .gallery/feature-maps.png
	$(BIN)/hookscope gradcam sample_images/chelsea.png $(MODEL) -o $(DEMO)
	cp $(DEMO)/mobilenet_v2_features_chelsea_gradcam_285-Egyptian-cat.png .gallery/egyptian-cat.png
	$(BIN)/hookscope gradcam sample_images/coffee.png $(MODEL) --top-k 3 --view sheet -o $(DEMO)
	cp $(DEMO)/mobilenet_v2_features_coffee_gradcam_sheet.png .gallery/espresso-sheet.png
	$(BIN)/hookscope gradcam sample_images/chelsea.png $(MODEL) --compare layercam --compare eigencam -o $(DEMO)
	cp $(DEMO)/mobilenet_v2_features_chelsea_gradcam_layercam_eigencam_sheet.png .gallery/methods.png
	$(BIN)/hookscope capture sample_images/coffee.png $(MODEL) -l features.13 --what gradient --top 12 --cols 6 -o $(DEMO)
	cp $(DEMO)/mobilenet_v2_features.13_coffee_gradient.png .gallery/gradients.png

test: lint browser ## everything that CI runs
	$(BIN)/python -m pytest -n 2

# For the tests of the report; where none can be had they are skipped, and say so.
browser:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	    if command -v $$name >/dev/null; then exit 0; fi; \
	done; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then exit 0; fi; \
	echo "installing chromium for the tests of the report"; \
	export DEBIAN_FRONTEND=noninteractive; \
	apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null || \
	    echo "chromium cannot be installed: its tests will be skipped"

lint: $(VENV)/.installed-dev ## ruff, mypy, import-linter
	$(BIN)/ruff check hookscope tests
	$(BIN)/ruff format --check hookscope tests
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev ## let ruff put the code in order
	$(BIN)/ruff check --fix hookscope tests
	$(BIN)/ruff format hookscope tests

bench: $(VENV)/.installed-dev ## speed, as ratios against peers measured in the same run
	$(BIN)/python tests/real_weights.py
	@for script in tests/benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

clean: ## what make and the demo have written
	rm -rf $(VENV) $(DEMO) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find hookscope tests -name __pycache__ -prune -exec rm -rf {} +
