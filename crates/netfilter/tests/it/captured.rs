//! The rules that Calico's Felix programmed on a host with a known policy ([`crate::shop`]), and the sets they refer
//! to.

use crate::host::Host;
use messages::{IpSetMember, IpSetType};

pub(crate) const CALICO_NFT: &str = include_str!("../../../testkit/data/felix-nft.txt");
pub(crate) const CALICO_IPTABLES: &str = include_str!("../../../testkit/data/felix-iptables-save.txt");
pub(crate) const CALICO_IPSETS: &str = include_str!("../data/calico-ipset-save.txt");

/// The sets of the host on which the captures were taken.
pub(crate) fn sets() -> Vec<(&'static str, IpSetType, Vec<IpSetMember>)> {
    let nets =
        |list: &[&str]| list.iter().map(|net| IpSetMember::Net(net.parse().expect("a network"))).collect();
    let port = IpSetMember::IpAndPort { address: [10, 66, 1, 1].into(), protocol: 6, port: 80 };
    let this_host = ["10.65.0.1", "10.66.1.0", "127.0.0.0", "127.0.0.1"];
    vec![
        ("s:lJBhNRljR9R5cj5JnoqyWyAXXXXXXXXXXXX", IpSetType::Net, nets(&["10.66.1.1/32"])),
        ("network-ip-pools", IpSetType::Net, nets(&["10.66.0.0/16"])),
        ("masq-ipam-pools", IpSetType::Net, nets(&["10.66.0.0/16"])),
        ("all-vxlan-net", IpSetType::Net, nets(&["10.65.0.2/32"])),
        ("n:cl9_Kgeu4H0OGLbhovVR3NB", IpSetType::IpAndPort, vec![port]),
        ("s:VU_cp95rDyNVyXI5hW7714L", IpSetType::Net, nets(&["10.66.2.9/32"])),
        (
            "this-host",
            IpSetType::Ip,
            this_host.iter().map(|one| IpSetMember::Ip(one.parse().expect("address"))).collect(),
        ),
        (
            "s:5X2SPVSOxbc4v-E1NhPgRV6",
            IpSetType::Net,
            nets(&["10.66.1.1/32", "10.66.1.2/32", "10.66.1.3/32", "10.66.2.9/32"]),
        ),
        ("s:PXyzBfQ3KPvs-S88FMY1DW-", IpSetType::Net, nets(&["192.0.2.0/24", "198.51.100.7/32"])),
        ("dscp-src-net", IpSetType::Net, vec![]),
    ]
}

/// The output of `iptables-save`, without counters and dates.
pub(crate) fn saved(host: &Host, variant: &str) -> String {
    let printed = host.shell(&format!("iptables-{variant}-save"));
    let lines = printed.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(" [").next().unwrap_or(line)).collect::<Vec<_>>().join("\n")
}
