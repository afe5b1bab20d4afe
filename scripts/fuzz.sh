#!/usr/bin/env bash
# Runs every fuzz target of every crate for FUZZ_SECONDS (60 by default). Needs nightly Rust; installs cargo-fuzz once.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
for folder in crates/*/fuzz; do
  crate="$(dirname "$folder")"
  for target in $(cd "$crate" && cargo +nightly fuzz list); do
    echo "== $crate: $target"
    (cd "$crate" && cargo +nightly fuzz run "$target" -- -max_total_time="${FUZZ_SECONDS:-60}" -rss_limit_mb=4096)
  done
done
