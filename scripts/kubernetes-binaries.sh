#!/usr/bin/env bash
# Builds kube-apiserver and kubectl through Go modules, once, into a cache outside the checkout.
#
# Prints the directory that holds the binaries. Tests find it by the same rule (crates/testkit), or through
# TORTIE_KUBERNETES_BIN. The cache is keyed by version; a half-finished build is never visible in it, because the
# finished directory is moved into place as the last step. It refuses to download anything that is not a Go module.
set -euo pipefail

version="${KUBERNETES_VERSION:-v1.36.3}"
cache_root="${TORTIE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tortie}"
target="$cache_root/kubernetes-$version"
programs=(kube-apiserver kubectl)

complete() {
  for program in "${programs[@]}"; do [ -x "$target/$program" ] || return 1; done
}

if complete; then
  echo "$target"
  exit 0
fi

command -v go >/dev/null || {
  echo "kubernetes-binaries: no Go toolchain on PATH; install Go 1.26 or newer (the tests need a real kube-apiserver)" >&2
  exit 1
}

mkdir -p "$cache_root"
work="$(mktemp -d "$cache_root/build.XXXXXX")"
trap 'rm -rf "$work"' EXIT
cd "$work"

# A 429 or a dropped connection from the module proxy is passing: try a few times before giving up.
retry() {
  for attempt in 1 2 3 4 5 6; do
    "$@" && return 0
    echo "kubernetes-binaries: attempt $attempt of '$*' failed; trying again" >&2
    sleep $((attempt * 5))
  done
  return 1
}

echo "kubernetes-binaries: building Kubernetes $version (about ten minutes on two cores, once)" >&2
cat > go.mod <<MOD
module tortie.invalid/kubernetes-binaries

go 1.26.0

require k8s.io/kubernetes $version
MOD
cat > tools.go <<'GO'
//go:build tools

package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kubectl"
)
GO
# k8s.io/kubernetes requires its staging modules at v0.0.0 and replaces them by folders that a module download
# does not carry: each is replaced here by its published version of the same release.
retry go mod download "k8s.io/kubernetes@$version"
source_mod="$(go env GOMODCACHE)/k8s.io/kubernetes@$version/go.mod"
staging="v0.${version#v1.}"
awk '/=> \.\/staging/ {print $1}' "$source_mod" | sort -u | while read -r module; do
  [ "$module" = "replace" ] && continue
  go mod edit -replace "$module=$module@$staging"
done
retry go mod tidy -e >&2

mkdir out
for program in "${programs[@]}"; do
  retry go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" \
    -o "out/$program" "k8s.io/kubernetes/cmd/$program"
done
rm -rf "$target"
mv out "$target"
echo "$target"
