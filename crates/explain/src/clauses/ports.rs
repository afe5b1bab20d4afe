//! The port clauses of one end of a packet: numbers and names.
//!
//! An unreadable port makes the rule unreadable. The other clauses are not known here.

use super::{Clauses, End, Packet, texts};
use crate::world::{EndSelections, Item};
use api::EntityRule;
use api::scalars::{Port, Protocol};

/// The readable ports of one end.
pub(super) struct Ports {
    /// Whether there is a positive clause at all.
    asked: bool,
    ranges: Vec<(u16, u16)>,
    named: Vec<String>,
    not_ranges: Vec<(u16, u16)>,
    not_named: Vec<String>,
}

impl Ports {
    pub(super) fn read(
        name: &str,
        entity: &EntityRule,
        protocol: Option<&Protocol>,
        has_protocol: bool,
        clauses: &mut Clauses,
    ) -> Self {
        let numbers = protocol.is_some_and(Protocol::supports_ports);
        let names = numbers || !has_protocol;
        let usable = |port: &Port| match port {
            Port::Range { min, max } => numbers && min <= max,
            Port::Named(name) => names && !name.is_empty(),
            Port::Other(_) => false,
        };
        let mut ports = Self {
            asked: false,
            ranges: Vec::new(),
            named: Vec::new(),
            not_ranges: Vec::new(),
            not_named: Vec::new(),
        };
        let split = |list: &[Port], ranges: &mut Vec<(u16, u16)>, named: &mut Vec<String>| {
            for port in list.iter().filter(|port| usable(port)) {
                match port {
                    Port::Range { min, max } => ranges.push((*min, *max)),
                    Port::Named(name) => named.push(name.clone()),
                    Port::Other(_) => {}
                }
            }
        };
        for (field, list) in [("ports", &entity.ports), ("notPorts", &entity.not_ports)] {
            let wrong = list.iter().filter(|port| !usable(port));
            clauses.unreadable.extend(wrong.map(|port| match port {
                Port::Other(_) => format!("{name}.{field}: '{port}' is not a port"),
                _ => format!("{name}.{field}: '{port}' needs protocol TCP, UDP or SCTP"),
            }));
        }
        // Any port may have been meant.
        if entity.ports.iter().all(usable) {
            split(&entity.ports, &mut ports.ranges, &mut ports.named);
            ports.asked = !entity.ports.is_empty();
        }
        split(&entity.not_ports, &mut ports.not_ranges, &mut ports.not_named);
        ports
    }

    /// Whether only names are given: then the labels are checked together with each name.
    pub(super) fn are_only_named(&self) -> bool {
        !self.named.is_empty() && self.ranges.is_empty()
    }

    pub(super) fn check(
        &self,
        end: &End<'_>,
        entity: &EntityRule,
        selections: &EndSelections,
        protocol: Option<&Protocol>,
        packet: &Packet,
        clauses: &mut Clauses,
    ) {
        let (name, port) = (end.name, end.port);
        let within = |ranges: &[(u16, u16)]| {
            packet.has_ports() && ranges.iter().any(|(first, last)| (*first..=*last).contains(&port))
        };
        let by_name = |names: &[String]| {
            names.iter().any(|name| {
                end.owners.iter().any(|item| {
                    let EndSelections { positive, negative } = selections;
                    let meant = positive.is_empty()
                        || (positive.selects(&item.labels)
                            && (negative.is_empty() || !negative.selects(&item.labels)));
                    meant && has_port(item, name, protocol, port, packet)
                })
            })
        };
        if self.asked {
            clauses.check(within(&self.ranges) || by_name(&self.named), || {
                if !packet.has_ports() {
                    return format!("{} has no ports", packet.protocol_name());
                }
                let who = match (self.named.is_empty(), selections.positive.is_empty()) {
                    (false, false) if self.ranges.is_empty() => {
                        format!(" of {}", selections.positive.text())
                    }
                    _ => String::new(),
                };
                format!("{name} port {port} is not {}{who}", texts(&entity.ports))
            });
        }
        if !self.not_ranges.is_empty() {
            clauses.check(packet.has_ports() && !within(&self.not_ranges), || {
                format!("{name} port {port} is left out by notPorts {}", texts(&entity.not_ports))
            });
        }
        if !self.not_named.is_empty() {
            clauses.check(!by_name(&self.not_named), || {
                format!("{name} port {port} is left out by notPorts {}", texts(&entity.not_ports))
            });
        }
    }
}

/// Whether an owner of the address has a port of this name that fits the packet. A rule without a protocol means ports
/// of any protocol; a rule with a protocol that has no ports means TCP.
fn has_port(item: &Item, name: &str, asked: Option<&Protocol>, port: u16, packet: &Packet) -> bool {
    let asked = asked.map(|asked| asked.number().filter(|number| matches!(number, 17 | 132)).unwrap_or(6));
    packet.has_ports()
        && item.ports.iter().any(|own| {
            let number = own.protocol.number();
            let fits = match asked {
                Some(asked) => number == Some(asked),
                // A port whose protocol is given by number only matches rules that name that protocol.
                None => !matches!(own.protocol, Protocol::Number(1..)),
            };
            own.name == name && own.port == port && fits && number == Some(packet.protocol)
        })
}
