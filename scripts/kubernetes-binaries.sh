#!/usr/bin/env bash
# Builds Kubernetes' programs through Go modules, once, into a cache outside the checkout:
#
#   kubernetes-binaries.sh           kube-apiserver and kubectl, which many tests need
#   kubernetes-binaries.sh cluster   the other programs of a cluster (`make e2e`)
#   kubernetes-binaries.sh suite     Kubernetes' own end-to-end tests and the program in their pods (`make e2e E2E=suite`)
#   kubernetes-binaries.sh dns       CoreDNS, the cluster's name server (`make e2e`)
#   kubernetes-binaries.sh helm      Helm, which renders our chart in a test
#
# Prints the directory that holds the binaries. Tests find it by the same rule (crates/testkit), or through
# TORTIE_KUBERNETES_BIN. The cache is keyed by version; a half-finished build is never visible in it, because the
# finished directory is moved into place as the last step. The script downloads nothing but Go modules.
set -euo pipefail

version="${KUBERNETES_VERSION:-v1.36.3}"
coredns_version="${COREDNS_VERSION:-v1.14.7}"
helm_version="${HELM_VERSION:-v3.20.2}"
cache_root="${TORTIE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tortie}"
target="$cache_root/kubernetes-$version${1:+-$1}"
case "${1:-}" in
  '') programs=(kube-apiserver kubectl) ;;
  cluster) programs=(kubelet kube-controller-manager kube-scheduler kube-proxy) ;;
  suite) programs=(agnhost e2e.test) ;;
  dns) programs=(coredns) target="$cache_root/coredns-$coredns_version-hosts" ;;
  helm) programs=(helm) target="$cache_root/helm-$helm_version" ;;
  *)
    echo "kubernetes-binaries: unknown group '$1'; known are cluster, suite, dns and helm, and none" >&2
    exit 2
    ;;
esac

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

# A 429 or a dropped connection from the module proxy is temporary: try a few times before giving up.
retry() {
  for attempt in 1 2 3 4 5 6; do
    "$@" && return 0
    echo "kubernetes-binaries: attempt $attempt of '$*' failed; trying again" >&2
    sleep $((attempt * 5))
  done
  return 1
}

# Moves what was built into place.
finish() {
  rm -rf "$target"
  mv out "$target"
  echo "$target"
  exit 0
}

# Programs with their own module: their version, and a main package in this folder if they need one.
case "${1:-}" in
  dns)
    echo "kubernetes-binaries: building CoreDNS $coredns_version (a few minutes, once)" >&2
    printf 'module tortie.invalid/coredns\n\ngo 1.26.0\n\nrequire github.com/coredns/coredns %s\n' "$coredns_version" >go.mod
    {
      printf 'package main\n\nimport (\n\t"github.com/coredns/coredns/coremain"\n'
      # The plugins that kubeadm's configuration and Kubernetes' own tests name, without the many for clouds and their libraries.
      for plugin in cache errors forward health hosts kubernetes loadbalance log loop metrics ready reload; do
        printf '\t_ "github.com/coredns/coredns/plugin/%s"\n' "$plugin"
      done
      printf ')\n\nfunc main() { coremain.Run() }\n'
    } >main.go
    retry go mod tidy -e >&2
    mkdir out
    retry env CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o out/coredns .
    finish
    ;;
  helm)
    echo "kubernetes-binaries: building Helm $helm_version (a few minutes, once)" >&2
    printf 'module tortie.invalid/helm\n\ngo 1.26.0\n' >go.mod
    printf '//go:build tools\n\npackage tools\n\nimport _ "helm.sh/helm/v3/cmd/helm"\n' >tools.go
    retry go get "helm.sh/helm/v3@$helm_version"
    retry go mod tidy -e >&2
    mkdir out
    retry env CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X helm.sh/helm/v3/internal/version.version=$helm_version" \
      -o out/helm helm.sh/helm/v3/cmd/helm
    finish
    ;;
esac

echo "kubernetes-binaries: building Kubernetes $version (about ten minutes on two cores, once): ${programs[*]}" >&2
cat > go.mod <<MOD
module tortie.invalid/kubernetes-binaries

go 1.26.0

require k8s.io/kubernetes $version
MOD
# Prints the Go package of a program.
package_of() {
  case "$1" in
    agnhost) echo k8s.io/kubernetes/test/images/agnhost ;;
    e2e.test) echo k8s.io/kubernetes/test/e2e ;;
    *) echo "k8s.io/kubernetes/cmd/$1" ;;
  esac
}
{
  printf '//go:build tools\n\npackage tools\n\nimport (\n'
  for program in "${programs[@]}"; do printf '\t_ "%s"\n' "$(package_of "$program")"; done
  printf ')\n'
} > tools.go
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
flags=(-trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version")
for program in "${programs[@]}"; do
  case "$program" in
    # Static, because it runs in an image that has nothing else.
    agnhost) retry env CGO_ENABLED=0 go build "${flags[@]}" -o out/agnhost "$(package_of agnhost)" ;;
    # Without go vet, which would first check each of two thousand packages.
    e2e.test) retry go test -c -vet=off "${flags[@]}" -o out/e2e.test "$(package_of e2e.test)" ;;
    *) retry go build "${flags[@]}" -o "out/$program" "$(package_of "$program")" ;;
  esac
done
finish
