#!/usr/bin/env bash
# Tests the page of crates/whisker in a real browser: on `tortie lab ui` with real packets, and on made-up answers.
#
#   page-test.sh PROGRAM             PROGRAM is a built tortie (dist/tortie)
#   page-test.sh PROGRAM --pictures  also takes the pictures of docs/whisker.md
#
# Needs Chromium (Debian: chromium) and Node 20, which nothing else does; so it is not part of `make test`. Playwright is installed
# with the page's other tools, verified by checksum, and drives Debian's Chromium.
set -euo pipefail
program="$(realpath "${1:?name a built tortie}")"
cd "$(dirname "$0")/.."
chromium="$(command -v chromium)" || { echo "page-test: Chromium is needed (Debian: apt install chromium)" >&2; exit 1; }
scripts/page.sh --install
key="$(sha256sum crates/whisker/page/package-lock.json | cut -c1-12)"
cache_root="${TORTIE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tortie}"
export PAGE_TOOLS="$cache_root/page-$key" PAGE_PROGRAM="$program" PAGE_CHROMIUM="$chromium"
if [ "${2:-}" = --pictures ]; then export PAGE_PICTURES="$PWD/docs"; fi
exec node --test --test-reporter=spec crates/whisker/page/browser/page.test.mjs
