#!/usr/bin/env bash
# Fetches what an x86-64 machine needs to build for 64-bit ARM and does not have yet: Rust's standard library for
# that target, and Debian's cross-compiler, which links, and compiles the little C code in ring.
set -euo pipefail
target=aarch64-unknown-linux-gnu
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
  command -v rustup >/dev/null || { echo "cross-arm64: no rustup here; install Rust's target $target" >&2; exit 1; }
  rustup target add "$target"
fi
command -v aarch64-linux-gnu-gcc >/dev/null && exit 0
as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
if ! command -v apt-get >/dev/null; then
  echo "cross-arm64: please install a cross-compiler for arm64 first (aarch64-linux-gnu-gcc)" >&2
  exit 1
fi
"${as_root[@]}" apt-get update -q >/dev/null
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends gcc-aarch64-linux-gnu libc6-dev-arm64-cross
