//! The images: which of Calico's image names this program replaces, and what each runs when it is started without
//! arguments, as many manifests do.

use oci::Architecture;
use std::collections::BTreeMap;

/// A name of Calico's image, and how it starts.
pub(super) struct Image {
    /// The last part of its name, like Calico's.
    pub(super) name: &'static str,
    pub(super) entry_point: &'static [&'static str],
    /// Replaced by the arguments of a manifest.
    pub(super) command: &'static [&'static str],
    /// Numeric: `runAsNonRoot` cannot check a name.
    pub(super) user: &'static str,
    pub(super) environment: &'static [&'static str],
    pub(super) folder: &'static str,
}

/// Programs that work on the host run as root; manifests require `kube-controllers` and `typha` not to, without naming
/// a user, so their images must have one.
pub(super) const IMAGES: [Image; 14] = [
    Image {
        name: "apiserver",
        entry_point: &["/code/apiserver"],
        command: &[],
        user: "10001:10001",
        environment: &[],
        folder: "/code",
    },
    Image {
        name: "calico",
        entry_point: &["/usr/bin/calico"],
        command: &[],
        user: "10001:10001",
        environment: &[],
        folder: "/",
    },
    Image {
        name: "cni",
        entry_point: &[],
        command: &["/opt/cni/bin/install"],
        user: "0:0",
        environment: &[],
        folder: "/opt/cni/bin",
    },
    Image {
        name: "csi",
        entry_point: &["/usr/bin/csi-driver"],
        command: &[],
        user: "0:0",
        environment: &[],
        folder: "/",
    },
    Image {
        name: "ctl",
        entry_point: &["/usr/bin/calicoctl"],
        command: &[],
        user: "10001:10001",
        environment: &["CALICO_CTL_CONTAINER=TRUE"],
        folder: "/",
    },
    Image {
        name: "goldmane",
        entry_point: &[],
        command: &["/goldmane"],
        user: "10001:10001",
        environment: &[],
        folder: "/",
    },
    Image {
        name: "key-cert-provisioner",
        entry_point: &["/usr/bin/key-cert-provisioner"],
        command: &[],
        user: "10001:10001",
        environment: &[],
        folder: "/",
    },
    Image {
        name: "kube-controllers",
        entry_point: &["/usr/bin/kube-controllers"],
        command: &[],
        user: "999",
        environment: &[],
        folder: "/",
    },
    Image {
        name: "node",
        entry_point: &[],
        command: &["start_runit"],
        user: "0:0",
        environment: &["SVDIR=/etc/service/enabled"],
        folder: "/",
    },
    Image {
        name: "node-driver-registrar",
        entry_point: &["/usr/bin/node-driver-registrar"],
        command: &[],
        user: "0:0",
        environment: &[],
        folder: "/",
    },
    Image {
        name: "pod2daemon-flexvol",
        entry_point: &["/usr/local/bin/flexvol.sh"],
        command: &[],
        user: "0:0",
        environment: &[],
        folder: "/",
    },
    Image {
        name: "typha",
        entry_point: &[],
        command: &["/usr/bin/calico-typha"],
        user: "999",
        environment: &[],
        folder: "/",
    },
    Image {
        name: "webhooks",
        entry_point: &["/webhook"],
        command: &[],
        user: "10001:10001",
        environment: &[],
        folder: "/",
    },
    Image {
        name: "whisker-backend",
        entry_point: &[],
        command: &["/whisker-backend"],
        user: "10001:10001",
        environment: &[],
        folder: "/",
    },
];

/// The images to write: all with the one layer, and the node with a second one if there is one.
pub(super) fn images(
    registry: &str,
    tag: &str,
    has_iptables: bool,
    architecture: Architecture,
) -> Vec<oci::Image<'static>> {
    let image = |image: &Image| oci::Image {
        reference: format!("{registry}/{}:{tag}", image.name),
        layers: if has_iptables && image.name == "node" { vec![0, 1] } else { vec![0] },
        entry_point: image.entry_point.to_vec(),
        command: image.command.to_vec(),
        user: image.user,
        environment: image.environment.to_vec(),
        folder: image.folder,
        architecture,
        labels: BTreeMap::from([
            ("org.opencontainers.image.licenses", "Apache-2.0".to_owned()),
            ("org.opencontainers.image.source", env!("CARGO_PKG_REPOSITORY").to_owned()),
            ("org.opencontainers.image.title", format!("tortie {}", image.name)),
            ("org.opencontainers.image.version", tag.to_owned()),
        ]),
    };
    IMAGES.iter().map(image).collect()
}
