//! Images for the pods of this bed, without a registry: busybox, under the names of what holds a pod's namespaces and of the
//! pods that talk.

use anyhow::{Context, Result};
use oci::{Effort, Entries, Entry, Image};
use std::borrow::Cow;
use testkit::{kubernetes_program, program};

/// The image of pods that talk.
pub(crate) const BUSYBOX: &str = "tortie.test/busybox:1";

/// The image that stands in for flannel: the bed makes the routes that flannel would make, so that it has nothing to do.
pub(crate) const FLANNEL: &str = "tortie.test/flannel:1";

/// The archive with the images that every bed needs.
pub(crate) fn helpers(pause: &str) -> Result<Vec<u8>> {
    let busybox = program("busybox", "install Debian's busybox-static (`make setup` does)")?;
    let busybox = std::fs::read(&busybox).with_context(|| format!("reading {}", busybox.display()))?;
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

/// The archive with the program in the pods of Kubernetes' own tests, under these names.
pub(crate) fn agnhost(references: &[String]) -> Result<Vec<u8>> {
    let agnhost = kubernetes_program("agnhost")?;
    let agnhost = std::fs::read(&agnhost).with_context(|| format!("reading {}", agnhost.display()))?;
    let mut entries = root();
    entries.insert("agnhost".to_owned(), Entry::File { mode: 0o755, bytes: Cow::Borrowed(&agnhost) });
    let image = |reference: &String| Image {
        reference: reference.clone(),
        layers: vec![0],
        entry_point: vec!["/agnhost"],
        command: vec!["pause"],
        user: "0:0",
        folder: "/",
        ..Image::default()
    };
    let images: Vec<Image<'_>> = references.iter().map(image).collect();
    oci::write(&[oci::layer(&entries)?], &images, Effort::Fast)
}

/// Folders that a runtime and programs expect.
fn root() -> Entries<'static> {
    let folder = |path: &str, mode| (path.to_owned(), Entry::Folder { mode, owner: 0 });
    ["dev", "etc", "proc", "sys"]
        .map(|path| folder(path, 0o755))
        .into_iter()
        .chain([folder("tmp", 0o1777)])
        .collect()
}
