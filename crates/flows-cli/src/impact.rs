//! Finds the recorded flows that a policy would decide differently.
//!
//! Flows have names, not addresses: pods are looked up in the cluster, and a deleted pod is restored with the labels
//! that its flows had. Outside addresses are not recorded, so one address of every network that policies name is tried;
//! where the verdict depends on the address, the answer is that it depends.

mod ends;
mod staged;

use crate::flow::{self, Flow};
use crate::question::{Oracle, Views};
use crate::text::{clean, count, table};
use ends::Ends;
use explain::Cluster;
use flows::{Action, Peer, Reporter};
use serde::Serialize;
use std::collections::BTreeMap;

/// The verdict on a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It passes.
    Allowed,
    /// It is dropped.
    Denied,
    /// It depends on an address that was not recorded.
    Depends,
}

impl Fate {
    fn word(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Depends => "depends on the address",
        }
    }
}

/// A flow that would be decided differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The flow.
    pub flow: String,
    /// The end whose node reported it, and whose policies are therefore evaluated.
    pub reporter: &'static str,
    /// The verdict as the cluster is.
    pub before: Fate,
    /// The verdict with the policy.
    pub after: Fate,
    /// What decides with the policy.
    pub reason: String,
    /// The number of recorded packets.
    pub packets: u64,
    /// The number of recorded connections.
    pub connections: u64,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Impact {
    /// Flows that would be decided differently, denied flows first.
    pub changes: Vec<Change>,
    /// The number of flows whose verdict stays the same.
    pub unchanged: usize,
    /// The number of flows that were recorded with another verdict than the cluster gives now: policies have changed
    /// since.
    pub outdated: usize,
    /// Flows that cannot be evaluated, and why.
    pub unknown: Vec<String>,
    /// Assumptions that were made.
    pub notes: Vec<String>,
}

/// The part of a flow that its verdict at one end depends on.
type Connection = (Reporter, Peer, Peer, String, i64);

/// Evaluates every flow in both clusters.
#[must_use]
pub fn impact(flows: &[Flow], before: &Cluster, after: &Cluster) -> Impact {
    let (mut before, mut after) = (before.clone(), after.clone());
    let mut notes = staged::enforce_new(&before, &mut after);
    notes.extend(ends::put_back(flows, &mut before, &mut after));
    let ends = Ends::new(&after);
    let (old, new) = (Views::new(&before), Views::new(&after));
    let (old, new) = (old.oracle(), new.oracle());
    let mut found = Impact { notes, ..Impact::default() };
    for flows in connections(flows).into_values() {
        let Some(flow) = flows.first() else { continue };
        let text = flow::connection_text(flow);
        let asked = ends.pairs(flow).and_then(|pairs| {
            let was = fate(&old, flow, &pairs).map_err(|error| format!("before: {error}"))?;
            Ok((was, fate(&new, flow, &pairs)?, pairs))
        });
        let (was, is, pairs) = match asked {
            Ok(answers) => answers,
            Err(reason) => {
                found.unknown.push(format!("{text}: {reason}"));
                continue;
            }
        };
        let recorded = flows.iter().max_by_key(|flow| flow.start).map(|flow| flow.key.action);
        let agrees = match was {
            Fate::Allowed => recorded == Some(Action::Allow),
            Fate::Denied => recorded == Some(Action::Deny),
            Fate::Depends => true,
        };
        found.outdated += usize::from(!agrees);
        if was == is {
            found.unchanged += 1;
            continue;
        }
        let sum =
            |figure: fn(&Flow) -> u64| flows.iter().fold(0_u64, |sum, flow| sum.saturating_add(figure(flow)));
        found.changes.push(Change {
            flow: text,
            reporter: flow.key.reporter.as_str(),
            before: was,
            after: is,
            reason: reason(&new, flow, &pairs, is),
            packets: sum(|flow| flow::packets(&flow.counters)),
            connections: sum(|flow| flow.counters.started),
        });
    }
    found.changes.sort_by(|one, two| {
        let order = |change: &Change| (change.after != Fate::Denied, change.after != Fate::Depends);
        order(one).cmp(&order(two)).then_with(|| one.flow.cmp(&two.flow)).then(one.reporter.cmp(two.reporter))
    });
    found
}

fn connections(flows: &[Flow]) -> BTreeMap<Connection, Vec<&Flow>> {
    let mut found: BTreeMap<Connection, Vec<&Flow>> = BTreeMap::new();
    for flow in flows {
        let key = &flow.key;
        let port = if flow::has_ports(&key.protocol) { key.dest_port } else { 0 };
        let connection = (key.reporter, key.source.clone(), key.dest.clone(), key.protocol.to_string(), port);
        found.entry(connection).or_default().push(flow);
    }
    found
}

fn fate(oracle: &Oracle<'_>, flow: &Flow, pairs: &[(String, String)]) -> Result<Fate, String> {
    let mut allowed = 0;
    for (from, to) in pairs {
        allowed += usize::from(oracle.allows(flow, from, to).map_err(|error| error.to_string())?);
    }
    Ok(match allowed {
        0 => Fate::Denied,
        all if all == pairs.len() => Fate::Allowed,
        _ => Fate::Depends,
    })
}

/// What decides, for the first pair with this fate; if it depends, for the first pair that is denied.
fn reason(oracle: &Oracle<'_>, flow: &Flow, pairs: &[(String, String)], fate: Fate) -> String {
    let wanted = fate == Fate::Allowed;
    let pair =
        pairs.iter().find(|(from, to)| oracle.allows(flow, from, to).is_ok_and(|allowed| allowed == wanted));
    pair.and_then(|(from, to)| oracle.reason(flow, from, to).ok()).unwrap_or_default()
}

/// The answer as text.
#[must_use]
pub fn to_text(impact: &Impact) -> String {
    let mut out = String::new();
    let denied = impact.changes.iter().filter(|change| change.after == Fate::Denied).count();
    let allowed = impact.changes.iter().filter(|change| change.after == Fate::Allowed).count();
    out.push_str(&format!(
        "{} would be denied, {} allowed, {} would depend on the address; {} as before.\n",
        count(denied as u64, "flow"),
        allowed,
        impact.changes.len() - denied - allowed,
        impact.unchanged,
    ));
    if !impact.changes.is_empty() {
        let rows: Vec<Vec<String>> = impact
            .changes
            .iter()
            .map(|change| {
                vec![
                    clean(&change.flow),
                    change.reporter.to_lowercase(),
                    change.before.word().to_owned(),
                    change.after.word().to_owned(),
                    change.packets.to_string(),
                    clean(&change.reason),
                ]
            })
            .collect();
        out.push('\n');
        out.push_str(&table(&["FLOW", "AT", "NOW", "THEN", "PACKETS", "DECIDED BY"], &rows));
    }
    let mut more = Vec::new();
    if impact.outdated > 0 {
        more.push(format!(
            "Recorded with another verdict than the cluster gives now, so policies changed since: {}.",
            count(impact.outdated as u64, "flow")
        ));
    }
    more.extend(impact.unknown.iter().map(|text| format!("Unknown: {text}")));
    more.extend(impact.notes.iter().map(|note| format!("Note: {note}")));
    if !more.is_empty() {
        out.push('\n');
        more.iter().for_each(|line| out.push_str(&format!("{}\n", clean(line))));
    }
    out
}
