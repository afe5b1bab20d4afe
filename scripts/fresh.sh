#!/usr/bin/env bash
# Proves that the README's commands work on an unprepared machine: a bare Debian root with only the Rust and Go
# toolchains, git, make and a C compiler. Anything else that the project needs, its own scripts must install.
#
#   fresh.sh all              make lab as root and as a plain user, make test's set-up, one crate's tests (about 20 minutes)
#   fresh.sh check PROGRAM    the quick half that CI runs: everything compiles, build scripts included, and PROGRAM (a built
#                             `tortie`) runs the lab as root and as a plain user, without any helper program
#   fresh.sh deb PACKAGE      a Debian package (`make deb`) is installed, its programs run, it is removed and purged
#   fresh.sh run COMMAND...   any command, in a clean clone of this checkout
#
# Needs root. The root file system is created once (mmdebstrap or debootstrap, from the mirror that this machine uses) and kept
# beside the tests' other caches. Nothing is left behind: every mount lives in a mount namespace that ends with this
# script. It refuses to bind-mount the host's /usr, where a distribution's toolchain may be: programs that are installed on
# this machine must not be visible inside.
set -euo pipefail
cd "$(dirname "$0")/.."
checkout="$PWD"
cache="${TORTIE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tortie}/fresh"
say() { echo "fresh: $*" >&2; }
fail() { say "$*"; exit 1; }

[ "$(id -u)" -eq 0 ] || fail "this needs root (it makes a root file system and mounts)"
[ $# -ge 1 ] || fail "say what to do: all, check PROGRAM, deb PACKAGE, or run COMMAND"

# 1. The bare root, as an archive that is unpacked for each run.
codename="$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")"
archive="$cache/root-$codename.tar"
if [ ! -f "$archive" ]; then
  say "making a bare Debian root, once"
  mkdir -p "$cache"
  command -v mmdebstrap >/dev/null || command -v debootstrap >/dev/null || {
    apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends mmdebstrap >/dev/null 2>&1
  }
  packages=ca-certificates,git,make,gcc,libc6-dev
  if command -v mmdebstrap >/dev/null; then
    sources=(); for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list; do
      if [ -s "$file" ]; then sources+=("$file"); fi
    done
    mmdebstrap --quiet --variant=minbase --include="$packages" "$codename" "$archive.new.tar" "${sources[@]}"
  else
    folder="$(mktemp -d "$cache/debootstrap.XXXXXX")"
    debootstrap --variant=minbase --include="$packages" "$codename" "$folder" >&2
    tar -C "$folder" --exclude=./dev/* -cf "$archive.new.tar" . && rm -rf "$folder"
  fi
  mv "$archive.new.tar" "$archive"
fi

# 2. Everything from here on runs in its own mount namespace, so mounts end with it, whatever happens.
if [ "${FRESH_INSIDE:-}" != 1 ]; then
  # On the cache's file system, not in memory: a build takes gigabytes.
  root="$(mktemp -d "$cache/run.XXXXXX")"
  trap 'rm -rf --one-file-system "$root"' EXIT
  FRESH_INSIDE=1 FRESH_ROOT="$root" unshare --mount --propagation private bash "$0" "$@"
  exit $?
fi
root="$FRESH_ROOT"
tar -C "$root" -xf "$archive"

# 3. The toolchains are mounted at separate places, from their real folders. Downloads of cargo and go are shared, so that nothing
#    is downloaded twice. Build results are not shared.
bind() { mkdir -p "$root$2" && mount --rbind "$1" "$root$2"; }
# $1: what it is, $2: its folder, $3: where it goes.
bind_toolchain() {
  case "$(realpath -e "$2")" in
    / | /usr | /usr/local)
      fail "the $1 toolchain is in $2 with all that this machine has: install one that has a folder of its own" ;;
  esac
  bind "$2" "$3"
}
bind /proc /proc
bind /sys /sys
bind /dev /dev
command -v cargo >/dev/null || fail "no Rust toolchain on PATH; install Rust 1.95 (rustup)"
bind_toolchain Rust "$(rustc --print sysroot)" /opt/rust
registry="${CARGO_HOME:-$HOME/.cargo}/registry"
mkdir -p "$registry" "$root/opt/cargo"
bind "$registry" /opt/cargo/registry
for file in config config.toml; do
  if [ -f "${CARGO_HOME:-$HOME/.cargo}/$file" ]; then cp "${CARGO_HOME:-$HOME/.cargo}/$file" "$root/opt/cargo/"; fi
done
path=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if command -v go >/dev/null; then
  bind_toolchain Go "$(go env GOROOT)" /opt/go
  modules="$(go env GOMODCACHE)"
  mkdir -p "$modules" && bind "$modules" /opt/gomodules
  path="/opt/go/bin:$path"
fi
# The settings by which this machine reaches its mirrors: names, certificates, apt's configuration.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
cp -rL /etc/ssl/certs/. "$root/etc/ssl/certs/" 2>/dev/null || true

# `check` updates the clone of the last check instead: git writes only files that differ, so cargo rebuilds only what
# depends on them.
if [ "$1" = check ]; then
  clone="$cache/src"
  [ -d "$clone/.git" ] || git clone -q --no-checkout "$checkout" "$clone"
  git -C "$clone" fetch -q --update-shallow "$checkout" HEAD
  git -C "$clone" checkout -q --force --detach FETCH_HEAD
  git -C "$clone" clean -ffdxq
  bind "$clone" /src
else
  git clone -q "$checkout" "$root/src"
fi
echo 'tester:x:1000:1000::/home/tester:/bin/sh' >>"$root/etc/passwd"
echo 'tester:x:1000:' >>"$root/etc/group"
mkdir -p "$root/home/tester" "$root/old" && chown 1000:1000 "$root/home/tester"

# Enters the root by pivot_root, as a container does: a plain chroot allows neither user namespaces nor private mounts.
# $1: the user's number; the rest is a shell script.
enter() {
  local user="$1" home=/root; shift
  [ "$user" = 0 ] || home=/home/tester
  env -i PATH="$path" HOME="$home" TERM=dumb CI="${CI:-}" RUSTUP_AUTO_INSTALL=0 CARGO_HOME=/opt/cargo \
    GOMODCACHE=/opt/gomodules ${GOPROXY:+GOPROXY="$GOPROXY"} ${GOFLAGS:+GOFLAGS="$GOFLAGS"} GOTOOLCHAIN=local \
    ROOT="$root" RUN_AS="$user" SCRIPT="cd /src && $*" \
    unshare --mount --propagation private sh -c '
      mount --rbind "$ROOT" "$ROOT" && cd "$ROOT" && pivot_root . old && umount -l /old &&
      exec setpriv --reuid="$RUN_AS" --regid="$RUN_AS" --clear-groups sh -ec "$SCRIPT"'
}

case "$1" in
  run)
    shift
    enter 0 "$*"
    ;;
  check)
    program="${2:?the built program}"
    [ -x "$program" ] || fail "no program at $program"
    mkdir -p "$root/src/dist" && cp "$program" "$root/src/dist/tortie"
    say "everything compiles, build scripts included, in a bare root"
    # Dependencies that were built in such a root stay built: everything they needed was in it.
    mkdir -p "$cache/target" && bind "$cache/target" /target
    enter 0 "CARGO_TARGET_DIR=/target cargo check --locked --quiet -p tortie --tests"
    say "the lab plays as root and as a plain user, in a root without any helper program"
    enter 0 "dist/tortie lab demo"
    enter 1000 "dist/tortie lab demo"
    ;;
  deb)
    package="${2:?the package}"
    [ -f "$package" ] || fail "no package at $package"
    cp "$package" "$root/src/package.deb"
    say "install, use, remove, purge"
    enter 0 '
      dpkg -i package.deb
      tortie version
      for name in calico-node calico-felix calico-typha kube-controllers; do $name --help >/dev/null; done
      calicoctl version --client
      for unit in datastore felix kube-controllers node typha; do test -f /usr/lib/systemd/system/tortie-$unit.service; done
      test -f /etc/calico/felix.cfg.example
      dpkg -i package.deb
      mkdir -p /var/lib/calico && echo here >/var/lib/calico/nodename
      dpkg -r tortie
      test ! -e /usr/bin/tortie && test ! -L /usr/bin/calicoctl && test -f /etc/calico/felix.cfg.example
      dpkg -P tortie
      test ! -e /etc/calico && test ! -e /var/lib/calico'
    ;;
  all)
    started=$SECONDS
    say "make lab, as root"
    enter 0 "make lab"
    say "the first lab ended $((SECONDS - started)) s after the clone"
    say "make lab, as a plain user"
    chown -R 1000:1000 "$root/src"
    enter 1000 "make lab"
    chown -R 0:0 "$root/src"
    say "what make test installs, and the tests of one crate"
    enter 0 "make setup"
    enter 0 "cargo test --locked -p ${FRESH_CRATE:-ipam}"
    ;;
  *) fail "unknown: $1 (all, check PROGRAM, deb PACKAGE, run COMMAND)" ;;
esac
say "passed"
