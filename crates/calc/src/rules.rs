//! From the conditions of rules to sets: selectors, named ports and services become sets that the dataplane matches.
//!
//! This decides which sets there must be; their members are found elsewhere.

mod rule_id;
mod sets;

pub(crate) use rule_id::fill_in as fill_in_rule_ids;
pub(crate) use sets::{SetRegistry, SetSpec};

use crate::population::PortProtocol;
use hashbrown::HashMap;
use model::feed::{Port, RuleEnd};
use selector::Selector;

/// The sets that the rules of one policy or profile name, each once, in the order of first use.
#[derive(Debug, Default)]
pub(crate) struct SetList {
    specs: Vec<SetSpec>,
    /// The places of the sets, once they are many.
    numbers: HashMap<SetSpec, usize>,
}

/// Up to this many sets, a set is found by comparing each.
const FEW: usize = 16;

/// The sets that one end of a rule names, as places in a [`SetList`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EndSets {
    /// For selectors, and services at the source.
    pub(crate) addresses: Vec<usize>,
    /// For services at the destination.
    pub(crate) services: Vec<usize>,
    pub(crate) named_ports: Vec<usize>,
    pub(crate) not_addresses: Vec<usize>,
    pub(crate) not_named_ports: Vec<usize>,
}

impl SetList {
    /// The sets, in order.
    pub(crate) fn into_specs(self) -> Vec<SetSpec> {
        self.specs
    }

    /// The sets of one end of a rule. Named ports depend on the protocol, which is in the rule.
    pub(crate) fn add_end(&mut self, end: &RuleEnd, protocol: PortProtocol, is_destination: bool) -> EndSets {
        // A negative selector can be joined to a positive one: one set instead of two. Without a positive one it
        // cannot, because then it also applies to everything that is not an endpoint.
        let (positive, negative) = match (&end.selector, &end.not_selector) {
            (Some(positive), Some(negative)) => (Some(positive.and_not(negative)), None),
            (positive, negative) => (positive.clone(), negative.clone()),
        };
        // A set of named ports is limited to the endpoints of the positive selector, also for negated ports: other
        // endpoints do not match the rule anyway.
        let mut sets = EndSets {
            named_ports: self.add_named_ports(&end.ports, positive.as_ref(), protocol),
            not_named_ports: self.add_named_ports(&end.not_ports, positive.as_ref(), protocol),
            ..EndSets::default()
        };
        // With named ports alone, the selector is already part of their sets.
        if (sets.named_ports.is_empty() || sets.named_ports.len() < end.ports.len())
            && let Some(selector) = positive
        {
            sets.addresses.push(self.add(SetSpec::Selector(selector)));
        }
        sets.not_addresses.extend(negative.map(|selector| self.add(SetSpec::Selector(selector))));
        if let Some((namespace, name)) = &end.service {
            let service = format!("{namespace}/{name}");
            let set = self.add(SetSpec::Service { service, with_ports: is_destination });
            if is_destination { sets.services.push(set) } else { sets.addresses.push(set) }
        }
        sets
    }

    fn add_named_ports(
        &mut self,
        ports: &[Port],
        positive: Option<&Selector>,
        protocol: PortProtocol,
    ) -> Vec<usize> {
        let mut sets = Vec::new();
        for port in ports {
            if let Port::Named(name) = port {
                let selector = positive.cloned().unwrap_or_default();
                sets.push(self.add(SetSpec::NamedPort { selector, protocol, name: name.clone() }));
            }
        }
        sets
    }

    fn add(&mut self, spec: SetSpec) -> usize {
        let next = self.specs.len();
        let known = match next {
            0..FEW => self.specs.iter().position(|have| *have == spec),
            _ => self.numbers.get(&spec).copied(),
        };
        if let Some(place) = known {
            return place;
        }
        self.specs.push(spec);
        // From this number on, they are looked up by hash.
        if next + 1 == FEW {
            self.numbers = self.specs.iter().cloned().zip(0..).collect();
        } else if next >= FEW {
            self.numbers.extend(self.specs.last().cloned().map(|spec| (spec, next)));
        }
        next
    }
}

#[cfg(test)]
mod tests;
