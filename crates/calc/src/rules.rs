//! From the rules of policies and profiles to rules that the dataplane can apply: selectors, named ports and services
//! become names of sets, and the sets in use become known.
//!
//! It refuses to know members; it says which sets there must be. A rule that cannot be read is never dropped: it becomes
//! one that denies whatever the readable rest of it matches.

mod rule_id;
mod sets;

pub(crate) use rule_id::fill_in as fill_in_rule_ids;
pub(crate) use sets::{SetRegistry, SetSpec};

use crate::population::PortProtocol;
use crate::sequencer::SetIndex;
use api::scalars::{Port, Protocol};
use messages::{IcmpMatch, IpSetId, OriginalEnd, PortRange, Rule, RuleEnd};
use model::IpVersion;
use model::feed::{self, RuleAction};
use selector::Selector;
use std::collections::HashMap;

/// Whoever knows the ids of sets.
pub(crate) trait SetNames {
    /// The id of a set that a rule names.
    fn name(&mut self, spec: SetSpec) -> IpSetId;

    /// Whether mistakes are told.
    fn tells_mistakes(&self) -> bool;
}

/// Takes a reference to each set that is named.
#[derive(Debug)]
pub(crate) struct Registering<'a> {
    registry: &'a mut SetRegistry,
    /// The sets of the policy or profile that is being scanned.
    used: Vec<SetIndex>,
}

impl SetNames for Registering<'_> {
    fn name(&mut self, spec: SetSpec) -> IpSetId {
        let (set, id) = self.registry.acquire(spec);
        self.used.push(set);
        id
    }

    fn tells_mistakes(&self) -> bool {
        true
    }
}

/// Only looks the names up: the references are held since the rules were scanned before.
#[derive(Debug)]
pub(crate) struct LookingUp<'a>(&'a SetRegistry);

impl SetNames for LookingUp<'_> {
    fn name(&mut self, spec: SetSpec) -> IpSetId {
        self.0.id(&spec)
    }

    fn tells_mistakes(&self) -> bool {
        false
    }
}

/// Turns rules into rules with sets. Lives for one flush: many policies have the same selectors.
#[derive(Debug)]
pub(crate) struct RuleScanner<S> {
    sets: S,
    parsed: HashMap<String, Option<Selector>>,
    unreadable: bool,
}

impl<'a> RuleScanner<Registering<'a>> {
    /// A scanner that takes references to the sets that it finds.
    pub(crate) fn new(registry: &'a mut SetRegistry) -> Self {
        Self::with(Registering { registry, used: Vec::new() })
    }

    /// The sets that were found since the last call, each once; one reference is held to each.
    pub(crate) fn take_sets(&mut self) -> Box<[SetIndex]> {
        let mut sets = std::mem::take(&mut self.sets.used);
        sets.sort_unstable();
        let mut kept: Vec<SetIndex> = Vec::with_capacity(sets.len());
        for set in sets {
            if kept.last() == Some(&set) {
                self.sets.registry.release(set);
            } else {
                kept.push(set);
            }
        }
        kept.into_boxed_slice()
    }
}

impl<'a> RuleScanner<LookingUp<'a>> {
    /// A scanner for rules whose sets are in use already.
    pub(crate) fn of_known(registry: &'a SetRegistry) -> Self {
        Self::with(LookingUp(registry))
    }
}

impl<S: SetNames> RuleScanner<S> {
    fn with(sets: S) -> Self {
        Self { sets, parsed: HashMap::new(), unreadable: false }
    }

    /// Scans the rules of one direction. `owner` is for the log.
    pub(crate) fn scan(&mut self, owner: &dyn std::fmt::Display, rules: Vec<feed::Rule>) -> Vec<Rule> {
        rules.into_iter().map(|rule| self.rule(owner, rule)).collect()
    }

    fn rule(&mut self, owner: &dyn std::fmt::Display, rule: feed::Rule) -> Rule {
        self.unreadable = false;
        // Named ports belong to a protocol, which stands in the rule.
        let protocol = rule.protocol.as_ref().map_or(PortProtocol::Any, PortProtocol::of);
        let ip_version = rule.ip_version.or(match rule.protocol {
            Some(Protocol::Icmp) => Some(IpVersion::V4),
            Some(Protocol::Icmpv6) => Some(IpVersion::V6),
            _ => None,
        });
        let mut scanned = Rule {
            action: rule.action,
            ip_version,
            protocol: rule.protocol,
            not_protocol: rule.not_protocol,
            icmp: self.icmp(rule.icmp.as_ref()),
            not_icmp: self.icmp(rule.not_icmp.as_ref()),
            source: self.end(rule.source, protocol, false),
            destination: self.end(rule.destination, protocol, true),
            http: rule.http,
            annotations: rule.annotations,
            rule_id: String::new(),
        };
        if self.unreadable {
            if self.sets.tells_mistakes() {
                tracing::error!(%owner, "a rule cannot be read completely; it denies what the rest of it matches");
            }
            scanned.action = RuleAction::Deny;
        }
        scanned
    }

    fn icmp(&mut self, fields: Option<&api::ICMPFields>) -> Option<IcmpMatch> {
        let fields = fields?;
        let icmp_type = fields.icmp_type?;
        let code = fields.code.map(u8::try_from).transpose();
        if let (Ok(icmp_type), Ok(code)) = (u8::try_from(icmp_type), code) {
            return Some(IcmpMatch { icmp_type, code });
        }
        self.unreadable = true;
        None
    }

    fn end(&mut self, end: feed::RuleEnd, protocol: PortProtocol, is_destination: bool) -> RuleEnd {
        // Within a positive selector, the negative one can be part of it: one set instead of two. Without one it cannot,
        // because then it is about everything that is no endpoint, too.
        let (positive, negative) = if end.selector.is_empty() || end.not_selector.is_empty() {
            (end.selector, end.not_selector)
        } else {
            (format!("({}) && (!({}))", end.selector, end.not_selector), String::new())
        };
        let positive = self.parse(&positive);
        let negative = self.parse(&negative);

        let (ports, names) = self.split_ports(end.ports);
        let (not_ports, not_names) = self.split_ports(end.not_ports);
        // A set of named ports is cut down to the endpoints of the positive selector, for negated ports too: outside of
        // it the rule does not match anyway.
        let named_port_ip_set_ids = self.named_ports(&names, positive.as_ref(), protocol);
        let not_named_port_ip_set_ids = self.named_ports(&not_names, positive.as_ref(), protocol);

        let mut ip_set_ids = Vec::new();
        // With named ports alone, their sets have the selector in them already.
        if (!ports.is_empty() || names.is_empty())
            && let Some(selector) = positive
        {
            ip_set_ids.push(self.set(SetSpec::Selector(selector)));
        }
        let not_ip_set_ids =
            negative.map(|selector| self.set(SetSpec::Selector(selector))).into_iter().collect();

        let mut ip_port_set_ids = Vec::new();
        if let Some((namespace, name)) = &end.service
            && !name.is_empty()
        {
            let service = format!("{namespace}/{name}");
            let set = self.set(SetSpec::Service { service, with_ports: is_destination });
            if is_destination { ip_port_set_ids.push(set) } else { ip_set_ids.push(set) }
        }
        RuleEnd {
            nets: end.nets,
            ports,
            named_port_ip_set_ids,
            ip_set_ids,
            ip_port_set_ids,
            not_nets: end.not_nets,
            not_ports,
            not_named_port_ip_set_ids,
            not_ip_set_ids,
            original: original(end.original, end.service),
        }
    }

    fn parse(&mut self, text: &str) -> Option<Selector> {
        if text.is_empty() {
            return None;
        }
        let parsed = if let Some(parsed) = self.parsed.get(text) {
            parsed.clone()
        } else {
            let parsed = Selector::parse(text)
                .inspect_err(
                    |error| tracing::error!(selector = text, %error, "a rule's selector cannot be read"),
                )
                .ok();
            self.parsed.insert(text.to_owned(), parsed.clone());
            parsed
        };
        if parsed.is_none() {
            self.unreadable = true;
        }
        parsed
    }

    fn split_ports(&mut self, ports: Vec<Port>) -> (Vec<PortRange>, Vec<String>) {
        let (mut ranges, mut names) = (Vec::new(), Vec::new());
        for port in ports {
            match port {
                Port::Range { min, max } => ranges.push(PortRange { first: min, last: max }),
                Port::Named(name) => names.push(name),
                Port::Other(_) => self.unreadable = true,
            }
        }
        (ranges, names)
    }

    fn named_ports(
        &mut self,
        names: &[String],
        positive: Option<&Selector>,
        protocol: PortProtocol,
    ) -> Vec<IpSetId> {
        if names.is_empty() {
            return Vec::new();
        }
        let selector = match positive {
            Some(selector) => Some(selector.clone()),
            None => self.parse("all()"),
        };
        let Some(selector) = selector else { return Vec::new() };
        names
            .iter()
            .map(|name| {
                self.set(SetSpec::NamedPort { selector: selector.clone(), protocol, name: name.clone() })
            })
            .collect()
    }

    fn set(&mut self, spec: SetSpec) -> IpSetId {
        self.sets.name(spec)
    }
}

fn original(
    matches: Option<Box<feed::OriginalMatches>>,
    service: Option<(String, String)>,
) -> Option<Box<OriginalEnd>> {
    if matches.is_none() && service.is_none() {
        return None;
    }
    let matches = matches.map(|matches| *matches).unwrap_or_default();
    let (namespace, name) = service.unwrap_or_default();
    Some(Box::new(OriginalEnd {
        selector: matches.selector,
        namespace_selector: matches.namespace_selector,
        not_selector: matches.not_selector,
        service_account_names: matches.service_account_names,
        service_account_selector: matches.service_account_selector,
        service: name.into(),
        service_namespace: namespace.into(),
    }))
}

#[cfg(test)]
mod tests;
