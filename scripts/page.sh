#!/usr/bin/env bash
# Checks the types of the page of crates/whisker, runs its tests, and bundles it into crates/whisker/page/dist, which is checked in.
#
#   page.sh           installs the tools (five npm packages, verified by checksum) into a cache outside the checkout, and bundles
#   page.sh --install only installs the tools
#   page.sh --check   if the tools are installed: checks types, runs the tests, and compares the bundle with the one in dist
#
# Nothing else needs Node: building the program uses what is in dist. Install scripts of packages are not run.
set -euo pipefail
cd "$(dirname "$0")/.."

page="$PWD/crates/whisker/page"
cache_root="${TORTIE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tortie}"
key="$(sha256sum "$page/package-lock.json" | cut -c1-12)"
tools="$cache_root/page-$key"

if [ ! -d "$tools" ]; then
  if [ "${1:-}" = --check ]; then
    echo "page: not compared with its sources, as its tools are not there (make page)"
    exit 0
  fi
  command -v npm >/dev/null || { echo "page: npm is needed to bundle the page (Node 20 or newer)" >&2; exit 1; }
  mkdir -p "$cache_root"
  new="$(mktemp -d "$cache_root/page-new.XXXXXX")"
  cp "$page/package.json" "$page/package-lock.json" "$new/"
  (cd "$new" && npm ci --ignore-scripts --no-audit --no-fund --silent)
  mv -T "$new" "$tools" || rm -rf "$new"
fi
if [ "${1:-}" = --install ]; then exit 0; fi
command -v node >/dev/null || { echo "page: Node 20 or newer is needed" >&2; exit 1; }

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir "$work/types"
cp -r "$page/src" "$page/tsconfig.json" "$work/types/"
ln -s "$tools/node_modules" "$work/types/node_modules"
node "$tools/node_modules/typescript/bin/tsc" -p "$work/types"
node "$page/build.mjs" "$tools" "$work/tests" tests
if ! PAGE_SOURCES="$page/src" node --test "$work/tests/" >"$work/report" 2>&1; then
  cat "$work/report" >&2
  exit 1
fi
node "$page/build.mjs" "$tools" "$work/dist"
if [ "${1:-}" = --check ]; then
  diff -rq "$work/dist" "$page/dist" >&2 || {
    echo "page: dist is not what its sources make: run make page" >&2
    exit 1
  }
else
  mkdir -p "$page/dist"
  for file in "$work"/dist/*; do cp "$file" "$page/dist/"; done
fi
size="$(cat "$page"/dist/* | gzip -9 | wc -c)"
echo "page: $(grep -c '^# Subtest' "$work/report" || true) tests passed, $size bytes compressed"
[ "$size" -lt 60000 ] || { echo "page: more than 60 kB" >&2; exit 1; }
