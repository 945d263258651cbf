# Aliases only; the build is CMake's. `make help` lists them.
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_BUILD = cmake --build --parallel $(JOBS) --preset
# one more than processors, since some tests mostly wait
CTEST = ctest --output-on-failure --parallel $(shell expr $(JOBS) + 1) --preset

all: ## build build/equiforge (says what to install when something is missing)
	@tools/deps --check
	@cmake --preset release >/dev/null
	@$(CMAKE_BUILD) release --target equiforge

demo: deps ## install what is missing, build, optimize a real .pt2, run, verify and time it
	@cmake --preset release >/dev/null
	@$(CMAKE_BUILD) release --target equiforge
	@tools/demo build/equiforge

test: deps ## install what is missing, build, run every test
	@cmake --preset release >/dev/null
	@$(CMAKE_BUILD) release
	@$(CTEST) release

test-full: test ## also the long property runs
	@$(CTEST) release -C full -R '^full[.]'

asan: deps ## all tests under the address and undefined-behaviour sanitizers (clang)
	@cmake --preset asan >/dev/null
	@$(CMAKE_BUILD) asan
	@$(CTEST) asan

fuzz: deps ## build the libFuzzer targets and run each for a minute
	@cmake --preset fuzz >/dev/null
	@$(CMAKE_BUILD) fuzz
	@tools/fuzz build-fuzz 60

bench: all ## print the benchmark tables (needs Python with torch)
	@$(CMAKE_BUILD) release --target bench_search bench_egraph
	@bench/run build/equiforge

lint: ## include graph, formatting, words
	@tools/lint

install: all ## install under $(or $(PREFIX),/usr/local)
	@$(CMAKE_BUILD) release --target equiforge_shared
	@cmake --install build --prefix $(or $(PREFIX),/usr/local)

deps: ## install missing packages (Debian, Ubuntu); elsewhere name them
	@tools/deps --install

clean: ## remove all build folders
	@rm -rf build build-*

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile | expand -t 18

.PHONY: all demo test test-full asan fuzz bench lint install deps clean help
