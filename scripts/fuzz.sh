#!/usr/bin/env bash
# Runs every fuzz target of every crate for FUZZ_SECONDS (60 by default), or only the crates named: `scripts/fuzz.sh kvstore`.
# Installs what it needs once: a nightly Rust (the sanitizers require one) and cargo-fuzz. Stops at the first finding.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v rustup >/dev/null || { echo "fuzz: rustup is needed, for a nightly Rust beside the project's own" >&2; exit 1; }
rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
# A fuzzed store syncs thousands of times a second: keep it in memory if there is a folder for that.
[ -w /dev/shm ] && export TMPDIR=/dev/shm
# Plain `cargo` below this folder is the project's own toolchain; the loop calls the nightly one's `cargo fuzz`.
crates=("$@")
if [ ${#crates[@]} -eq 0 ]; then
  for folder in crates/*/fuzz; do crates+=("$(basename "$(dirname "$folder")")"); done
fi
for crate in "${crates[@]}"; do
  [ -f "crates/$crate/fuzz/Cargo.toml" ] || { echo "fuzz: crates/$crate has no fuzz targets" >&2; exit 1; }
  cd "crates/$crate"
  for target in $(cargo +nightly fuzz list); do
    echo "== $crate: $target"
    cargo +nightly fuzz run "$target" -- -max_total_time="${FUZZ_SECONDS:-60}" -rss_limit_mb=4096 -malloc_limit_mb=256
  done
  cd ../..
done
