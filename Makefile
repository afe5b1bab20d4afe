# The menu. Every target does its own set-up; `make` alone prints this list.

CARGO ?= cargo
TARGET := x86_64-unknown-linux-gnu
# Where cargo puts what it builds; CARGO_TARGET_DIR is honoured.
OUT := $(or $(CARGO_TARGET_DIR),target)
LINKS := calicoctl calico calico-ipam calico-node kubectl-calico

.DEFAULT_GOAL := help
.PHONY: help setup build test bench lab fuzz fmt

help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what tests and benchmarks need (Debian packages; kube-apiserver and kubectl through Go modules).
	@scripts/setup.sh

# At a fixed address: a plugin lives for milliseconds, and moving a program of this size elsewhere takes two of them.
build: ## Build the release binary and its links into dist/.
	RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static" $(CARGO) build --release --locked --target $(TARGET) -p tortie
	@mkdir -p dist
	@cp $(OUT)/$(TARGET)/release/tortie dist/tortie.new && mv dist/tortie.new dist/tortie
	@for link in $(LINKS); do ln -sfn tortie dist/$$link; done
	@ls -l dist

test: setup ## Everything CI checks: formatting, lints, tidy, unit, property and integration tests with real servers.
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) xtask tidy
	$(CARGO) xtask test

bench: setup ## Every performance figure, each with its floor or peer in the same run; records docs/benchmarks.md.
	$(CARGO) xtask bench

lab: build ## A whole cluster on this machine: nodes, pods, policy, who reaches whom; then everything is removed.
	@dist/tortie lab demo $(LAB)

fuzz: ## Run every fuzz target for a minute (needs a nightly toolchain and cargo-fuzz).
	@scripts/fuzz.sh

fmt: ## Format all code.
	$(CARGO) fmt --all
