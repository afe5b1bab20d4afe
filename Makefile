# Every target does its own set-up; `make` without a target prints the list of targets.

CARGO ?= cargo
# ARCH=arm64 builds for 64-bit ARM into dist/arm64, and fetches Rust's target and Debian's cross-compiler if they are missing.
ARCH ?= amd64
TARGET := $(if $(filter arm64,$(ARCH)),aarch64,x86_64)-unknown-linux-gnu
# Debian's cross-linker cannot fold identical functions, and is untested without unwinding tables.
SMALLER := $(if $(filter arm64,$(ARCH)),,-C link-arg=-Wl,--icf=all -C link-arg=-Wl,-T,$(CURDIR)/scripts/no-unwinding.ld)
SOURCES := $(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src/
DIST := $(if $(filter arm64,$(ARCH)),dist/arm64,dist)
# Cargo's output folder; CARGO_TARGET_DIR is honoured.
OUT := $(or $(CARGO_TARGET_DIR),target)
LINKS := calicoctl calico calico-ipam calico-node kubectl-calico bandwidth host-local loopback portmap tuning

.DEFAULT_GOAL := help
.PHONY: help setup quick build image deb test e2e bench lab page page-test fuzz fresh fmt

help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what tests and benchmarks need (Debian packages; kube-apiserver and kubectl through Go modules).
	@scripts/setup.sh

# Puts a built program and its links into a folder. A running program is replaced by rename, never overwritten.
define put_into
	@mkdir -p $(1)
	@cp $(2) $(1)/tortie.new && mv $(1)/tortie.new $(1)/tortie
	@for link in $(LINKS); do ln -sfn tortie $(1)/$$link; done
endef

# The program is linked at a fixed address: a plugin lives for milliseconds, and relocating a program of this size takes two of
# them. A panic aborts the program, so unwinding tables are useless. Functions that are equal to the byte are kept once. The
# binary must not reveal where this machine keeps the sources of dependencies.
build: ## Build the release binary and its links into dist/ (about a quarter of an hour on two cores).
	$(if $(filter arm64,$(ARCH)),@scripts/cross-arm64.sh)
	RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static -C force-unwind-tables=no --remap-path-prefix=$(SOURCES)= $(SMALLER)" $(CARGO) build --release --locked --target $(TARGET) -p tortie
	$(call put_into,$(DIST),$(OUT)/$(TARGET)/release/tortie)
	@ls -l $(DIST)

image: build ## Write container images under Calico's names into dist/tortie-images.tar (IMAGE="--registry=... --tag=...").
	$(CARGO) xtask image --folder=$(DIST) $(IMAGE)

deb: build ## Write a Debian package with the program, its units and examples into dist/.
	$(CARGO) xtask deb --program=$(DIST)/tortie

# Unoptimised: this builds in a third of the time, the lab runs no slower, and the tests build the same files.
quick: ## Build the program without optimisation into dist/ (four minutes on two cores the first time).
	@echo "Building tortie without optimisation: about four minutes on two cores the first time, seconds afterwards."
	$(CARGO) build --locked -p tortie
	$(call put_into,dist,$(OUT)/debug/tortie)

test: setup ## Run everything CI checks: formatting, lints, tidy, unit, property and integration tests with real servers.
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) xtask tidy
	$(CARGO) xtask test

# The images contain the program as built for tests, with the libraries that it needs: a release takes a quarter of an hour to build.
e2e: setup ## Check a real control plane and two kubelets with our images (needs root; E2E=up to look around).
	@scripts/kubernetes-binaries.sh cluster >/dev/null && scripts/kubernetes-binaries.sh dns >/dev/null
	@$(if $(findstring suite,$(E2E)),scripts/kubernetes-binaries.sh suite >/dev/null)$(if $(findstring chart,$(E2E)),scripts/kubernetes-binaries.sh helm >/dev/null)
	$(CARGO) build --locked -p tortie -p e2e
	$(CARGO) xtask image --registry=tortie.test/calico --tag=e2e --with-libraries=$(OUT)/debug/tortie --out=$(OUT)/e2e-images.tar $(IMAGE)
	TORTIE_E2E_IMAGES=$(OUT)/e2e-images.tar TORTIE_E2E_PROGRAM=$(OUT)/debug/tortie $(OUT)/debug/e2e $(E2E)

# Words after `bench` are its arguments: `make bench calc rib` runs those crates' benchmarks, `make bench compare BASE [calc ...]`
# runs them in turns with those of another commit, `make bench scale` simulates clusters of up to 5,000 nodes and writes docs/scale.md.
ifeq ($(firstword $(MAKECMDGOALS)),bench)
BENCH := $(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS))
ifneq ($(BENCH),)
.PHONY: $(BENCH)
$(BENCH): bench
	@:
endif
endif
bench: setup ## Measure every performance figure with its floor or peer (docs/benchmarks.md); also `bench compare BASE`, `bench scale`.
	$(CARGO) xtask bench $(BENCH)

lab: quick ## Run a whole cluster on this machine: nodes, pods, policy, who reaches whom; then remove everything.
	@dist/tortie lab demo $(LAB)

page: ## Bundle the flow page into crates/whisker/page/dist, which is checked in (needs Node; nothing else does).
	@scripts/page.sh

page-test: quick ## Test the flow page in a real browser, on a lab with real packets (needs Chromium and Node; PICTURES=1 updates docs/).
	@scripts/page-test.sh dist/tortie $(if $(PICTURES),--pictures)

fuzz: ## Run every fuzz target for a minute (needs a nightly toolchain and cargo-fuzz).
	@scripts/fuzz.sh

fresh: ## Prove the README's commands in a bare Debian root that has only the toolchains (needs root; 20 minutes).
	@scripts/fresh.sh all

fmt: ## Format all code.
	$(CARGO) fmt --all
