//! `component node dump WHAT`: kernel state, read over netlink, so that diagnostics need no helper programs in the
//! image.
//!
//! The output is for troubleshooting by people: it lists the state in a stable order. It does not match the output of
//! `ip`, `nft` and `ipset`, and rules of nftables are not decompiled; their comments and handles identify them.

mod nftables;

use crate::cli::DumpWhat;
use netlink::netfilter::{ipset, nft};
use netlink::tc::{self, TrafficControl as _};
use netlink::{Family, Handle, Kernel, Link, RouteFilter};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Why a dump failed.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Returns the requested dump as text.
///
/// # Errors
/// When the kernel does not permit reading it.
pub(crate) fn dump(what: DumpWhat, root: &Path) -> Result<String, Failure> {
    match what {
        DumpWhat::Link => links(&mut Handle::open()?),
        DumpWhat::Addr => addresses(&mut Handle::open()?),
        DumpWhat::Route => routes(&mut Handle::open()?, Family::V4),
        DumpWhat::Route6 => routes(&mut Handle::open()?, Family::V6),
        DumpWhat::Rule => rules(&mut Handle::open()?),
        DumpWhat::Neigh => neighbours(&mut Handle::open()?),
        DumpWhat::Qdisc => queues(),
        DumpWhat::Ipset => ip_sets(),
        DumpWhat::Nft => nftables(),
        DumpWhat::Conntrack => conntrack(root),
        DumpWhat::CniLogs => cni_logs(root),
    }
}

/// The names of devices by index.
fn names(links: &[Link]) -> BTreeMap<u32, &str> {
    links.iter().map(|link| (link.index, link.name.as_str())).collect()
}

fn lines(list: impl IntoIterator<Item = String>) -> String {
    let mut list: Vec<String> = list.into_iter().collect();
    list.sort();
    list.into_iter().fold(String::new(), |mut out, line| {
        out.push_str(&line);
        out.push('\n');
        out
    })
}

fn links(kernel: &mut impl Kernel) -> Result<String, Failure> {
    let links = kernel.links()?;
    let names = names(&links);
    let mut out = String::new();
    for link in &links {
        let kind = if link.kind.is_empty() { "device" } else { &link.kind };
        let state = if link.running {
            "running"
        } else if link.up {
            "up"
        } else {
            "down"
        };
        // Writing to a string does not fail.
        let _ = write!(out, "{}: {} {kind} {state} mtu {}", link.index, link.name, link.mtu);
        if let Some(mac) = link.mac {
            let _ = write!(out, " mac {mac}");
        }
        if let Some(master) = link.master {
            let _ = write!(out, " master {}", names.get(&master).copied().unwrap_or("?"));
        }
        if let Some(peer) = link.peer_index {
            let _ = write!(out, " peer {peer}");
        }
        out.push('\n');
    }
    Ok(out)
}

fn addresses(kernel: &mut impl Kernel) -> Result<String, Failure> {
    let links = kernel.links()?;
    let names = names(&links);
    let all = kernel.addresses(None, None)?;
    Ok(lines(all.iter().map(|address| {
        let name = names.get(&address.index).copied().unwrap_or("?");
        let note = if address.duplicate {
            " duplicate"
        } else if address.tentative {
            " tentative"
        } else {
            ""
        };
        format!("{name} {}{note}", address.address)
    })))
}

fn routes(kernel: &mut impl Kernel, family: Family) -> Result<String, Failure> {
    let links = kernel.links()?;
    let names = names(&links);
    let name = |index: u32| names.get(&index).copied().unwrap_or("?").to_owned();
    let all = kernel.routes(&RouteFilter::all(family))?;
    Ok(lines(all.iter().map(|route| {
        let mut line =
            format!("table {:<10} {} {:?}", route.table, route.destination, route.kind).to_lowercase();
        if let Some(gateway) = route.gateway {
            let _ = write!(line, " via {gateway}");
        }
        if let Some(device) = route.device {
            let _ = write!(line, " dev {}", name(device));
        }
        for hop in &route.hops {
            let gateway = hop.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
            let _ = write!(line, " nexthop{gateway} dev {}", name(hop.device));
        }
        if let Some(source) = route.source {
            let _ = write!(line, " src {source}");
        }
        if let Some(metric) = route.metric {
            let _ = write!(line, " metric {metric}");
        }
        let _ = write!(line, " proto {}", route.protocol);
        line
    })))
}

fn rules(kernel: &mut impl Kernel) -> Result<String, Failure> {
    let mut out = String::new();
    for family in [Family::V4, Family::V6] {
        let mut rules = kernel.rules(family)?;
        rules.sort_by_key(|rule| rule.priority);
        for rule in rules {
            let _ = writeln!(out, "{rule}");
        }
    }
    Ok(out)
}

fn neighbours(kernel: &mut impl Kernel) -> Result<String, Failure> {
    let links = kernel.links()?;
    let names = names(&links);
    let mut all = Vec::new();
    for family in [Family::V4, Family::V6] {
        for neighbour in kernel.neighbours(family, None)? {
            let name = names.get(&neighbour.index).copied().unwrap_or("?");
            let address = neighbour.address.map(|address| address.to_string()).unwrap_or_default();
            let mac = neighbour.mac.map(|mac| mac.to_string()).unwrap_or_default();
            all.push(format!("{name} {address} {mac} {:?}", neighbour.state));
        }
    }
    for link in links.iter().filter(|link| link.kind == "vxlan" || link.kind == "bridge") {
        for entry in kernel.forwarding(link.index)? {
            let mac = entry.mac.map(|mac| mac.to_string()).unwrap_or_default();
            let address = entry.address.map(|address| format!(" to {address}")).unwrap_or_default();
            all.push(format!("{} fdb {mac}{address}", link.name));
        }
    }
    Ok(lines(all))
}

fn queues() -> Result<String, Failure> {
    let links = Handle::open()?.links()?;
    let names = names(&links);
    let queues = tc::Client::open()?.queues()?;
    Ok(lines(queues.iter().map(|queue| {
        let name = names.get(&queue.index).copied().unwrap_or("?");
        let rate = queue.bucket.as_ref().map(|bucket| format!(" {bucket:?}")).unwrap_or_default();
        format!("{name} {} parent {:x}{rate}", queue.kind, queue.parent)
    })))
}

fn ip_sets() -> Result<String, Failure> {
    let mut client = ipset::Client::open()?;
    let mut names = client.names()?;
    names.sort();
    let mut out = String::new();
    for name in names {
        let Some(set) = client.read(&name)? else { continue };
        let header = set
            .header
            .map(|header| format!("{header:?}"))
            .unwrap_or_else(|| "of a kind that is not Calico's".to_owned());
        let _ = writeln!(out, "{name}: {} members, {header}", set.members.len());
        let mut members = set.members;
        members.sort();
        for member in members {
            let _ = match member {
                ipset::Member::Address(address) => writeln!(out, "  {address}"),
                ipset::Member::Net(net) => writeln!(out, "  {net}"),
                ipset::Member::AddressPort(address, protocol, port) => {
                    writeln!(out, "  {address},{protocol}:{port}")
                }
            };
        }
    }
    Ok(out)
}

fn nftables() -> Result<String, Failure> {
    let mut client = nft::Client::open()?;
    let mut out = String::new();
    for (number, name) in client.tables()? {
        let known = [nft::Family::Ip, nft::Family::Arp, nft::Family::Ip6];
        let Some(family) = known.into_iter().find(|family| family.number() == number) else {
            let _ = writeln!(out, "table {name} of family {number}");
            continue;
        };
        let table = nft::Table::new(family, &name);
        let _ = writeln!(out, "table {table}");
        for set in client.sets(&table)? {
            let elements = client.elements(&table, &set)?;
            let kind = if set.map { "map" } else { "set" };
            let _ = writeln!(out, "  {kind} {}: {} members", set.name, elements.len());
            for element in elements {
                let _ = writeln!(out, "    {}", nftables::member(set.key, &element));
            }
        }
        let rules = client.rules(&table, None)?;
        for chain in client.chains(&table)? {
            let base =
                chain.base.map(|(hook, priority, kind)| format!(" {kind} hook {hook} priority {priority}"));
            let _ = writeln!(out, "  chain {}{}", chain.name, base.unwrap_or_default());
            for rule in rules.iter().filter(|rule| rule.chain == chain.name) {
                let _ =
                    writeln!(out, "    rule {} {}", rule.handle, rule.comment.as_deref().unwrap_or_default());
            }
        }
    }
    Ok(out)
}

/// The kernel's own table, if it has the file; otherwise the number of connections.
fn conntrack(root: &Path) -> Result<String, Failure> {
    let read = |path: &str| std::fs::read_to_string(root.join(path));
    if let Ok(text) = read("proc/net/nf_conntrack") {
        return Ok(text);
    }
    let count = read("proc/sys/net/netfilter/nf_conntrack_count")?;
    let most = read("proc/sys/net/netfilter/nf_conntrack_max")?;
    Ok(format!(
        "{} connections of at most {}; this kernel has no file with them\n",
        count.trim(),
        most.trim()
    ))
}

/// The end of each log of the CNI plugin.
fn cni_logs(root: &Path) -> Result<String, Failure> {
    const MOST: usize = 1 << 20;
    let folder = root.join("var/log/calico/cni");
    let mut files = std::fs::read_dir(&folder)?.collect::<std::io::Result<Vec<_>>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    let mut out = String::new();
    for file in files {
        let bytes = std::fs::read(file.path())?;
        let newest = &bytes[bytes.len().saturating_sub(MOST)..];
        let _ = writeln!(out, "==> {} <==", file.file_name().to_string_lossy());
        out.push_str(&String::from_utf8_lossy(newest));
        if !out.ends_with('\n') {
            out.push('\n');
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_can_be_dumped_without_a_program() {
        let root = Path::new("/");
        for what in [
            DumpWhat::Link,
            DumpWhat::Addr,
            DumpWhat::Route,
            DumpWhat::Route6,
            DumpWhat::Rule,
            DumpWhat::Neigh,
            DumpWhat::Qdisc,
        ] {
            let text = dump(what, root).unwrap_or_else(|error| panic!("{what:?}: {error}"));
            assert!(text.is_empty() || text.ends_with('\n'), "{what:?}");
        }
        assert!(dump(DumpWhat::Link, root).unwrap().contains(": lo device"));
    }

    #[test]
    fn routes_name_their_devices() {
        let mut kernel = netlink::FakeKernel::new();
        let index = kernel.with_link("cali1", "veth");
        let route =
            netlink::Route { device: Some(index), ..netlink::Route::new("10.1.0.5/32".parse().unwrap()) };
        netlink::first_failure(kernel.apply(&[netlink::Operation::AddRoute(route)])).unwrap();
        let text = routes(&mut kernel, Family::V4).unwrap();
        assert!(text.contains("10.1.0.5/32 unicast dev cali1"), "{text}");
    }

    #[test]
    fn the_ends_of_the_plugins_logs_are_printed() {
        let folder = tempfile::tempdir().unwrap();
        assert!(cni_logs(folder.path()).is_err());
        let logs = folder.path().join("var/log/calico/cni");
        std::fs::create_dir_all(&logs).unwrap();
        std::fs::write(logs.join("cni.log"), "one").unwrap();
        std::fs::write(logs.join("cni-old.log"), "two\n").unwrap();
        assert_eq!(cni_logs(folder.path()).unwrap(), "==> cni-old.log <==\ntwo\n==> cni.log <==\none\n");
    }
}
