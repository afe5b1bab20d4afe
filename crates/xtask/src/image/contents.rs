//! The layer that all images share: the program, the paths by which manifests and scripts call it, and what an empty
//! root lacks. Pure.

use anyhow::Result;
use oci::{Entries, Entry};
use std::borrow::Cow;
use std::path::Path;

/// The program itself. The CNI installer copies the file that it runs from, so this path must not be a link.
const PROGRAM: &str = "usr/bin/calico";

/// Links to the program, which behaves according to the name that it was called by.
const LINKS: [&str; 31] = [
    "calicoctl",
    "code/apiserver",
    "goldmane",
    "health",
    "opt/cni/bin/bandwidth",
    "opt/cni/bin/calico",
    "opt/cni/bin/calico-ipam",
    "opt/cni/bin/host-local",
    "opt/cni/bin/install",
    "opt/cni/bin/loopback",
    "opt/cni/bin/portmap",
    "opt/cni/bin/tuning",
    "usr/bin/calico-felix",
    "usr/bin/calico-ipam",
    "usr/bin/calico-node",
    "usr/bin/calico-typha",
    "usr/bin/calicoctl",
    "usr/bin/check-status",
    "usr/bin/csi-driver",
    "usr/bin/csi-node-driver-registrar",
    "usr/bin/key-cert-provisioner",
    "usr/bin/kube-controllers",
    "usr/bin/node-driver-registrar",
    "usr/bin/tortie",
    "usr/local/bin/csi-driver",
    "usr/local/bin/flexvol",
    "usr/local/bin/flexvol.sh",
    "usr/local/bin/node-driver-registrar",
    "usr/sbin/start_runit",
    "webhook",
    "whisker-backend",
];

const FOLDERS: [&str; 20] = [
    "etc/calico",
    "licenses",
    "opt/cni/bin",
    "proc",
    "run",
    "sys",
    "usr/bin",
    "usr/lib",
    "usr/lib64",
    "usr/local",
    "usr/local/bin",
    "usr/sbin",
    "var/lib/calico",
    "var/log/calico",
    "var/run",
    "dev",
    "etc",
    "opt",
    "usr",
    "var",
];

/// The contents of the layer besides the names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub(super) program: &'a [u8],
    pub(super) licence: &'a [u8],
    pub(super) bill: &'a [u8],
    /// Shared libraries by absolute path, for a program that needs them.
    pub(super) libraries: &'a [(String, Vec<u8>)],
}

/// Builds the layer, uncompressed.
pub(super) fn layer(parts: Parts<'_>) -> Result<Vec<u8>> {
    let file = |mode, bytes| Entry::File { mode, bytes: Cow::Borrowed(bytes) };
    let mut entries = Entries::new();
    for path in FOLDERS {
        entries.insert(path.to_owned(), Entry::Folder { mode: 0o755, owner: 0 });
    }
    entries.insert("tmp".to_owned(), Entry::Folder { mode: 0o1777, owner: 0 });
    // Where kube-controllers writes its status; its user depends on the manifest.
    entries.insert("status".to_owned(), Entry::Folder { mode: 0o777, owner: 999 });
    // Where the API server stores a self-signed certificate.
    entries.insert("code".to_owned(), Entry::Folder { mode: 0o755, owner: 10001 });
    // Scripts in the field start either `/bin/calico-node` or `/usr/bin/calico-node`.
    entries.insert("bin".to_owned(), Entry::Link("usr/bin".to_owned()));
    entries.insert("sbin".to_owned(), Entry::Link("usr/sbin".to_owned()));
    // For a second layer whose programs need libraries.
    entries.insert("lib".to_owned(), Entry::Link("usr/lib".to_owned()));
    entries.insert("lib64".to_owned(), Entry::Link("usr/lib64".to_owned()));
    entries.insert(PROGRAM.to_owned(), file(0o755, parts.program));
    for link in LINKS {
        entries.insert(link.to_owned(), Entry::Link(relative(link)));
    }
    // Without it the resolver would not look into /etc/hosts.
    entries.insert("etc/nsswitch.conf".to_owned(), file(0o644, b"hosts: files dns\n"));
    entries.insert("licenses/LICENSE".to_owned(), file(0o644, parts.licence));
    entries.insert("licenses/sbom.spdx.json".to_owned(), file(0o644, parts.bill));
    for (path, bytes) in parts.libraries {
        entries.insert(super::libraries::in_layer(path), file(0o755, bytes.as_slice()));
    }
    oci::layer(&entries)
}

/// The relative path from a link to the program.
fn relative(link: &str) -> String {
    let depth = Path::new(link).components().count() - 1;
    if link.starts_with("usr/bin/") {
        "calico".to_owned()
    } else {
        format!("{}{PROGRAM}", "../".repeat(depth))
    }
}
