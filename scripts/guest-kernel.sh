#!/usr/bin/env bash
# Unpacks Debian's kernel for the guests of tests, once, into a cache outside the checkout. Nothing is installed: neither
# /boot nor /lib/modules of this machine is touched.
#
# Prints the directory. Tests take the newest there is (crates/testkit/src/guest), or TORTIE_GUEST_KERNEL. The finished
# directory is moved into place as the last step, so that a half-finished one is never seen.
set -euo pipefail

cache_root="${TORTIE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tortie}"

# The kernel for clouds: the same source and network modules, without drivers that a guest has no hardware for.
present="$({ find "$cache_root" -maxdepth 1 -name 'guest-kernel-*' 2>/dev/null || true; } | sort | tail -1)"
if [ -n "$present" ]; then
  echo "$present"
  exit 0
fi

for program in apt-get apt-cache dpkg-deb; do
  command -v "$program" >/dev/null || {
    echo "guest-kernel: no $program (this is not a Debian-like system): put a kernel's boot/vmlinuz-VERSION and" \
      "lib/modules/VERSION into a directory and name it in TORTIE_GUEST_KERNEL" >&2
    exit 1
  }
done
depmod="$(command -v depmod || echo /sbin/depmod)"
[ -x "$depmod" ] || { echo "guest-kernel: no depmod; install Debian's kmod" >&2; exit 1; }

as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
find_package() {
  apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends: linux-image-/ {print $2; exit}'
}
# Lists of packages may be missing, or older than the archive.
"${as_root[@]}" apt-get update -q >/dev/null
package="$(find_package)"
[ -n "$package" ] || { echo "guest-kernel: apt knows no linux-image-cloud-amd64" >&2; exit 1; }

mkdir -p "$cache_root"
work="$(mktemp -d "$cache_root/build.XXXXXX")"
trap 'rm -rf "$work"' EXIT
cd "$work"
echo "guest-kernel: fetching $package" >&2
apt-get download -q -o APT::Sandbox::User=root "$package" >&2
dpkg-deb -x ./*.deb root
[ -d root/lib/modules ] || { mkdir -p root/lib && mv root/usr/lib/modules root/lib/modules; }
version="$(ls root/lib/modules)"
# The guest's busybox reads plain modules only.
find root/lib/modules -name '*.ko.xz' -exec unxz {} +
find root/lib/modules -name '*.ko.zst' -exec zstd -q -d --rm {} +
"$depmod" -b root "$version"
mkdir -p out/boot out/lib
mv root/boot/vmlinuz-* out/boot/
mv root/lib/modules out/lib/modules
target="$cache_root/guest-kernel-$version"
mv -T out "$target"
echo "$target"
