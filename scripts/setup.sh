#!/usr/bin/env bash
# Installs what tests and benchmarks need, and nothing that is already there: Debian packages (etcd for the peer of our
# store, util-linux for setpriv, BIRD for `node status`, iproute2 for network namespaces, and containerd, runc, busybox
# the reference CNI plugins for real containers, the tools of packet filters, QEMU and a
# kernel for guests) and the Kubernetes binaries. Says what is missing where it cannot
# install it.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A package_of=([etcd]=etcd-server [etcdctl]=etcd-client [setpriv]=util-linux [bird]=bird2 [ip]=iproute2
  [containerd]=containerd [runc]=runc [busybox]=busybox-static [iptables]=iptables
  [nft]=nftables [ipset]=ipset [conntrack]=conntrack [qemu-system-x86_64]=qemu-system-x86 [depmod]=kmod)
missing=()
for program in "${!package_of[@]}"; do
  command -v "$program" >/dev/null || [ -x "/usr/sbin/$program" ] || missing+=("${package_of[$program]}")
done
[ -x /usr/lib/cni/portmap ] || missing+=(containernetworking-plugins)
if [ ${#missing[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "setup: please install these programs' packages first (this is not a Debian-like system): ${missing[*]}" >&2
    exit 1
  fi
  as_root=()
  if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
  "${as_root[@]}" apt-get update -q >/dev/null
  # RUNLEVEL=1 keeps the packaged services from being started: tests start their own servers.
  "${as_root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi
command -v cargo >/dev/null || { echo "setup: no Rust toolchain on PATH; install Rust 1.95 (rustup)" >&2; exit 1; }
scripts/kubernetes-binaries.sh >/dev/null
scripts/guest-kernel.sh >/dev/null
