//! Images for the pods of this bed, without a registry: busybox, under the names of the pause image and of the pods
//! that talk; the cluster's name server; the images of Kubernetes' own tests.

use crate::tools;
use anyhow::{Context, Result};
use oci::{Effort, Entries, Entry, Image};
use std::borrow::Cow;
use std::path::Path;
use testkit::guest::libraries_of;
use testkit::{Authority, Folder, kubernetes_program, program};

/// The image of pods that talk to each other.
pub(crate) const BUSYBOX: &str = "tortie.test/busybox:1";

/// The image that replaces flannel: the bed adds the routes that flannel would add, so it has nothing to do.
pub(crate) const FLANNEL: &str = "tortie.test/flannel:1";

/// The image of pods that send traffic during a swap.
pub(crate) const TRAFFIC: &str = "tortie.test/traffic:1";

/// The image of the cluster's name server.
pub(crate) const COREDNS: &str = "tortie.test/coredns:1";

/// Configures name resolution: glibc needs such a file.
const NAME_SERVICES: &[u8] = b"hosts: files dns\n";

/// The archive with the images that every bed needs.
pub(crate) fn helpers(pause: &str) -> Result<Vec<u8>> {
    let busybox = busybox()?;
    let mut entries = root();
    entries.insert("bin/busybox".to_owned(), Entry::File { mode: 0o755, bytes: Cow::Borrowed(&busybox) });
    for name in [
        "cat", "echo", "grep", "head", "hostname", "httpd", "id", "ip", "nc", "nslookup", "ping", "printf",
        "sh", "sleep", "test", "timeout", "wget",
    ] {
        entries.insert(format!("bin/{name}"), Entry::Link("busybox".to_owned()));
    }
    let stand_in = b"#!/bin/sh\nexec sleep 2147483647\n".as_slice();
    entries.insert("opt".to_owned(), Entry::Folder { mode: 0o755, owner: 0 });
    entries.insert("opt/bin".to_owned(), Entry::Folder { mode: 0o755, owner: 0 });
    entries
        .insert("opt/bin/flanneld".to_owned(), Entry::File { mode: 0o755, bytes: Cow::Borrowed(stand_in) });
    let image = |reference: &str, entry_point| Image {
        reference: reference.to_owned(),
        layers: vec![0],
        entry_point,
        user: "0:0",
        folder: "/",
        environment: vec!["PATH=/bin"],
        ..Image::default()
    };
    let images = [pause, BUSYBOX, FLANNEL].map(|name| image(name, vec!["/bin/sleep", "2147483647"]));
    oci::write(&[oci::layer(&entries)?], &images, Effort::Fast)
}

pub(crate) fn busybox() -> Result<Vec<u8>> {
    let path = program("busybox", "install Debian's busybox-static (`make setup` does)")?;
    std::fs::read(&path).with_context(|| format!("reading {}", path.display()))
}

/// The archive with the cluster's name server.
pub(crate) fn name_server() -> Result<Vec<u8>> {
    let mut entries = root();
    add_file(&mut entries, "coredns", &kubernetes_program("coredns")?)?;
    let image = Image {
        reference: COREDNS.to_owned(),
        layers: vec![0],
        entry_point: vec!["/coredns"],
        user: "0:0",
        folder: "/",
        ..Image::default()
    };
    oci::write(&[oci::layer(&entries)?], &[image], Effort::Fast)
}

/// The archive with the program in the pods of Kubernetes' own tests, under the names that they request: `agnhost`,
/// plus a certificate, a name server, busybox, and this program as the tools that tests run there. It replaces other
/// images where these only have to run.
pub(crate) fn suite(references: &[String]) -> Result<Vec<u8>> {
    let mut entries = own_tools()?;
    add_file(&mut entries, "agnhost", &kubernetes_program("agnhost")?)?;
    add_file(&mut entries, "coredns", &kubernetes_program("coredns")?)?;
    // agnhost's own image has a certificate in its working folder; its signer is never checked.
    let folder = Folder::new("e2e-certificate")?;
    let signed = Authority::new(folder.path())?.sign_for("localhost", "localhost", &[], &["localhost"])?;
    add_file(&mut entries, "localhost.crt", &signed.certificate)?;
    add_file(&mut entries, "localhost.key", &signed.key)?;
    entries.insert("bin/busybox".to_owned(), Entry::File { mode: 0o755, bytes: busybox()?.into() });
    // Not busybox' shell, which prefers its built-in programs to those on the path.
    let shell = std::fs::canonicalize("/bin/sh").context("finding the shell")?;
    for library in libraries_of(&shell)? {
        add_file(&mut entries, library.display().to_string().trim_start_matches('/'), &library)?;
    }
    add_file(&mut entries, "bin/sh", &shell)?;
    for name in [
        "awk", "cat", "chmod", "cp", "cut", "date", "echo", "env", "false", "grep", "head", "hostname", "id",
        "ip", "ls", "mkdir", "mv", "nslookup", "ping", "printf", "ps", "pwd", "rm", "sed", "seq", "sleep",
        "sort", "tail", "test", "timeout", "touch", "tr", "true", "uniq", "wc", "xargs",
    ] {
        entries.insert(format!("bin/{name}"), Entry::Link("busybox".to_owned()));
    }
    let image = |reference: &String| {
        let (entry_point, command) = match reference {
            it if it.contains("/busybox:") => (vec![], vec!["/bin/sh"]),
            it if it.contains("/nginx:") => (vec!["/agnhost"], vec!["netexec", "--http-port=80"]),
            _ => (vec!["/agnhost"], vec!["pause"]),
        };
        Image {
            reference: reference.clone(),
            layers: vec![0],
            entry_point,
            command,
            user: "0:0",
            folder: "/",
            environment: vec!["PATH=/bin:/"],
            ..Image::default()
        }
    };
    let images: Vec<Image<'_>> = references.iter().map(image).collect();
    oci::write(&[oci::layer(&entries)?], &images, Effort::Fast)
}

/// The archive with the image of pods that send traffic during a swap.
pub(crate) fn traffic() -> Result<Vec<u8>> {
    let image = Image {
        reference: TRAFFIC.to_owned(),
        layers: vec![0],
        entry_point: vec!["/bin/traffic"],
        user: "0:0",
        folder: "/",
        ..Image::default()
    };
    oci::write(&[oci::layer(&own_tools()?)?], &[image], Effort::Fast)
}

/// This program under the names of its tools, with its libraries.
fn own_tools() -> Result<Entries<'static>> {
    let own = std::env::current_exe().context("finding this program")?;
    let mut entries = root();
    add_file(&mut entries, "bin/e2e", &own)?;
    for library in libraries_of(&own)? {
        add_file(&mut entries, library.display().to_string().trim_start_matches('/'), &library)?;
    }
    for name in tools::NAMES {
        entries.insert(format!("bin/{name}"), Entry::Link("e2e".to_owned()));
    }
    let bytes = Cow::Borrowed(NAME_SERVICES);
    entries.insert("etc/nsswitch.conf".to_owned(), Entry::File { mode: 0o644, bytes });
    Ok(entries)
}

/// Adds a program or a library of this machine.
pub(crate) fn add_file(entries: &mut Entries<'_>, at: &str, path: &Path) -> Result<()> {
    let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    entries.insert(at.to_owned(), Entry::File { mode: 0o755, bytes: Cow::Owned(bytes) });
    Ok(())
}

/// Folders that runtimes and programs expect.
pub(crate) fn root() -> Entries<'static> {
    let folder = |path: &str, mode| (path.to_owned(), Entry::Folder { mode, owner: 0 });
    ["dev", "etc", "proc", "sys"]
        .map(|path| folder(path, 0o755))
        .into_iter()
        .chain([folder("tmp", 0o1777)])
        .collect()
}
