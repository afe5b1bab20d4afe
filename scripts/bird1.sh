#!/usr/bin/env bash
# Unpacks Debian's BIRD 1.6 for tests, once, into a cache outside the checkout: Calico's files are in its grammar, and
# its package cannot be installed beside BIRD 2. Nothing is installed.
#
# Prints the directory with bird, bird6, birdcl and birdcl6. Tests find it by the same rule (crates/testkit/src/bird.rs), or through
# TORTIE_BIRD1. The finished directory is moved into place as the last step, so that a half-finished one is never visible.
set -euo pipefail

cache_root="${TORTIE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tortie}"
target="$cache_root/bird-1.6"
if [ -d "$target" ]; then
  echo "$target"
  exit 0
fi

for program in apt-get dpkg-deb; do
  command -v "$program" >/dev/null || {
    echo "bird1: no $program (this is not a Debian-like system): build BIRD 1.6 and name the directory of bird and" \
      "bird6 in TORTIE_BIRD1" >&2
    exit 1
  }
done
as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi

mkdir -p "$cache_root"
work="$(mktemp -d "$cache_root/build.XXXXXX")"
trap 'rm -rf "$work"' EXIT
cd "$work"
echo "bird1: fetching BIRD 1.6" >&2
# The package lists may be missing, or older than the archive.
apt-get download -q -o APT::Sandbox::User=root bird >&2 ||
  { "${as_root[@]}" apt-get update -q >/dev/null && apt-get download -q -o APT::Sandbox::User=root bird >&2; }
dpkg-deb -x ./*.deb root
mv -T root/usr/sbin "$target"
echo "$target"
