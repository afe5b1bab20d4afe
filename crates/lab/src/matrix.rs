//! Everybody to everybody: what was measured, beside what `explain` expects and which rule says so. Pure.

use crate::probe::Protocol;
use explain::{Query, Verdict, World};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

/// A pod of the matrix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    /// `NAMESPACE/NAME`.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The ports it answers on.
    pub ports: Vec<u16>,
}

/// A column: whom packets are for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Receiver {
    /// The pod.
    pub pod: String,
    /// Its node.
    pub node: String,
    /// The address that is asked.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: Protocol,
}

/// A row: who sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sender {
    /// The pod.
    pub pod: String,
    /// Its node.
    pub node: String,
}

/// What happened between a sender and a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// Whether the receiver answered; none for a pod and itself, or when it was not asked yet.
    pub reached: Option<bool>,
    /// Whether it should.
    pub expected: Verdict,
    /// The rule, or the lack of one, that decides.
    pub decided_by: String,
}

impl Cell {
    /// What decides, without the place, which the cell's own place in the grid tells.
    #[must_use]
    pub fn reason(&self) -> String {
        for direction in ["ingress", "egress"] {
            let rest = self.decided_by.strip_prefix(direction).and_then(|rest| rest.strip_prefix(" of "));
            if let Some((_, rest)) = rest.and_then(|rest| rest.split_once(": ")) {
                return format!("{direction}: {rest}");
            }
        }
        self.decided_by.clone()
    }

    /// Whether what was measured is what was expected.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.reached.is_none_or(|reached| reached == (self.expected == Verdict::Allow))
    }
}

/// The matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matrix {
    /// The rows.
    pub senders: Vec<Sender>,
    /// The columns.
    pub receivers: Vec<Receiver>,
    /// The cells, row by row.
    pub cells: Vec<Vec<Cell>>,
}

/// Which columns a matrix has.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Only these ports; each pod's own if none.
    pub ports: Vec<u16>,
    /// The protocols; TCP if none.
    pub protocols: Vec<Protocol>,
}

impl Matrix {
    /// The matrix with expectations and nothing measured yet.
    ///
    /// # Errors
    /// When a pod is not in the datastore.
    pub fn expect(
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
        Ok(Self { senders, receivers, cells })
    }

    /// Whether every cell that was measured is as expected.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.cells.iter().flatten().all(Cell::agrees)
    }

    /// Cells that were measured: reached, refused, and not as expected.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        let all = || self.cells.iter().flatten();
        (
            all().filter(|cell| cell.reached == Some(true)).count(),
            all().filter(|cell| cell.reached == Some(false)).count(),
            all().filter(|cell| !cell.agrees()).count(),
        )
    }

    /// The cells that are not as expected, in words.
    #[must_use]
    pub fn disagreements(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (sender, row) in self.senders.iter().zip(&self.cells) {
            for (receiver, cell) in self.receivers.iter().zip(row) {
                if !cell.agrees() {
                    let measured = if cell.reached == Some(true) { "reached" } else { "not reached" };
                    all.push(format!(
                        "{} -> {}: {measured}, and expected {} ({})",
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

    /// What refused cells are refused by, in the order in which they come up.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        for cell in self.cells.iter().flatten().filter(|cell| cell.reached == Some(false)) {
            let reason = cell.reason();
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    }

    /// What a column is called: the protocol and the version of IP only where there are several.
    #[must_use]
    pub fn label(&self, receiver: &Receiver) -> String {
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

    /// A grid for a terminal: `+` reached, a number refused (and below it, by what), `!` not as expected.
    #[must_use]
    pub fn to_text(&self, colours: bool) -> String {
        if self.receivers.is_empty() {
            return "no pods\n".to_owned();
        }
        let reasons = self.reasons();
        let numbers: BTreeMap<&str, usize> =
            reasons.iter().enumerate().map(|(index, reason)| (reason.as_str(), index + 1)).collect();
        // Columns in groups of one pod, headed by its letter; below, the ports.
        let heads: Vec<String> =
            self.receivers.iter().map(|receiver| head(receiver, &self.receivers)).collect();
        let width = self.senders.iter().map(|sender| sender.pod.chars().count()).max().unwrap_or(0).max(4);
        let cell_width = heads.iter().map(String::len).max().unwrap_or(1).max(3);
        let letters = self.letters();
        let mut out = String::new();
        let paint = |text: &str, code: &str| {
            if colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
        };
        // Writing to a string cannot fail.
        let _ = write!(out, "     {:width$}", "to");
        for (letter, _) in letters.iter().zip(&self.receivers) {
            let _ = write!(out, " {letter:>cell_width$}");
        }
        let _ = write!(out, "\n     {:width$}", "from");
        for text in &heads {
            let _ = write!(out, " {text:>cell_width$}");
        }
        out.push('\n');
        for (index, (sender, row)) in self.senders.iter().zip(&self.cells).enumerate() {
            let _ = write!(out, "{:>3}  {:width$}", letter(index), sender.pod);
            for cell in row {
                let sign = match cell.reached {
                    None => ".".to_owned(),
                    Some(true) if cell.agrees() => "+".to_owned(),
                    Some(true) => "+!".to_owned(),
                    Some(false) => {
                        let number = numbers.get(cell.reason().as_str()).copied().unwrap_or_default();
                        if cell.agrees() { number.to_string() } else { "-!".to_owned() }
                    }
                };
                let padded = format!("{sign:>cell_width$}");
                let code = match cell.reached {
                    _ if !cell.agrees() => "1;35",
                    None => "90",
                    Some(true) => "32",
                    Some(false) => "31",
                };
                let _ = write!(out, " {}", paint(&padded, code));
            }
            let _ = writeln!(out, "   {}", paint(&sender.node, "90"));
        }
        let (reached, refused, wrong) = self.counts();
        let because = if refused > 0 { ", because:" } else { "" };
        let _ =
            writeln!(out, "\n     + reached ({reached})   . itself   number: refused ({refused}){because}");
        for (index, reason) in reasons.iter().enumerate() {
            let _ = writeln!(out, "{:>3}  {reason}", index + 1);
        }
        if wrong > 0 {
            let _ = writeln!(out, "\n     {wrong} cell(s) are not as expected (!):");
            for line in self.disagreements() {
                let _ = writeln!(out, "     {line}");
            }
        }
        out
    }

    /// The letter of each column's pod, which is also its row's.
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

/// What stands over a column.
fn head(receiver: &Receiver, all: &[Receiver]) -> String {
    let mut text = format!(":{}", receiver.port);
    if all.iter().any(|other| other.protocol != receiver.protocol) && receiver.protocol == Protocol::Udp {
        text.push('u');
    }
    if all.iter().any(|other| other.address.is_ipv4() != receiver.address.is_ipv4()) {
        text.push_str(if receiver.address.is_ipv4() { "v4" } else { "v6" });
    }
    text
}

/// A, B, ... Z, AA, AB, ...
fn letter(index: usize) -> String {
    let last = char::from(b'A' + u8::try_from(index % 26).unwrap_or_default());
    if index < 26 { last.to_string() } else { format!("{}{last}", letter(index / 26 - 1)) }
}

#[cfg(test)]
mod tests;
