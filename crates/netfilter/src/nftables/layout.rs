//! The base chains of our tables, through which packets enter. Names and priorities are Calico's.

use netlink::netfilter::nft::{self, BaseChain, ChainKind, Hook};
use rules::nftables::{Family, chain_name};
use rules::tree::Table;

messages::name_types! {
    /// The name of a chain in the table that all layers share: the layer comes first.
    FullChainName;
    /// The name of a map in the table that all layers share: the layer comes first.
    FullMapName;
}

/// The corresponding family of the `netlink` crate.
pub(super) const fn netlink_family(family: Family) -> nft::Family {
    match family {
        Family::Ip => nft::Family::Ip,
        Family::Ip6 => nft::Family::Ip6,
        Family::Arp => nft::Family::Arp,
    }
}

/// Our table in a family.
pub(super) fn table(family: Family) -> nft::Table {
    nft::Table::new(netlink_family(family), family.table())
}

/// Before connection tracking.
const RAW: i32 = -300;
const MANGLE: i32 = -150;
const DNAT: i32 = -100;
const FILTER: i32 = 0;
/// After kube-proxy's translation at 100.
const SNAT: i32 = 110;

/// All base chains of a family: the layer, the kernel's chain that it represents, and where it is attached.
pub(super) fn base_chains(family: Family) -> Vec<(Table, &'static str, BaseChain)> {
    use {ChainKind as Kind, Table as Layer};
    let base = |layer, name, kind, hook, priority| (layer, name, BaseChain { kind, hook, priority });
    if family == Family::Arp {
        return vec![base(Layer::Filter, "OUTPUT", Kind::Filter, Hook::ArpOutput, FILTER)];
    }
    vec![
        base(Layer::Filter, "INPUT", Kind::Filter, Hook::Input, FILTER),
        base(Layer::Filter, "FORWARD", Kind::Filter, Hook::Forward, FILTER),
        base(Layer::Filter, "OUTPUT", Kind::Filter, Hook::Output, FILTER),
        base(Layer::Nat, "PREROUTING", Kind::Nat, Hook::Prerouting, DNAT),
        base(Layer::Nat, "INPUT", Kind::Nat, Hook::Input, DNAT),
        base(Layer::Nat, "OUTPUT", Kind::Nat, Hook::Output, SNAT),
        base(Layer::Nat, "POSTROUTING", Kind::Nat, Hook::Postrouting, SNAT),
        base(Layer::Mangle, "PREROUTING", Kind::Filter, Hook::Prerouting, MANGLE),
        base(Layer::Mangle, "INPUT", Kind::Filter, Hook::Input, MANGLE),
        base(Layer::Mangle, "FORWARD", Kind::Filter, Hook::Forward, MANGLE),
        base(Layer::Mangle, "OUTPUT", Kind::Route, Hook::Output, MANGLE),
        base(Layer::Mangle, "POSTROUTING", Kind::Filter, Hook::Postrouting, MANGLE),
        base(Layer::Raw, "PREROUTING", Kind::Filter, Hook::Prerouting, RAW),
        base(Layer::Raw, "OUTPUT", Kind::Filter, Hook::Output, RAW),
    ]
}

/// The full name of a layer's chain.
pub(super) fn full_chain(layer: Table, name: &str) -> FullChainName {
    chain_name(layer, name).into()
}

/// The full name of a layer's map.
pub(super) fn full_map(layer: Table, name: &str) -> FullMapName {
    chain_name(layer, name).into()
}

/// The layer in a chain's full name.
pub(super) fn layer_of(name: &str) -> Table {
    let of = |layer: &Table| name.strip_prefix(layer.as_str()).is_some_and(|rest| rest.starts_with('-'));
    Table::ALL.into_iter().find(of).unwrap_or(Table::Filter)
}
