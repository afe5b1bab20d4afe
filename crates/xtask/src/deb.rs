//! `cargo xtask deb`: builds a Debian package of the released program, its names, units and examples, without Debian's
//! tools.
//!
//! A package is an `ar` archive of three members: the format's version, the metadata for the package manager, and the
//! files. The same program gives the same bytes. The package starts and enables nothing: which part of Calico a host
//! runs is the administrator's decision.

use anyhow::{Context, Result, bail};
use flate2::{Compression, GzBuilder};
use oci::{Architecture, Entries, Entry};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// Names of the program on a host.
const LINKS: [&str; 6] =
    ["calico-felix", "calico-node", "calico-typha", "calicoctl", "kubectl-calico", "kube-controllers"];

/// Files of the checkout and their install paths.
const FILES: [(&str, &str); 12] = [
    ("LICENSE", "usr/share/doc/tortie/copyright"),
    ("deploy/host/calico.env.example", "etc/calico/calico.env.example"),
    ("deploy/host/calicoctl.cfg.example", "etc/calico/calicoctl.cfg.example"),
    ("deploy/host/felix.cfg.example", "etc/calico/felix.cfg.example"),
    ("deploy/host/networkd.network", "usr/lib/systemd/network/80-calico.network"),
    ("deploy/host/networkmanager.conf", "usr/lib/NetworkManager/conf.d/calico.conf"),
    ("deploy/host/typha.cfg.example", "etc/calico/typha.cfg.example"),
    ("deploy/systemd/tortie-datastore.service", "usr/lib/systemd/system/tortie-datastore.service"),
    ("deploy/systemd/tortie-felix.service", "usr/lib/systemd/system/tortie-felix.service"),
    (
        "deploy/systemd/tortie-kube-controllers.service",
        "usr/lib/systemd/system/tortie-kube-controllers.service",
    ),
    ("deploy/systemd/tortie-node.service", "usr/lib/systemd/system/tortie-node.service"),
    ("deploy/systemd/tortie-typha.service", "usr/lib/systemd/system/tortie-typha.service"),
];

/// Runs after the files have been installed. A running part is restarted with the new program: what it programmed stays
/// in the kernel in the meantime.
const AFTER_INSTALL: &str = r#"#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || true
  if [ "$1" = configure ] && [ -n "$2" ]; then
    for unit in datastore typha kube-controllers felix node; do
      systemctl try-restart "tortie-$unit.service" || true
    done
  fi
fi
"#;

/// Runs before the files are removed. Not on an upgrade: pods keep what they have.
const BEFORE_REMOVE: &str = r#"#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  for unit in node felix kube-controllers typha datastore; do
    systemctl --quiet disable --now "tortie-$unit.service" || true
  done
fi
"#;

/// Runs after the files have been removed. Purging removes what was written here, but never the datastore and never
/// kernel state.
const AFTER_REMOVE: &str = r#"#!/bin/sh
set -e
if [ "$1" = purge ]; then
  rm -rf /var/log/calico /run/calico
  rm -f /var/lib/calico/nodename /var/lib/calico/mtu
  rmdir --ignore-fail-on-non-empty /var/lib/calico /etc/calico 2>/dev/null || true
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
"#;

/// Writes `dist/tortie_VERSION_amd64.deb` from `dist/tortie` or from the program that is named, for the architecture
/// that it was built for.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    let (mut program, mut out) = (root.join("dist/tortie"), None);
    for argument in arguments {
        match argument.split_once('=').filter(|(_, value)| !value.is_empty()) {
            Some(("--program", value)) => program = value.into(),
            Some(("--out", value)) => out = Some(Path::new(value).to_owned()),
            _ => bail!("unknown argument {argument:?}; known are --program=FILE and --out=FILE"),
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    let bytes = std::fs::read(&program)
        .with_context(|| format!("reading {}: run `make build` first", program.display()))?;
    let architecture = Architecture::of(&bytes)
        .with_context(|| format!("{} is not a program for Linux on amd64 or arm64", program.display()))?;
    let name = format!("tortie_{version}_{}.deb", architecture.name());
    let out = out.unwrap_or_else(|| program.with_file_name(name));
    let mut files = Vec::new();
    for (from, to) in FILES {
        let bytes = std::fs::read(root.join(from)).with_context(|| format!("reading {from}"))?;
        files.push((to, bytes));
    }
    let package = package(&bytes, &files, version, architecture)?;
    crate::write_whole(&out, &package)?;
    println!("deb: {}, {} kB", out.display(), package.len() / 1000);
    Ok(())
}

/// Builds the package.
fn package(
    program: &[u8],
    files: &[(&str, Vec<u8>)],
    version: &str,
    architecture: Architecture,
) -> Result<Vec<u8>> {
    let mut data = Entries::new();
    data.insert("usr/bin/tortie".to_owned(), file(0o755, program));
    for link in LINKS {
        data.insert(format!("usr/bin/{link}"), Entry::Link("tortie".to_owned()));
    }
    for (path, bytes) in files {
        data.insert((*path).to_owned(), file(0o644, bytes));
    }
    let size: usize = program.len() + files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    let control = control(version, architecture, size);
    let configuration: String = files
        .iter()
        .filter(|(path, _)| path.starts_with("etc/"))
        .fold(String::new(), |text, (path, _)| text + "/" + path + "\n");
    let about = Entries::from([
        ("conffiles".to_owned(), file(0o644, configuration.as_bytes())),
        ("control".to_owned(), file(0o644, control.as_bytes())),
        ("postinst".to_owned(), file(0o755, AFTER_INSTALL.as_bytes())),
        ("postrm".to_owned(), file(0o755, AFTER_REMOVE.as_bytes())),
        ("prerm".to_owned(), file(0o755, BEFORE_REMOVE.as_bytes())),
    ]);
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", compressed(&oci::layer(&about)?)?),
        ("data.tar.gz", compressed(&oci::layer(&data)?)?),
    ];
    Ok(archive(&members))
}

fn file(mode: u32, bytes: &[u8]) -> Entry<'_> {
    Entry::File { mode, bytes: Cow::Borrowed(bytes) }
}

fn control(version: &str, architecture: Architecture, size: usize) -> String {
    format!(
        "Package: tortie\nVersion: {version}\nArchitecture: {}\nMaintainer: The Tortie project <security@tortie.invalid>\n\
         Installed-Size: {}\nSection: net\nPriority: optional\nProvides: calico-felix, calicoctl\n\
         Conflicts: calico-felix, calicoctl\nReplaces: calico-felix, calicoctl\nSuggests: iptables, bird\n\
         Homepage: {}\nDescription: Calico's networking and network security, as one small program\n \
         The node, Felix, Typha, the Kubernetes controllers, calicoctl and an embedded\n datastore, under \
         Calico's names and on Calico's data. Nothing is started by\n installing it.\n",
        architecture.name(),
        size.div_ceil(1024),
        env!("CARGO_PKG_REPOSITORY"),
    )
}

fn compressed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    gzip.write_all(bytes)?;
    Ok(gzip.finish()?)
}

/// An `ar` archive: each member follows a header of sixty characters, at an even offset.
fn archive(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let mut header = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(header, "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`", 0, 0, 0, "100644", content.len());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(content);
        if content.len() % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
