//! Images of Calico itself for a swap: its own program, built by the user (`TORTIE_PEER_BIN`), with the rest of its
//! image: the names that manifests use, helpers from this machine, and a script instead of the supervisor.
//!
//! Requires that program; nothing of Calico is in this repository.

use crate::images::{add_file, busybox, root};
use anyhow::{Context, Result, ensure};
use oci::{Effort, Entries, Entry, Image};
use std::path::{Path, PathBuf};
use testkit::guest::libraries_of;
use testkit::program;

/// The registry in the references of Calico's images.
pub(crate) const REGISTRY: &str = "tortie.test/peer";
/// Their tag; tools read Calico's version from it.
pub(crate) const TAG: &str = "v3.34.0";

/// What the supervisor of Calico's image starts without BGP.
const START: &str = r#"#!/bin/sh
calico component node startup || exit 1
NODENAME=$(cat /var/lib/calico/nodename)
export NODENAME
calico component node allocate-tunnel-addrs --run-once || exit 1
export FELIX_FELIXHOSTNAME=$NODENAME FELIX_DATASTORETYPE=$DATASTORE_TYPE
# Built without libbpf, it cannot look for what an eBPF dataplane left.
export FELIX_DebugSkipCTLBCleanup=true
trap 'kill $(jobs -p) 2>/dev/null; exit 0' TERM INT
while :; do calico component node node-services; sleep 1; done &
while :; do calico component felix; sleep 1; done &
wait
"#;

/// The older name of the node's program, with its flags.
const NODE: &str = r#"#!/bin/sh
case $1 in
  -shutdown) exec calico component node shutdown ;;
  -init) exec calico component node init --best-effort ;;
esac
flags=
for flag; do flags="$flags -$flag"; done
exec calico component node health $flags
"#;

const INSTALL: &str = "#!/bin/sh\nexec calico component cni install\n";
const CONTROLLERS: &str = "#!/bin/sh\nexec calico component kube-controllers --health-port=9440 \"$@\"\n";
const STATUS: &str = r#"#!/bin/sh
case $1 in -l) type=liveness ;; *) type=readiness ;; esac
exec calico health --port=9440 --type=$type
"#;

/// Programs that Felix runs.
const HELPERS: [&str; 14] = [
    "iptables",
    "ip6tables",
    "iptables-nft-save",
    "iptables-nft-restore",
    "ip6tables-nft-save",
    "ip6tables-nft-restore",
    "iptables-legacy-save",
    "iptables-legacy-restore",
    "ip6tables-legacy-save",
    "ip6tables-legacy-restore",
    "nft",
    "ipset",
    "conntrack",
    "ip",
];
const EXTENSIONS: &str = "/usr/lib/x86_64-linux-gnu/xtables";
/// Plugins that CNI configurations chain.
const PLUGINS: [&str; 3] = ["portmap", "loopback", "host-local"];

/// The archive.
pub(crate) fn images(folder: Option<PathBuf>) -> Result<Vec<u8>> {
    let folder = folder.context(
        "TORTIE_PEER_BIN is not set: a folder with Calico's program `calico` (`go build ./cmd/calico` in its sources)",
    )?;
    let calico = folder.join("calico");
    ensure!(calico.is_file(), "{} does not exist", calico.display());
    let mut entries = root();
    add_file(&mut entries, "usr/bin/calico", &calico)?;
    entries.insert("usr/bin/calico-ipam".to_owned(), Entry::Link("calico".to_owned()));
    entries.insert("opt/cni/bin/calico-ipam".to_owned(), Entry::Link("/usr/bin/calico-ipam".to_owned()));
    entries.insert("status".to_owned(), Entry::Folder { mode: 0o777, owner: 0 });
    for (path, text) in [
        ("usr/sbin/start_runit", START),
        ("bin/calico-node", NODE),
        ("opt/cni/bin/install", INSTALL),
        ("usr/bin/kube-controllers", CONTROLLERS),
        ("usr/bin/check-status", STATUS),
        ("etc/nsswitch.conf", "hosts: files dns\n"),
    ] {
        let bytes = text.as_bytes().to_vec().into();
        entries.insert(path.to_owned(), Entry::File { mode: 0o755, bytes });
    }
    entries.insert("bin/busybox".to_owned(), Entry::File { mode: 0o755, bytes: busybox()?.into() });
    for name in ["cat", "kill", "ls", "modprobe", "sh", "sleep", "sysctl"] {
        entries.insert(format!("bin/{name}"), Entry::Link("busybox".to_owned()));
    }
    helpers(&mut entries)?;
    let image = |name: &str, entry_point, command, user| Image {
        reference: format!("{REGISTRY}/{name}:{TAG}"),
        layers: vec![0],
        entry_point,
        command,
        user,
        folder: "/",
        environment: vec!["PATH=/usr/bin:/usr/sbin:/bin"],
        ..Image::default()
    };
    let images = [
        image("node", vec![], vec!["start_runit"], "0:0"),
        image("cni", vec![], vec!["/opt/cni/bin/install"], "0:0"),
        image("kube-controllers", vec!["/usr/bin/kube-controllers"], vec![], "999:0"),
        image("calico", vec!["/usr/bin/calico"], vec![], "10001:10001"),
    ];
    oci::write(&[oci::layer(&entries)?], &images, Effort::Fast)
}

fn helpers(entries: &mut Entries<'_>) -> Result<()> {
    let mut libraries = std::collections::BTreeSet::new();
    for name in HELPERS {
        let path = program(
            name,
            "install Debian's iptables, nftables, ipset, conntrack and iproute2 (`make setup` does)",
        )?;
        libraries.extend(libraries_of(&path)?);
        add_file(entries, &format!("usr/sbin/{name}"), &path)?;
    }
    for extension in std::fs::read_dir(EXTENSIONS).with_context(|| format!("reading {EXTENSIONS}"))?.flatten()
    {
        // Some need more than the programs do: `statistic`, which kube-proxy's rules use, needs libm.
        libraries.extend(libraries_of(&extension.path())?);
        libraries.insert(extension.path());
    }
    for library in libraries {
        add_file(entries, library.display().to_string().trim_start_matches('/'), &library)?;
    }
    for plugin in PLUGINS {
        add_file(entries, &format!("opt/cni/bin/{plugin}"), &Path::new("/usr/lib/cni").join(plugin))?;
    }
    Ok(())
}
