//! ARP: the host answers all requests on a workload's interface (proxy ARP). It must not answer for the workload's own
//! addresses, or the workload believes that another machine has them.

use crate::names::{self, Backend, EndpointChain};
use crate::renderer::{Renderer, interface, jump};
use crate::tree::{
    Action, Chain, InterfaceName, InterfacePattern, KernelChain, Match, Rule, Side, VerdictMap,
};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;

impl Renderer {
    /// The rules in the kernel's chain of the ARP table.
    #[must_use]
    pub fn arp_kernel_chain(&self) -> KernelChain {
        KernelChain {
            name: "OUTPUT",
            inserted: vec![Rule::always(jump(names::ARP_DISPATCH))],
            appended: Vec::new(),
        }
    }

    /// The chain of a workload: it drops replies about the workload's own addresses.
    #[must_use]
    pub fn workload_arp_chain(&self, name: &str, addresses: &[IpNet]) -> Chain {
        let rules = addresses.iter().filter_map(|net| match net.addr() {
            IpAddr::V4(address) => Some(Rule::when(
                [
                    interface(Side::Out, InterfacePattern::exact(name)),
                    Match::ArpReply,
                    Match::ArpSource(address),
                ],
                Action::Drop,
            )),
            IpAddr::V6(_) => None,
        });
        Chain::new(Backend::Nftables.endpoint_chain(EndpointChain::Arp, name), rules.collect())
    }

    /// Leads to the chains of workloads with IPv4 addresses.
    #[must_use]
    pub fn arp_dispatch(&self, interfaces: &BTreeSet<InterfaceName>) -> (Chain, VerdictMap) {
        let lookup = Match::InterfaceMap { side: Side::Out, map: names::ARP_DISPATCH.into() };
        let lookup = Rule { matches: vec![lookup], action: None, comments: Vec::new() };
        let entries = interfaces
            .iter()
            .filter(|name| names::is_interface(name))
            .map(|name| (name.clone(), Backend::Nftables.endpoint_chain(EndpointChain::Arp, name)));
        (
            Chain::new(names::ARP_DISPATCH, vec![lookup]),
            VerdictMap { name: names::ARP_DISPATCH.into(), entries: entries.collect() },
        )
    }
}
