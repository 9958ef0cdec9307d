# Every target sets up what it needs (scripts/setup), and does nothing where nothing changed.
.DEFAULT_GOAL := help
.PHONY: help setup demo build deb fast test test-programs test-rust test-python check docs bench \
	release soak clean
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export PATH := $(HOME)/.cargo/bin:$(PATH)

python := .venv/bin/python
farcall := target/release/farcall
# A test that hangs is a failure to be read, not a wait without end.
bounded := timeout --kill-after=10

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

demo: build ## a real problem, solved by a library in another process
	$(python) examples/demo/demo.py

build: setup ## target/release/farcall and farcall-bench, and a .venv in which `import farcall` works
	@scripts/build

deb: build ## a Debian package, target/deb/farcall_*.deb
	@scripts/deb

fast: setup ## tests of the crates that a change touches: under a minute
	@scripts/fast

test: build test-programs test-rust test-python ## all tests: at most 15 minutes, 30 the first time

# All at once: what a test installs itself counts against its time. Tests say what they lack.
test-programs: setup
	-@scripts/setup tests

test-rust: setup
	$(bounded) 20m cargo build --locked --workspace --lib --bins --examples --tests
	@# Else the first test that syncs a file waits until all of this is on the disk.
	sync
	FARCALL_BUILT="$(CURDIR)/target/debug" $(bounded) 15m .venv/bin/cargo-nextest nextest run \
	    --locked --workspace --test-threads $$((2 * $$(nproc)))
	$(bounded) 10m cargo test --locked --workspace --doc
	RUSTFLAGS="--cfg loom" $(bounded) 10m cargo test --locked \
	    --package farcall-channel --package farcall-spin --lib --target-dir target/loom -- ring seat

test-python: build
	@# Interrupted, it tells which tests have failed by then.
	$(bounded) --signal=INT 30m $(python) -m pytest --numprocesses $$((2 * $$(nproc))) --dist loadfile \
	    --no-loadscope-reorder

check: build ## what must hold before a merge: format, lints, tidy, spelling, licences, docs
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo xtask tidy
	@scripts/deny
	.venv/bin/typos
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --quiet
	$(python) -m ruff check
	$(python) -m ruff format --check
	@# The oldest Python that the package promises.
	$(python) -m mypy --python-version 3.10
	$(python) -m mypy.stubtest farcall --mypy-config-file mypy.ini \
	    --allowlist bindings/python/stubtest.allow
	@scripts/docs

docs: build ## the documentation as a site, target/docs/index.html: a broken link is an error
	cargo doc --locked --workspace --no-deps --quiet
	@scripts/docs

bench: build ## figures, with a peer or a physical limit beside them in the same run
	@scripts/peers
	$(farcall) bench call --peers
	$(farcall) bench reach
	$(farcall) bench flow
	@if [ "$$(id -u)" = 0 ]; then $(farcall) bench trunk; \
	else echo "bench trunk: skipped, it needs root: sudo $(farcall) bench trunk"; fi
	@if [ "$$(id -u)" = 0 ]; then $(farcall) bench grid; \
	else echo "bench grid: skipped, it needs root: sudo $(farcall) bench grid"; fi
	@if [ "$$(id -u)" = 0 ]; then $(farcall) bench transaction; \
	else echo "bench transaction: skipped, it needs root: sudo $(farcall) bench transaction"; fi
	@if [ "$$(id -u)" = 0 ]; then $(farcall) bench reservation; \
	else echo "bench reservation: skipped, it needs root: sudo $(farcall) bench reservation"; fi
	$(farcall) bench offload
	$(farcall) bench gang --peers

release: setup ## what a release publishes, in target/dist: wheels, command, library, SBOM
	@scripts/release

soak: setup ## long runs: killed jobs and servers, each fuzz target ten minutes
	@scripts/soak

setup: ## system packages, Rust toolchain, .venv
	@scripts/setup

clean: ## removes what was built
	rm -rf target .venv .venv-peers out
