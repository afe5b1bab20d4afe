//! Conditions that do not fit into one rule, as blocks of rules before it.
//!
//! A rule of the kernel has one network per end and at most fifteen slots for ports, and everything in it must match. A
//! list of which any entry may match becomes a block: one rule per entry, each of which sets a bit of the mark. One bit
//! records that all blocks so far matched, another one belongs to the current block. The first block sets the first bit
//! directly. Lists of which no entry may match come last: each of their rules clears the first bit.
//!
//! The second block leaves its own bit set where it matched. Calico's third block only ever sets that bit, so it has no
//! effect. Here, each block from the third on clears it first; rules of one or two blocks are Calico's to the letter.

use super::conditions::{Conditions, EndConditions};
use crate::renderer::{Renderer, mark_clear, protocol};
use crate::tree::{Action, End, IpVersion, Match, PortRange, Protocol, Rule, SetName};
use ipnet::IpNet;
use messages::IcmpMatch;
use std::sync::Arc;

/// Slots for ports in one match; a range takes two.
const PORT_SLOTS: usize = 15;

/// The number of negated port matches in one rule. More become a block: a line of `iptables-restore` has at most 255
/// words, and a rule of nftables at most 4096 bytes of expressions.
const MAX_NEGATED_PORTS: usize = 16;

/// Splits ports into portions that fit into one match each.
pub(crate) fn split_ports(ports: &[PortRange]) -> Vec<Arc<[PortRange]>> {
    let mut portions = Vec::new();
    let (mut start, mut used) = (0, 0);
    for (index, range) in ports.iter().enumerate() {
        let slots = if range.first == range.last { 1 } else { 2 };
        if used + slots > PORT_SLOTS {
            portions.push(Arc::from(&ports[start..index]));
            (start, used) = (index, 0);
        }
        used += slots;
    }
    if start < ports.len() {
        portions.push(Arc::from(&ports[start..]));
    }
    portions
}

/// Builds blocks.
struct Blocks {
    rules: Vec<Rule>,
    all: u32,
    this: u32,
    /// The number of lists so far of which any entry may match.
    positive: usize,
}

impl Blocks {
    /// Adds the first rule of the first block, which gives both bits this value, whatever they were before.
    fn begin(&mut self, value: u32) {
        if self.rules.is_empty() {
            let mask = self.all | self.this;
            self.rules.push(Rule::always(Action::SetMaskedMark { value, mask }));
        }
    }

    /// Adds a block of which any rule must match.
    fn any(&mut self, entries: impl IntoIterator<Item = Vec<Match>>) {
        self.begin(0);
        let is_first = self.positive == 0;
        let bit = if is_first { self.all } else { self.this };
        if self.positive >= 2 {
            self.rules.push(Rule::always(Action::ClearMark(self.this)));
        }
        self.rules.extend(entries.into_iter().map(|matches| Rule::when(matches, Action::SetMark(bit))));
        if !is_first {
            self.rules.push(Rule::when([mark_clear(self.this)], Action::ClearMark(self.all)));
        }
        self.positive += 1;
    }

    /// Adds a block of which no rule may match.
    fn none(&mut self, entries: impl IntoIterator<Item = Vec<Match>>) {
        self.begin(self.all);
        let clear = Action::ClearMark(self.all);
        self.rules.extend(entries.into_iter().map(|matches| Rule::when(matches, clear.clone())));
    }
}

impl Renderer {
    /// Moves what does not fit into one rule from the conditions into blocks; returns none if everything fits.
    pub(super) fn overflow_blocks(&self, conditions: &mut Conditions, version: IpVersion) -> Vec<Rule> {
        let mut blocks = Blocks {
            rules: Vec::new(),
            all: self.config.marks.scratch0,
            this: self.config.marks.scratch1,
            positive: 0,
        };
        let transport = conditions.protocol;
        let ends = [&mut conditions.source, &mut conditions.destination];
        let mut negated_ports = 0;
        let mut ends = ends.map(|end| {
            let portions = split_ports(&end.ports);
            if portions.len() + end.named_ports.len() > 1 {
                blocks.any(port_entries(end, transport, portions, &end.named_ports));
                end.ports.clear();
                end.named_ports.clear();
            }
            negated_ports += split_ports(&end.not_ports).len() + end.not_named_ports.len();
            end
        });
        for end in &mut ends {
            if end.nets.len() > 1 {
                blocks.any(net_entries(end.end, &end.nets));
                end.nets.clear();
            }
        }
        for end in &mut ends {
            if end.nets.len() + end.not_nets.len() > 1 && !end.not_nets.is_empty() {
                blocks.none(net_entries(end.end, &end.not_nets));
                end.not_nets.clear();
            }
        }
        if negated_ports > MAX_NEGATED_PORTS {
            for end in &mut ends {
                let portions = split_ports(&end.not_ports);
                blocks.none(port_entries(end, transport, portions, &end.not_named_ports));
                end.not_ports.clear();
                end.not_named_ports.clear();
            }
        }
        // nftables compares type and code separately, so it cannot express "not both".
        let message = conditions.not_icmp.take_if(|message| self.is_nftables() && message.code.is_some());
        if let Some(IcmpMatch { icmp_type, code }) = message {
            let message = Match::Icmp { version, icmp_type, code, negated: false };
            blocks.none([transport.map(protocol).into_iter().chain([message]).collect()]);
        }
        blocks.rules
    }
}

fn port_entries(
    end: &EndConditions,
    transport: Option<Protocol>,
    portions: Vec<Arc<[PortRange]>>,
    named: &[SetName],
) -> Vec<Vec<Match>> {
    let end = end.end;
    let numbered = portions.into_iter().map(|ports| {
        let ports = Match::Ports { end, ports, negated: false };
        transport.map(protocol).into_iter().chain([ports]).collect()
    });
    let named = named.iter().map(|name| vec![Match::IpPortSet { end, name: name.clone(), negated: false }]);
    numbered.chain(named).collect()
}

fn net_entries(end: End, nets: &[IpNet]) -> Vec<Vec<Match>> {
    nets.iter().map(|net| vec![Match::Net { end, net: *net, negated: false }]).collect()
}
