#!/usr/bin/env bash
# Unpacks Debian's kernels for the tests' guests, once each, into a cache outside the checkout. Nothing is installed:
# this machine's /boot and /lib/modules are not touched, and only the mirror is taken from its apt configuration.
#
# One kernel of each series below; what is in the cache is not looked up again, so a machine that has all of them needs no
# network. Prints a directory for each. Tests name a series (crates/testkit/src/guest), or TORTIE_GUEST_KERNEL names a
# directory. The finished directory is moved into place as the last step, so that a half-finished one is never visible.
#
# Most tests run on the first series: without it, this script fails. If another series is not available, a file
# `guest-kernel-SERIES.missing` says why, and tests of that kernel say so in their output; the next run tries again.
set -euo pipefail

# Each series, and the Debian suite that has it.
series_and_suites='6.1 bookworm
5.10 bullseye
6.12 trixie'
first_series=6.1

cache_root="${TORTIE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tortie}"
mkdir -p "$cache_root"

# The newest kernel of a series in the cache: `6.1` must not match `6.12`.
find_present() {
  { find "$cache_root" -maxdepth 1 -name "guest-kernel-$1.[0-9]*" 2>/dev/null || true; } | sort -V | tail -1
}

work=
trap 'rm -rf "$work"' EXIT

as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
find_mirror() {
  apt-get indextargets --format '$(ORIGIN)/$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian/Debian" && !found {found = $2} END {print found}'
}

# An apt directory that is independent of the machine's: lists and packages of a suite, from the same mirror as the machine's
# own lists.
prepare_apt() {
  local suite="$1" mirror key
  for program in apt-get apt-cache dpkg-deb; do
    command -v "$program" >/dev/null || {
      echo "no $program (this is not a Debian-like system): put a kernel's boot/vmlinuz-VERSION and" \
        "lib/modules/VERSION into a directory and name it in TORTIE_GUEST_KERNEL"
      return 1
    }
  done
  mirror="$(find_mirror)"
  if [ -z "$mirror" ]; then
    # This machine never updated its lists.
    "${as_root[@]}" apt-get update -q >/dev/null 2>&1 || true
    mirror="$(find_mirror)"
  fi
  [ -n "$mirror" ] || { echo "apt has no lists of a mirror of Debian: run apt-get update, as root"; return 1; }
  key=/usr/share/keyrings/debian-archive-keyring.gpg
  mkdir -p "$work/lists/partial" "$work/packages/archives/partial"
  # The cloud kernel: the same source and network modules, without drivers for hardware that a guest does not have.
  echo "deb $([ ! -e "$key" ] || echo "[signed-by=$key]") $mirror $suite main" >"$work/sources.list"
  cat >"$work/apt.conf" <<CONF
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "-";
Dir::State::Lists "$work/lists";
Dir::State::Status "/dev/null";
Dir::Cache "$work/packages";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
CONF
  APT_CONFIG="$work/apt.conf" apt-get update -q 2>&1 || { echo "no lists of Debian's suite $suite at $mirror"; return 1; }
}

fetch() {
  local series="$1" suite="$2" package version
  prepare_apt "$suite" || return 1
  package="$(APT_CONFIG="$work/apt.conf" apt-cache depends linux-image-cloud-amd64 2>/dev/null |
    awk '/Depends: linux-image-/ {print $2; exit}')"
  case "$package" in
    "linux-image-$series."*) ;;
    *) echo "the kernel of Debian's suite $suite is ${package:-none}, and not $series"; return 1 ;;
  esac
  (cd "$work" && APT_CONFIG="$work/apt.conf" apt-get download -q "$package" 2>&1) || { echo "$package cannot be fetched"; return 1; }
  dpkg-deb -x "$work"/*.deb "$work/root" || return 1
  [ -d "$work/root/lib/modules" ] || { mkdir -p "$work/root/lib" && mv "$work/root/usr/lib/modules" "$work/root/lib/modules"; }
  version="$(ls "$work/root/lib/modules")"
  # The guest's busybox reads only uncompressed modules.
  find "$work/root/lib/modules" -name '*.ko.xz' -exec unxz {} + &&
    find "$work/root/lib/modules" -name '*.ko.zst' -exec zstd -q -d --rm {} + &&
    "$depmod" -b "$work/root" "$version" &&
    mkdir -p "$work/out/boot" "$work/out/lib" &&
    mv "$work/root/boot/vmlinuz-$version" "$work/out/boot/" &&
    mv "$work/root/lib/modules" "$work/out/lib/modules" || { echo "$package has not what it should have"; return 1; }
  [ -d "$cache_root/guest-kernel-$version" ] || mv -T "$work/out" "$cache_root/guest-kernel-$version"
}

depmod="$(command -v depmod || echo /sbin/depmod)"
failed=
while read -r series suite; do
  present="$(find_present "$series")"
  note="$cache_root/guest-kernel-$series.missing"
  if [ -z "$present" ]; then
    work="$(mktemp -d "$cache_root/build.XXXXXX")"
    echo "guest-kernel: fetching Linux $series" >&2
    if ! [ -x "$depmod" ]; then
      reason="no depmod; install Debian's kmod"
    elif reason="$(fetch "$series" "$suite")"; then
      reason=
    fi
    rm -rf "$work"
    if [ -n "$reason" ]; then
      reason="$(grep '^E:' <<<"$reason" | tail -n 1 || true)${reason##*$'\n'}"
      echo "guest-kernel: no Linux $series for guests: $reason" >&2
      echo "$reason" >"$note"
      [ "$series" != "$first_series" ] || failed=1
      continue
    fi
    present="$(find_present "$series")"
  fi
  rm -f "$note"
  echo "$present"
done <<<"$series_and_suites"
[ -z "$failed" ]
