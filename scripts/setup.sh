#!/usr/bin/env bash
# Installs what tests and benchmarks need and is not there yet: the Debian packages of scripts/programs.txt,
# the reference CNI plugins, the Kubernetes binaries and kernels for guests. Reports what is missing if it cannot install it.
set -euo pipefail
cd "$(dirname "$0")/.."

missing=()
while read -r program package; do
  case "$program/$package" in
    '#'* | / | */essential | */toolchain | */kubernetes | */optional | */test) continue ;;
  esac
  command -v "$program" >/dev/null || [ -x "/usr/sbin/$program" ] || missing+=("$package")
done <scripts/programs.txt
[ -x /usr/lib/cni/portmap ] || missing+=(containernetworking-plugins)
if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "setup: please install these programs' packages first (this is not a Debian-like system): ${missing[*]}" >&2
    exit 1
  fi
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      echo "setup: as root, please run: apt-get install --no-install-recommends ${missing[*]}" >&2
      exit 1
    }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -q >/dev/null
  # RUNLEVEL=1 keeps packaged services from starting: tests start their own servers.
  "${as_root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi
command -v cargo >/dev/null || { echo "setup: no Rust toolchain on PATH; install Rust 1.95 (rustup)" >&2; exit 1; }
scripts/kubernetes-binaries.sh >/dev/null
scripts/guest-kernel.sh >/dev/null
scripts/bird1.sh >/dev/null
