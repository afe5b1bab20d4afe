//! Decides whether one rule matches a packet, clause by clause, and which clauses fail.
//!
//! An unreadable clause counts as met and turns the rule into one that denies: whatever the user meant, no more than
//! that is allowed. A rule that only logs is skipped in that case.

mod ports;

use crate::selection::Selection;
use crate::world::{EndSelections, Item, PolicyRule, World, known_protocol};
use api::Kind;
use api::scalars::{IpOrCidr, Protocol};
use api::{Action, EntityRule, ICMPFields, Resource, ServiceMatch};
use ports::Ports;
use std::net::IpAddr;

/// A packet that begins a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    /// Type and code.
    pub(crate) icmp: (u8, u8),
}

impl Packet {
    fn is_ipv6(&self) -> bool {
        self.destination.is_ipv6()
    }

    /// Whether the protocol has ports that rules can name.
    pub(crate) fn has_ports(&self) -> bool {
        matches!(self.protocol, 6 | 17 | 132)
    }

    fn own_icmp(&self) -> u8 {
        if self.is_ipv6() { 58 } else { 1 }
    }

    /// The protocol's name, or its number.
    pub(crate) fn protocol_name(&self) -> String {
        protocol_name(self.protocol)
    }
}

/// The name of a protocol, or its number.
pub(crate) fn protocol_name(number: u8) -> String {
    match number {
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        58 => "ICMPv6".to_owned(),
        132 => "SCTP".to_owned(),
        136 => "UDPLite".to_owned(),
        other => format!("protocol {other}"),
    }
}

/// A packet, and the owners of its addresses.
pub(crate) struct Owned<'w> {
    pub(crate) packet: Packet,
    pub(crate) source: Vec<&'w Item>,
    pub(crate) destination: Vec<&'w Item>,
}

/// The effect of a rule on a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) matches: bool,
    /// Its action if it matches.
    pub(crate) action: Action,
    /// The clauses that failed, if requested.
    pub(crate) failed: Vec<String>,
    /// The unreadable clauses.
    pub(crate) unreadable: Vec<String>,
}

/// One end of a packet, and the known facts about it.
struct End<'a> {
    name: &'static str,
    address: IpAddr,
    port: u16,
    owners: &'a [&'a Item],
}

struct Clauses {
    detail: bool,
    met: bool,
    failed: Vec<String>,
    unreadable: Vec<String>,
}

impl Clauses {
    fn check(&mut self, holds: bool, reason: impl FnOnce() -> String) {
        if !holds {
            self.met = false;
            if self.detail {
                self.failed.push(reason());
            }
        }
    }
}

/// Evaluates a rule for a packet.
pub(crate) fn ask(world: &World<'_>, rule: &PolicyRule, owned: &Owned<'_>, detail: bool) -> Answer {
    let mut clauses = Clauses { detail, met: true, failed: Vec::new(), unreadable: Vec::new() };
    let (text, packet) = (&rule.rule, &owned.packet);
    if matches!(text.action, Action::Unset | Action::Other(_)) {
        clauses.unreadable.push(format!("'{}' is not an action", text.action));
    }
    for field in text.extra.keys() {
        clauses.unreadable.push(format!("`{field}` is not known to this version"));
    }
    let protocol = protocols(rule, packet, &mut clauses);
    icmp_clauses(rule, packet, protocol.as_ref(), &mut clauses);
    for (end, entity, selections) in [
        (
            End { name: "source", address: packet.source, port: packet.source_port, owners: &owned.source },
            &text.source,
            &rule.source,
        ),
        (
            End {
                name: "destination",
                address: packet.destination,
                port: packet.destination_port,
                owners: &owned.destination,
            },
            &text.destination,
            &rule.destination,
        ),
    ] {
        end_clauses(world, rule, &end, entity, selections, protocol.as_ref(), packet, &mut clauses);
    }
    let (mut action, mut matches) = (text.action.clone(), clauses.met);
    if !clauses.unreadable.is_empty() {
        matches &= action != Action::Log;
        action = Action::Deny;
    }
    Answer { matches, action, failed: clauses.failed, unreadable: clauses.unreadable }
}

/// Evaluates the protocol clauses; returns the rule's own protocol, if readable.
fn protocols(rule: &PolicyRule, packet: &Packet, clauses: &mut Clauses) -> Option<Protocol> {
    let rule = &rule.rule;
    if let Some(version) = rule.ip_version {
        match version {
            4 | 6 => clauses
                .check((version == 6) == packet.is_ipv6(), || format!("the rule is for IPv{version} only")),
            other => clauses.unreadable.push(format!("ipVersion {other} does not exist")),
        }
    }
    let readable = |protocol: &Protocol| {
        let protocol = known_protocol(protocol);
        (protocol.number().is_some_and(|number| number != 0)).then_some(protocol)
    };
    let mut own = None;
    if let Some(wanted) = &rule.protocol {
        match readable(wanted) {
            None => clauses.unreadable.push(format!("'{wanted}' is not a protocol")),
            Some(wanted) => {
                // The two ICMP names each imply one IP version.
                let version_fits = match wanted {
                    Protocol::Icmp => !packet.is_ipv6(),
                    Protocol::Icmpv6 => packet.is_ipv6(),
                    _ => true,
                };
                let fits = version_fits && wanted.number() == Some(packet.protocol);
                clauses.check(fits, || {
                    format!("protocol is {wanted}, the packet is {}", packet.protocol_name())
                });
                own = Some(wanted);
            }
        }
    }
    if let Some(unwanted) = &rule.not_protocol {
        match readable(unwanted) {
            None => clauses.unreadable.push(format!("'{unwanted}' is not a protocol")),
            Some(unwanted) => clauses.check(unwanted.number() != Some(packet.protocol), || {
                format!("notProtocol is {unwanted}, and so is the packet")
            }),
        }
    }
    own
}

fn icmp_clauses(rule: &PolicyRule, packet: &Packet, protocol: Option<&Protocol>, clauses: &mut Clauses) {
    let about_icmp = protocol.is_some_and(|protocol| protocol.is_icmp() || protocol.is_icmpv6());
    let is = |fields: &ICMPFields| {
        fields.icmp_type == Some(i64::from(packet.icmp.0))
            && fields.code.is_none_or(|code| code == i64::from(packet.icmp.1))
    };
    for (name, fields, wanted) in [("icmp", &rule.rule.icmp, true), ("notICMP", &rule.rule.not_icmp, false)] {
        let Some(fields) = fields else { continue };
        let in_range = fields.icmp_type.is_none_or(|number| (0..=254).contains(&number))
            && fields.code.is_none_or(|number| (0..=255).contains(&number));
        let code_alone = fields.icmp_type.is_none() && fields.code.is_some();
        if !about_icmp || !in_range || code_alone || !fields.extra.is_empty() {
            clauses.unreadable.push(format!("{name} cannot be read"));
            continue;
        }
        if fields.icmp_type.is_some() {
            let met = packet.protocol == packet.own_icmp() && is(fields) == wanted;
            clauses.check(met, || {
                let (kind, code) = packet.icmp;
                format!("{name} is {}, the packet has type {kind} code {code}", icmp_text(fields))
            });
        }
    }
}

fn icmp_text(fields: &ICMPFields) -> String {
    match (fields.icmp_type, fields.code) {
        (Some(kind), Some(code)) => format!("type {kind} code {code}"),
        (Some(kind), None) => format!("type {kind}"),
        _ => "any".to_owned(),
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of one question")]
fn end_clauses(
    world: &World<'_>,
    rule: &PolicyRule,
    end: &End<'_>,
    entity: &EntityRule,
    selections: &EndSelections,
    protocol: Option<&Protocol>,
    packet: &Packet,
    clauses: &mut Clauses,
) {
    let name = end.name;
    for field in entity.extra.keys() {
        clauses.unreadable.push(format!("{name}.{field} is not known to this version"));
    }
    for fault in selections.positive.faults.iter().chain(&selections.negative.faults) {
        clauses.unreadable.push(format!("{name}.{fault}"));
    }
    nets(end, entity, clauses);
    let ports = Ports::read(name, entity, protocol, rule.rule.protocol.is_some(), clauses);
    // If only port names are given, some endpoint must both be selected and have the port: that is one check, not two.
    if !ports.are_only_named() {
        selected(end, selections, clauses);
    } else if !selections.positive.is_empty() {
        // Checked together with the port's name, below.
    } else {
        not_selected(end, &selections.negative, clauses);
    }
    ports.check(end, entity, selections, protocol, packet, clauses);
    if let Some(service) = &entity.services {
        service_clause(world, rule, end, service, packet, clauses);
    }
}

fn nets(end: &End<'_>, entity: &EntityRule, clauses: &mut Clauses) {
    let name = end.name;
    for (field, list, wanted) in [("nets", &entity.nets, true), ("notNets", &entity.not_nets, false)] {
        if list.is_empty() {
            continue;
        }
        let read: Vec<_> = list.iter().map(IpOrCidr::parse).collect();
        let wrong: Vec<&String> = read.iter().filter_map(|net| net.as_ref().err()).collect();
        let any_wrong = !wrong.is_empty();
        clauses.unreadable.extend(wrong.into_iter().map(|reason| format!("{name}.{field}: {reason}")));
        // Any address may have been meant; readable exceptions are still exceptions.
        if any_wrong && wanted {
            continue;
        }
        let read: Vec<_> = read.into_iter().filter_map(Result::ok).map(|net| net.masked()).collect();
        if read.is_empty() {
            continue;
        }
        let version = |net: &ipnet::IpNet| net.addr().is_ipv6() == end.address.is_ipv6();
        let other = if end.address.is_ipv6() { 4 } else { 6 };
        if !read.iter().any(version) {
            clauses.check(false, || format!("{name}.{field} is about IPv{other} only"));
            continue;
        }
        let within = read.iter().find(|net| net.contains(&end.address));
        clauses.check(within.is_some() == wanted, || match within {
            Some(net) => format!("{name} {} is in {net}, which notNets leaves out", end.address),
            None => format!("{name} {} is not in {}", end.address, texts(list)),
        });
    }
}

/// Evaluates the selector clause for an address.
fn selected(end: &End<'_>, selections: &EndSelections, clauses: &mut Clauses) {
    let EndSelections { positive, negative } = selections;
    if positive.is_empty() {
        // Only exceptions: the address must not belong to any endpoint that they select.
        return not_selected(end, negative, clauses);
    }
    let is_meant = |item: &&&Item| {
        positive.selects(&item.labels) && (negative.is_empty() || !negative.selects(&item.labels))
    };
    let met = end.owners.iter().any(|item| is_meant(&item));
    clauses.check(met, || {
        let excluded = end.owners.iter().find(|item| positive.selects(&item.labels));
        match excluded {
            Some(item) => {
                format!("{} {} is left out by notSelector {}", end.name, item.name, negative.text())
            }
            None => nobody(end, positive),
        }
    });
}

fn not_selected(end: &End<'_>, negative: &Selection, clauses: &mut Clauses) {
    if negative.is_empty() {
        return;
    }
    let found = end.owners.iter().find(|item| negative.selects(&item.labels));
    clauses.check(found.is_none(), || {
        let name = found.map_or("", |item| item.name.as_str());
        format!("{} {name} is left out by notSelector {}", end.name, negative.text())
    });
}

fn nobody(end: &End<'_>, selection: &Selection) -> String {
    let mut owners = end.owners.iter();
    match owners.next() {
        None => format!(
            "{} {} is neither an endpoint nor in a network set, so {} does not select it",
            end.name,
            end.address,
            selection.text()
        ),
        Some(item) => {
            let failing = selection.failing(&item.labels).join(" and ");
            let has = selection.looked_at(&item.labels);
            let has = if has.is_empty() { String::new() } else { format!(" ({has})") };
            format!("{} {} is not selected by {failing}{has}", end.name, item.name)
        }
    }
}

fn service_clause(
    world: &World<'_>,
    rule: &PolicyRule,
    end: &End<'_>,
    service: &ServiceMatch,
    packet: &Packet,
    clauses: &mut Clauses,
) {
    if service.name.is_empty() || !service.extra.is_empty() {
        clauses.unreadable.push(format!("{}.services names no service", end.name));
        return;
    }
    let namespace = if service.namespace.is_empty() { &rule.namespace } else { &service.namespace };
    let with_ports = end.name == "destination";
    let mut met = false;
    for resource in world.cluster.of_kind(Kind::KubernetesEndpointSlice) {
        let Resource::KubernetesEndpointSlice(slice) = resource else { continue };
        if slice.metadata.namespace != *namespace
            || slice.metadata.labels.get("kubernetes.io/service-name") != Some(&service.name)
        {
            continue;
        }
        let content = &slice.spec.0;
        let has_address = content
            .endpoints
            .iter()
            .flat_map(|endpoint| &endpoint.addresses)
            .any(|text| text.parse::<IpAddr>() == Ok(end.address));
        let has_port = || {
            content.ports.iter().any(|port| {
                let protocol = match port.protocol.as_deref() {
                    Some("UDP") => 17,
                    Some("SCTP") => 132,
                    _ => 6,
                };
                port.port == Some(i32::from(end.port)) && protocol == packet.protocol
            })
        };
        met |= has_address && (!with_ports || has_port());
    }
    clauses.check(met, || {
        let port =
            if with_ports && packet.has_ports() { format!(" port {}", end.port) } else { String::new() };
        format!(
            "{} {}{port} is not an endpoint of service {namespace}/{}",
            end.name, end.address, service.name
        )
    });
}

fn texts<T: std::fmt::Display>(list: &[T]) -> String {
    let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

/// A rule in one line.
pub(crate) fn rule_text(rule: &PolicyRule) -> String {
    let text = &rule.rule;
    let mut parts = vec![text.action.to_string()];
    parts.extend(text.ip_version.map(|version| format!("IPv{version}")));
    parts.extend(text.protocol.as_ref().map(ToString::to_string));
    parts.extend(text.not_protocol.as_ref().map(|protocol| format!("not {protocol}")));
    parts.extend(text.icmp.as_deref().map(icmp_text));
    parts.extend(text.not_icmp.as_deref().map(|fields| format!("not {}", icmp_text(fields))));
    for (word, entity, selections) in
        [("from", &text.source, &rule.source), ("to", &text.destination, &rule.destination)]
    {
        let mut end = Vec::new();
        if !selections.positive.is_empty() {
            end.push(selections.positive.text());
        }
        if !selections.negative.is_empty() {
            end.push(format!("not {}", selections.negative.text()));
        }
        for (list, word) in [(&entity.nets, ""), (&entity.not_nets, "not ")] {
            if !list.is_empty() {
                end.push(format!("{word}{}", texts(list)));
            }
        }
        if let Some(service) = &entity.services {
            end.push(format!("service {}", service.name));
        }
        for (list, word) in [(&entity.ports, "port"), (&entity.not_ports, "not port")] {
            if !list.is_empty() {
                end.push(format!("{word} {}", texts(list)));
            }
        }
        if !end.is_empty() {
            parts.push(format!("{word} {}", end.join(", ")));
        }
    }
    if let Some(name) = text.metadata.as_ref().and_then(|metadata| metadata.annotations.get("name")) {
        parts.push(format!("(\"{name}\")"));
    }
    if text.http.is_some() {
        parts.push("(its HTTP conditions are a proxy's, and are not looked at here)".to_owned());
    }
    parts.join(" ")
}
