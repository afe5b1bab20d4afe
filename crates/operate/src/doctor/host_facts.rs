//! The facts about this machine: files of the kernel and of `/etc`, running programs, interfaces.
//!
//! Files are read below a root, so that a test can provide its own machine.

use netlink::Kernel as _;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

/// An interface with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    /// Its name.
    pub name: String,
    /// Its address, with the prefix.
    pub address: String,
    /// The MTU.
    pub mtu: u32,
}

/// The facts. `None` means that a fact could not be determined.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostFacts {
    /// The kernel's version, such as `6.1.0-13-amd64`.
    pub kernel: String,
    /// Modules that are loaded, built in or loadable.
    pub modules: Option<BTreeSet<String>>,
    /// Whether that list is complete: without the module folder, some built-in modules are not visible.
    pub has_all_modules: bool,
    /// `net.ipv4.conf.all.rp_filter`.
    pub rp_filter: Option<u32>,
    /// `net.ipv4.ip_forward`.
    pub ip_forward: Option<u32>,
    /// Names of running programs.
    pub programs: BTreeSet<String>,
    /// The contents of all files that configure what NetworkManager and systemd-networkd leave alone.
    pub manager_files: String,
    /// Files in the folder of CNI configurations, in the order in which runtimes read them.
    pub cni_files: Vec<String>,
    /// The folder of CNI configurations.
    pub cni_conf_dir: String,
    /// The folder of CNI plugins.
    pub cni_bin_dir: String,
    /// Whether those folders can be written, in this order.
    pub writable: [Option<bool>; 2],
    /// The folders that containerd reads, if its configuration names any.
    pub containerd: Vec<(String, String)>,
    /// Whether `portmap` is among the plugins.
    pub has_portmap: bool,
    /// Whether legacy iptables has tables in this kernel.
    pub legacy_tables: Option<bool>,
    /// Interfaces with addresses, except loopback and link-local ones.
    pub interfaces: Vec<Interface>,
    /// Links, with their MTU.
    pub links: Vec<(String, u32)>,
    /// Tested addresses and ports of other nodes, with the reason for each failure.
    pub peers: Vec<(SocketAddr, Option<String>)>,
}

/// How long another node may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Reads the facts below `root`; `peers` are addresses and ports of other nodes to test.
#[must_use]
pub(crate) fn gather_host(
    root: &Path,
    cni_conf_dir: &str,
    cni_bin_dir: &str,
    peers: &[SocketAddr],
) -> HostFacts {
    let read = |path: &str| std::fs::read_to_string(root.join(path.trim_start_matches('/'))).ok();
    let number = |path: &str| read(path).and_then(|text| text.trim().parse().ok());
    let kernel = read("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let mut facts = HostFacts {
        has_all_modules: root.join("lib/modules").join(&kernel).join("modules.dep").exists(),
        modules: modules(root, &kernel),
        rp_filter: number("/proc/sys/net/ipv4/conf/all/rp_filter"),
        ip_forward: number("/proc/sys/net/ipv4/ip_forward"),
        programs: programs(root),
        manager_files: manager_files(root),
        cni_files: names(root, cni_conf_dir).into_iter().filter(|name| is_configuration(name)).collect(),
        has_portmap: names(root, cni_bin_dir).iter().any(|name| name == "portmap"),
        writable: [cni_conf_dir, cni_bin_dir].map(|folder| writable(root, folder)),
        cni_conf_dir: cni_conf_dir.to_owned(),
        cni_bin_dir: cni_bin_dir.to_owned(),
        containerd: read("/etc/containerd/config.toml").map(|text| containerd(&text)).unwrap_or_default(),
        legacy_tables: read("/proc/net/ip_tables_names").map(|text| !text.trim().is_empty()),
        kernel,
        ..HostFacts::default()
    };
    // If nftables answers, it is available, built in or not.
    let answers = netlink::netfilter::nft::Client::open().and_then(|mut client| client.tables()).is_ok();
    if let (Some(modules), true) = (&mut facts.modules, answers) {
        modules.insert("nf_tables".to_owned());
    }
    if let Ok(mut handle) = netlink::Handle::open() {
        let links = handle.links().unwrap_or_default();
        facts.links = links.iter().map(|link| (link.name.clone(), link.mtu)).collect();
        for address in handle.addresses(None, None).unwrap_or_default() {
            let Some(link) = links.iter().find(|link| link.index == address.index) else { continue };
            if address.address.addr().is_loopback() || is_link_local(address.address.addr()) {
                continue;
            }
            facts.interfaces.push(Interface {
                name: link.name.clone(),
                address: address.address.to_string(),
                mtu: link.mtu,
            });
        }
    }
    for peer in peers {
        let failure = TcpStream::connect_timeout(peer, PATIENCE).err().map(|error| error.to_string());
        facts.peers.push((*peer, failure));
    }
    facts
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    }
}

/// Modules by name with underscores; `None` if the kernel's folder does not exist, so that nothing can be loaded or
/// seen.
fn modules(root: &Path, kernel: &str) -> Option<BTreeSet<String>> {
    let mut found: BTreeSet<String> = names(root, "/sys/module").into_iter().collect();
    let folder = root.join("lib/modules").join(kernel);
    let mut has_folder = false;
    for file in ["modules.dep", "modules.builtin"] {
        let Ok(text) = std::fs::read_to_string(folder.join(file)) else { continue };
        has_folder = true;
        for line in text.lines() {
            let path = line.split(':').next().unwrap_or_default();
            let name = path.rsplit('/').next().and_then(|name| name.split('.').next()).unwrap_or_default();
            found.insert(name.replace('-', "_"));
        }
    }
    (has_folder || !found.is_empty()).then_some(found)
}

fn programs(root: &Path) -> BTreeSet<String> {
    let processes =
        names(root, "/proc").into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let name = |process: String| std::fs::read_to_string(root.join("proc").join(process).join("comm")).ok();
    processes.filter_map(name).map(|name| name.trim().to_owned()).collect()
}

fn manager_files(root: &Path) -> String {
    let mut text = String::new();
    for folder in [
        "/etc/NetworkManager",
        "/etc/NetworkManager/conf.d",
        "/usr/lib/NetworkManager/conf.d",
        "/etc/systemd",
        "/etc/systemd/networkd.conf.d",
    ] {
        for name in names(root, folder).iter().filter(|name| name.ends_with(".conf")) {
            let path = root.join(folder.trim_start_matches('/')).join(name);
            text.push_str(&std::fs::read_to_string(path).unwrap_or_default());
            text.push('\n');
        }
    }
    text
}

/// The names in a folder, sorted.
fn names(root: &Path, folder: &str) -> Vec<String> {
    let entries =
        std::fs::read_dir(root.join(folder.trim_start_matches('/'))).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn is_configuration(name: &str) -> bool {
    [".conf", ".conflist", ".json"].iter().any(|ending| name.ends_with(ending))
}

fn writable(root: &Path, folder: &str) -> Option<bool> {
    let path = root.join(folder.trim_start_matches('/'));
    if !path.exists() {
        return None;
    }
    let access = rustix::fs::access(&path, rustix::fs::Access::WRITE_OK);
    Some(access.is_ok())
}

/// `bin_dir` (or the list `bin_dirs` of newer versions) and `conf_dir` in containerd's configuration, in any section.
fn containerd(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
        let name = match name.trim() {
            "bin_dir" | "bin_dirs" => "bin_dir",
            "conf_dir" => "conf_dir",
            _ => continue,
        };
        for folder in value.trim().trim_matches(['[', ']']).split(',') {
            let folder = folder.trim().trim_matches(['"', '\'']);
            if !folder.is_empty() {
                found.push((name.to_owned(), folder.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n");
        write("proc/sys/net/ipv4/conf/all/rp_filter", "2\n");
        write("proc/12/comm", "NetworkManager\n");
        write("proc/net/ip_tables_names", "filter\n");
        write(
            "lib/modules/6.1.0-13-amd64/modules.dep",
            "kernel/net/ipv4/ipip.ko.xz: kernel/net/ipv4/tunnel4.ko\n",
        );
        write("lib/modules/6.1.0-13-amd64/modules.builtin", "kernel/net/netfilter/nf-tables.ko\n");
        write("etc/cni/net.d/20-other.conflist", "{}");
        write("etc/cni/net.d/10-calico.conflist", "{}");
        write("etc/cni/net.d/calico-kubeconfig", "");
        write("opt/cni/bin/portmap", "");
        write("etc/containerd/config.toml", "[plugins]\n  bin_dir = \"/usr/lib/cni\"\n");
        write("etc/NetworkManager/conf.d/calico.conf", "unmanaged-devices=interface-name:cali*\n");
        let facts = gather_host(folder.path(), "/etc/cni/net.d", "/opt/cni/bin", &[]);
        assert_eq!(
            (facts.kernel.as_str(), facts.rp_filter, facts.legacy_tables),
            ("6.1.0-13-amd64", Some(2), Some(true))
        );
        let modules = facts.modules.unwrap();
        assert!(
            modules.contains("ipip") && modules.contains("nf_tables") && facts.has_all_modules,
            "{modules:?}"
        );
        assert!(facts.programs.contains("NetworkManager") && facts.manager_files.contains("cali*"));
        assert_eq!(facts.cni_files, ["10-calico.conflist", "20-other.conflist"]);
        assert!(facts.has_portmap);
        assert_eq!(facts.containerd, [("bin_dir".to_owned(), "/usr/lib/cni".to_owned())]);
        assert_eq!(facts.writable, [Some(true), Some(true)]);
    }

    #[test]
    fn both_forms_of_containerds_configuration() {
        let found = containerd(
            "bin_dirs = ['/opt/cni/bin', \"/usr/lib/cni\"]\n  conf_dir = '/etc/cni/net.d'\n bin_dir = ''\n",
        );
        let expected =
            [("bin_dir", "/opt/cni/bin"), ("bin_dir", "/usr/lib/cni"), ("conf_dir", "/etc/cni/net.d")];
        assert_eq!(found, expected.map(|(name, folder)| (name.to_owned(), folder.to_owned())));
    }

    #[test]
    fn a_closed_port_is_reported() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let facts = gather_host(folder.path(), "/a", "/b", &[open]);
        assert_eq!(facts.peers, [(open, None)]);
        drop(listener);
        let facts = gather_host(folder.path(), "/a", "/b", &[open]);
        assert!(facts.peers[0].1.is_some());
        assert_eq!(facts.writable, [None, None]);
    }
}
