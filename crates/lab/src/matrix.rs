//! Every pod to every pod: the measurement, along with what `explain` expects and the rule that decides. Pure.

use crate::probe::Protocol;
use explain::{Query, Verdict, World};
use serde::Serialize;
use std::net::IpAddr;

/// A pod of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Party {
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The ports it answers on.
    pub ports: Vec<u16>,
}

/// A column: the receiver of packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Receiver {
    /// The pod.
    pub pod: String,
    /// Its node.
    pub node: String,
    /// The address to connect to.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

/// A row: the sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sender {
    /// The pod.
    pub pod: String,
    /// Its node.
    pub node: String,
}

/// The result for a sender and a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cell {
    /// Whether the receiver answered; `None` for a pod and itself, or when it has not been probed yet.
    pub reached: Option<bool>,
    /// Whether it should answer.
    pub expected: Verdict,
    /// The rule, or the lack of one, that decides.
    pub decided_by: String,
}

impl Cell {
    /// The deciding rule, without its location, which the cell's position in the grid shows.
    #[must_use]
    pub(crate) fn reason(&self) -> String {
        for direction in ["ingress", "egress"] {
            let rest = self.decided_by.strip_prefix(direction).and_then(|rest| rest.strip_prefix(" of "));
            if let Some((_, rest)) = rest.and_then(|rest| rest.split_once(": ")) {
                return format!("{direction}: {rest}");
            }
        }
        self.decided_by.clone()
    }

    /// Whether the measurement is as expected.
    #[must_use]
    pub(crate) fn agrees(&self) -> bool {
        self.reached.is_none_or(|reached| reached == (self.expected == Verdict::Allow))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Matrix {
    /// The rows.
    pub senders: Vec<Sender>,
    /// The columns.
    pub receivers: Vec<Receiver>,
    /// The cells, row by row.
    pub cells: Vec<Vec<Cell>>,
    /// Pods that cannot answer, because their responder ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
}

/// Selects the columns of a matrix.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    /// Only these ports; each pod's own if empty.
    pub ports: Vec<u16>,
    /// The protocols; TCP if empty.
    pub protocols: Vec<Protocol>,
}

impl Matrix {
    /// The matrix with expectations and without measurements.
    ///
    /// # Errors
    /// When a pod is not in the datastore.
    pub(crate) fn expect(
        parties: &[Party],
        columns: &Columns,
        world: &World<'_>,
    ) -> Result<Self, explain::QueryError> {
        let protocols: &[Protocol] =
            if columns.protocols.is_empty() { &[Protocol::Tcp] } else { &columns.protocols };
        let mut receivers = Vec::new();
        for party in parties {
            for address in &party.addresses {
                for protocol in protocols {
                    let ports = if columns.ports.is_empty() { &party.ports } else { &columns.ports };
                    receivers.extend(ports.iter().map(|port| Receiver {
                        pod: party.name.clone(),
                        node: party.node.clone(),
                        address: *address,
                        port: *port,
                        protocol: *protocol,
                    }));
                }
            }
        }
        let mut cells = Vec::with_capacity(parties.len());
        for sender in parties {
            let row: Result<Vec<Cell>, _> =
                receivers.iter().map(|receiver| cell(sender, receiver, world)).collect();
            cells.push(row?);
        }
        let senders = parties
            .iter()
            .map(|party| Sender { pod: party.name.clone(), node: party.node.clone() })
            .collect();
        Ok(Self { senders, receivers, cells, ended: Vec::new() })
    }

    /// Whether every measured cell is as expected.
    #[must_use]
    pub(crate) fn agrees(&self) -> bool {
        self.cells.iter().flatten().all(Cell::agrees)
    }

    /// Counts the measured cells: reached and refused as expected, and not as expected.
    #[must_use]
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let count = |reached: bool| {
            self.cells.iter().flatten().filter(|cell| cell.agrees() && cell.reached == Some(reached)).count()
        };
        (count(true), count(false), self.cells.iter().flatten().filter(|cell| !cell.agrees()).count())
    }

    /// The cells that are not as expected, in words.
    #[must_use]
    pub(crate) fn disagreements(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (sender, row) in self.senders.iter().zip(&self.cells) {
            for (receiver, cell) in self.receivers.iter().zip(row) {
                if !cell.agrees() {
                    let measured = match cell.reached {
                        Some(true) => "reached",
                        _ if self.ended.contains(&receiver.pod) => "not reached (its responder ended)",
                        _ => "not reached",
                    };
                    all.push(format!(
                        "{} -> {}: {measured}, but expected {} ({})",
                        sender.pod,
                        self.label(receiver),
                        cell.expected.as_str(),
                        cell.decided_by
                    ));
                }
            }
        }
        all
    }

    /// The reasons why cells are refused, in the order of their first appearance.
    #[must_use]
    pub(crate) fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        let refused = |cell: &&Cell| cell.reached == Some(false) && cell.agrees();
        for cell in self.cells.iter().flatten().filter(refused) {
            let reason = cell.reason();
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    }

    /// The name of a column: with the protocol and the IP version only if there are several.
    #[must_use]
    pub(crate) fn label(&self, receiver: &Receiver) -> String {
        let mut text = format!("{}:{}", receiver.pod, receiver.port);
        let has = |other: &dyn Fn(&Receiver) -> bool| self.receivers.iter().any(other);
        if has(&|other| other.protocol != receiver.protocol) {
            text.push_str(match receiver.protocol {
                Protocol::Tcp => "/tcp",
                Protocol::Udp => "/udp",
            });
        }
        if has(&|other| other.address.is_ipv4() != receiver.address.is_ipv4()) {
            text.push_str(if receiver.address.is_ipv4() { " IPv4" } else { " IPv6" });
        }
        text
    }

    /// The letter of each column's pod, which also marks the pod's row.
    fn letters(&self) -> Vec<String> {
        self.receivers
            .iter()
            .map(|receiver| {
                let index = self.senders.iter().position(|sender| sender.pod == receiver.pod);
                index.map(letter).unwrap_or_default()
            })
            .collect()
    }
}

fn cell(sender: &Party, receiver: &Receiver, world: &World<'_>) -> Result<Cell, explain::QueryError> {
    if sender.name == receiver.pod {
        // A pod's packets to itself do not leave it.
        return Ok(Cell { reached: None, expected: Verdict::Allow, decided_by: "the pod itself".to_owned() });
    }
    let query = Query {
        from: format!("pod:{}", sender.name),
        to: format!("pod:{}", receiver.pod),
        protocol: explain::Protocol::from_text(&receiver.protocol.number().to_string()),
        port: Some(receiver.port),
        ip_version: Some(if receiver.address.is_ipv4() { 4 } else { 6 }),
        ..Query::default()
    };
    let explanation = world.explain(&query)?;
    let decided_by = explanation.flows.into_iter().next().map(|flow| flow.decided_by).unwrap_or_default();
    Ok(Cell { reached: None, expected: explanation.verdict, decided_by })
}

/// A, B, ... Z, AA, AB, ...
fn letter(index: usize) -> String {
    let last = char::from(b'A' + u8::try_from(index % 26).unwrap_or_default());
    if index < 26 { last.to_string() } else { format!("{}{last}", letter(index / 26 - 1)) }
}

mod text;

#[cfg(test)]
mod tests;
