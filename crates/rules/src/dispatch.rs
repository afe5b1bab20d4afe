//! Dispatch from interfaces to the chains of their endpoints.
//!
//! iptables has nothing better than a list of rules, so names are split once, by the character after their common
//! prefix. nftables looks workloads up in a map, however many there are.

use crate::names::{self, Backend, EndpointChain};
use crate::renderer::{Renderer, goto, interface};
use crate::tree::{Action, Chain, InterfaceName, InterfacePattern, Match, Rule, Side, Table, VerdictMap};
use std::collections::BTreeSet;

/// Chains, and the maps that they look up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dispatch {
    /// The chains.
    pub chains: Vec<Chain>,
    /// The maps; only nftables has some.
    pub maps: Vec<VerdictMap>,
}

/// The interfaces of host endpoints that have one kind of policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostInterfaces {
    /// The interfaces.
    pub names: BTreeSet<InterfaceName>,
    /// Whether an endpoint for all interfaces handles those that are not named.
    pub any: bool,
}

/// One root chain: the interface that it looks at, and the chains that it leads to.
struct Root<'a> {
    chain: &'a str,
    /// The text between the root's name and the character in the names of its children.
    infix: &'a str,
    side: Side,
    target: EndpointChain,
    end: Vec<Rule>,
}

impl Renderer {
    /// Leads to the chains of workloads. Packets of unknown workload interfaces are dropped or rejected.
    #[must_use]
    pub fn workload_dispatch(&self, interfaces: &BTreeSet<InterfaceName>) -> Dispatch {
        let mut dispatch = Dispatch::default();
        for (chain, side, target) in [
            (names::FROM_WORKLOAD_DISPATCH, Side::In, EndpointChain::FromWorkload),
            (names::TO_WORKLOAD_DISPATCH, Side::Out, EndpointChain::ToWorkload),
        ] {
            let unknown = Rule::always(self.deny(Table::Filter).into()).comment("Unknown interface");
            match self.backend() {
                Backend::Iptables => {
                    let root = Root { chain, infix: "", side, target, end: vec![unknown] };
                    dispatch.chains.extend(self.dispatch_tree(interfaces, &root));
                }
                Backend::Nftables => {
                    let lookup = Match::InterfaceMap { side, map: chain.into() };
                    let lookup = Rule { matches: vec![lookup], action: None, comments: Vec::new() };
                    dispatch.chains.push(Chain::new(chain, vec![lookup, unknown]));
                    let entries = known(interfaces)
                        .into_iter()
                        .map(|name| (name.clone(), self.backend().endpoint_chain(target, name)));
                    dispatch.maps.push(VerdictMap { name: chain.into(), entries: entries.collect() });
                }
            }
        }
        dispatch
    }

    /// The filter table's chains to host endpoints, for ordinary and for forwarded packets.
    #[must_use]
    pub fn filter_host_dispatch(&self, interfaces: &HostInterfaces) -> Vec<Chain> {
        use EndpointChain::{FromHost, FromHostForward, ToHost, ToHostForward};
        [
            (names::FROM_HOST_ENDPOINT, Side::In, FromHost),
            (names::TO_HOST_ENDPOINT, Side::Out, ToHost),
            (names::FROM_HOST_ENDPOINT_FORWARD, Side::In, FromHostForward),
            (names::TO_HOST_ENDPOINT_FORWARD, Side::Out, ToHostForward),
        ]
        .into_iter()
        .flat_map(|(chain, side, target)| self.host_tree(interfaces, chain, side, target, false))
        .collect()
    }

    /// The mangle table's chains to host endpoints; `before_nat` are those with policy before destination NAT.
    #[must_use]
    pub fn mangle_host_dispatch(&self, before_nat: &HostInterfaces, all: &HostInterfaces) -> Vec<Chain> {
        let mut chains =
            self.host_tree(before_nat, names::FROM_HOST_ENDPOINT, Side::In, EndpointChain::FromHost, false);
        chains.extend(self.host_tree(all, names::TO_HOST_ENDPOINT, Side::Out, EndpointChain::ToHost, true));
        chains
    }

    /// The raw table's chains to host endpoints with policy before connection tracking. It has none for all interfaces.
    #[must_use]
    pub fn raw_host_dispatch(&self, interfaces: &BTreeSet<InterfaceName>) -> Vec<Chain> {
        let interfaces = HostInterfaces { names: interfaces.clone(), any: false };
        let mut chains =
            self.host_tree(&interfaces, names::FROM_HOST_ENDPOINT, Side::In, EndpointChain::FromHost, false);
        chains.extend(self.host_tree(
            &interfaces,
            names::TO_HOST_ENDPOINT,
            Side::Out,
            EndpointChain::ToHost,
            false,
        ));
        chains
    }

    fn host_tree(
        &self,
        interfaces: &HostInterfaces,
        chain: &str,
        side: Side,
        target: EndpointChain,
        skip_workloads: bool,
    ) -> Vec<Chain> {
        let mut end = Vec::new();
        if interfaces.any {
            if skip_workloads {
                end.extend(self.workload_interfaces().map(|to| {
                    Rule::when([interface(Side::Out, to)], Action::Return)
                        .comment("Skip egress WHEP policy for traffic to local workload")
                }));
            }
            end.push(Rule::always(Action::Goto(self.backend().endpoint_chain(target, names::ANY_INTERFACE))));
        }
        self.dispatch_tree(&interfaces.names, &Root { chain, infix: "", side, target, end })
    }

    /// The children, then the root.
    fn dispatch_tree(&self, interfaces: &BTreeSet<InterfaceName>, root: &Root<'_>) -> Vec<Chain> {
        let (mut chains, rules) = self.dispatch_branches(interfaces, root);
        chains.push(Chain::new(root.chain, rules));
        chains
    }

    /// The children, and the rules of the root.
    fn dispatch_branches(
        &self,
        interfaces: &BTreeSet<InterfaceName>,
        root: &Root<'_>,
    ) -> (Vec<Chain>, Vec<Rule>) {
        let direct = |name: &InterfaceName| {
            let to = self.backend().endpoint_chain(root.target, name);
            Rule::when([interface(root.side, InterfacePattern::exact(name.clone()))], Action::Goto(to))
        };
        let mut rest = known(interfaces);
        let common = common_prefix(&rest);
        let mut chains = Vec::new();
        let mut rules = Vec::new();
        while let Some(first) = rest.first() {
            // Names are sorted, so those with the same next character are adjacent.
            let next = first[common.len()..].chars().next().map_or(0, char::len_utf8);
            let prefix = first[..common.len() + next].to_owned();
            let count = match next == 0 {
                // This name is the common prefix itself; only one name can be.
                true => 1,
                false => rest.iter().take_while(|name| name.starts_with(&prefix)).count(),
            };
            let bin: Vec<_> = rest.drain(..count).collect();
            if let [only] = bin[..] {
                rules.push(direct(only));
                continue;
            }
            let child = format!("{}{}-{}", root.chain, root.infix, &prefix[common.len()..]);
            let pattern = InterfacePattern::prefix(prefix);
            rules.push(Rule::when([interface(root.side, pattern)], goto(child.as_str())));
            // Packets do not return from the child, so it ends like the root.
            let child_rules = bin.into_iter().map(direct).chain(root.end.iter().cloned());
            chains.push(Chain::new(child, child_rules.collect()));
        }
        rules.extend(root.end.iter().cloned());
        (chains, rules)
    }

    /// Marks packets with the endpoint that they came from, and leads from marks to the chains of endpoints; only where
    /// kube-proxy uses IPVS.
    pub fn endpoint_mark_dispatch(
        &self,
        marks: &mut crate::endpoint_marks::EndpointMarks,
        workloads: &BTreeSet<InterfaceName>,
        hosts: &BTreeSet<InterfaceName>,
    ) -> Vec<Chain> {
        let mask = marks.mask();
        let mut chains = Vec::new();
        let mut set_rules = Vec::new();
        for (interfaces, infix) in [(workloads, "-wep"), (hosts, "-hep")] {
            let root = Root {
                chain: names::SET_ENDPOINT_MARK,
                infix,
                side: Side::In,
                target: EndpointChain::SetMark,
                end: Vec::new(),
            };
            let (children, rules) = self.dispatch_branches(interfaces, &root);
            chains.extend(children);
            set_rules.extend(rules);
        }
        set_rules.extend(self.workload_interfaces().map(|from| {
            Rule::when([interface(Side::In, from)], self.deny(Table::Filter).into())
                .comment("Unknown endpoint")
        }));
        let others = Action::SetMaskedMark { value: self.config.marks.non_calico_endpoint, mask };
        set_rules.push(Rule::always(others).comment("Non-Cali endpoint mark"));

        let mut from_rules = Vec::new();
        for (interfaces, target) in
            [(workloads, EndpointChain::FromWorkload), (hosts, EndpointChain::FromHostForward)]
        {
            from_rules.extend(known(interfaces).into_iter().filter_map(|name| {
                let value = marks.get(name)?;
                let to = self.backend().endpoint_chain(target, name);
                Some(Rule::when([Match::Mark { value, mask, negated: false }], Action::Goto(to)))
            }));
        }
        from_rules.push(Rule::always(self.deny(Table::Filter).into()).comment("Unknown interface"));
        chains.push(Chain::new(names::SET_ENDPOINT_MARK, set_rules));
        chains.push(Chain::new(names::FROM_ENDPOINT_MARK, from_rules));
        chains
    }
}

/// The names that interfaces can have. Packets of other interfaces are treated like those without an endpoint.
fn known(names: &BTreeSet<InterfaceName>) -> Vec<&InterfaceName> {
    names.iter().filter(|name| names::is_interface(name)).collect()
}

/// The common prefix of all names. Names are sorted, so the first and the last determine it.
fn common_prefix<'a>(names: &[&'a InterfaceName]) -> &'a str {
    let (Some(first), Some(last)) = (names.first(), names.last()) else { return "" };
    let length = first.chars().zip(last.chars()).take_while(|(one, other)| one == other);
    &first[..length.map(|(one, _)| one.len_utf8()).sum()]
}
