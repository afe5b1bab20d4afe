//! After the matrix: the denied flows, each with the policy that denied it, and how soon a flow is visible.
//!
//! Flows are read with `calicoctl flows`, as a user would. This module does not judge whether a flow should be denied:
//! the matrix does.

use crate::interrupt;
use crate::lab::Lab;
use crate::matrix::Matrix;
use crate::probe::{self, Errand, Target};
use crate::screen::Screen;
use crate::table::table;
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a flow may take to appear before this counts as a failure. It takes about a second.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the one connection is attempted: its first packet is dropped at once.
const TRY: Duration = Duration::from_millis(200);

/// The fields of a flow's line that are used here.
#[derive(Debug, Deserialize)]
struct Denied {
    source_namespace: String,
    source_name: String,
    dest_namespace: String,
    dest_name: String,
    dest_port: u16,
    policies: Policies,
    packets_in: u64,
    packets_out: u64,
}

#[derive(Debug, Deserialize)]
struct Policies {
    #[serde(default)]
    enforced: Option<Vec<Hit>>,
}

#[derive(Debug, Deserialize)]
struct Hit {
    kind: String,
    name: String,
    #[serde(default)]
    namespace: String,
    tier: String,
    /// The end of a tier has no policy.
    #[serde(default)]
    rule_index: i64,
    #[serde(default)]
    trigger: Option<Box<Hit>>,
}

impl Hit {
    fn policy(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{} {}", self.kind, self.name),
            namespace => format!("{} {namespace}/{}", self.kind, self.name),
        }
    }

    /// The policy and rule that decided.
    fn reason(&self) -> String {
        match (self.kind.as_str(), &self.trigger) {
            ("EndOfTier", Some(policy)) => {
                format!("{}: none of its rules match, and tier {} ends", policy.policy(), self.tier)
            }
            ("EndOfTier", None) => format!("the end of tier {}", self.tier),
            ("Profile", _) => "no policy and no profile allows it".to_owned(),
            _ => format!("{}, rule {}", self.policy(), self.rule_index),
        }
    }
}

impl Denied {
    fn from(&self) -> String {
        format!("{}/{}", self.source_namespace, self.source_name)
    }

    fn to(&self) -> String {
        format!("{}/{}", self.dest_namespace, self.dest_name)
    }

    fn reason(&self) -> String {
        let last = self.policies.enforced.as_ref().and_then(|hits| hits.last());
        last.map(Hit::reason).unwrap_or_default()
    }
}

/// Shows the denied flows.
///
/// # Errors
/// When flows cannot be read, or a denied packet never appears.
pub(super) fn show(lab: &Lab, matrix: &Matrix, screen: &mut Screen) -> Result<()> {
    screen.heading("The flows that were denied, and by which policy");
    let (from, target) = refused(lab, matrix).context("nothing was refused")?;
    screen.begin("one more connection that is refused");
    let seconds = seen_after(lab, &from, &target)?.as_secs_f64();
    screen.done(&format!(
        "{from} to {}:{} was denied; the flow, with its policy, was there {seconds:.1} s after the packet",
        target.name, target.port
    ));
    let refused = |flow: &Denied| {
        let sender = matrix.senders.iter().position(|sender| sender.pod == flow.from());
        let mut receivers = matrix.receivers.iter().enumerate();
        let receiver =
            receivers.find(|(_, receiver)| receiver.pod == flow.to() && receiver.port == flow.dest_port);
        let cell = sender.zip(receiver).map(|(row, (column, _))| &matrix.cells[row][column]);
        cell.is_some_and(|cell| cell.reached == Some(false))
    };
    let flows: Vec<Denied> = denied(lab, &[])?.into_iter().filter(refused).collect();
    if flows.is_empty() {
        bail!("the matrix has refused cells, but Goldmane has no denied flows for them");
    }
    screen.print(&format!("\n{}\n", indented(&text(&flows))));
    screen.say("Live: `calicoctl flows -f --denied`; in the browser: `tortie lab ui`.");
    Ok(())
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

/// One line for each pair and reason, with the attempted ports.
fn text(flows: &[Denied]) -> String {
    let mut lines: BTreeMap<(String, String, String), (BTreeSet<u16>, u64)> = BTreeMap::new();
    for flow in flows {
        let (ports, packets) = lines.entry((flow.from(), flow.to(), flow.reason())).or_default();
        ports.insert(flow.dest_port);
        *packets += flow.packets_in + flow.packets_out;
    }
    let rows: Vec<Vec<String>> = lines
        .into_iter()
        .map(|((from, to, reason), (ports, packets))| {
            let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
            vec![from, to, ports.join(", "), packets.to_string(), reason]
        })
        .collect();
    table(&["FROM", "TO", "PORTS", "PACKETS", "DENIED BY"], &rows)
}

/// The first refused cell.
fn refused(lab: &Lab, matrix: &Matrix) -> Option<(String, Target)> {
    let cells = matrix.senders.iter().zip(&matrix.cells);
    let mut all = cells.flat_map(|(sender, row)| {
        row.iter().zip(&matrix.receivers).map(move |(cell, receiver)| (sender, cell, receiver))
    });
    let (sender, _, receiver) = all.find(|(sender, cell, _)| {
        cell.reached == Some(false) && lab.state().pods.contains_key(&sender.pod)
    })?;
    let target = Target {
        address: receiver.address,
        port: receiver.port,
        protocol: receiver.protocol,
        name: receiver.pod.clone(),
    };
    Some((sender.pod.clone(), target))
}

/// Attempts a refused connection; returns how long it takes until its flow counts one more packet.
fn seen_after(lab: &Lab, from: &str, target: &Target) -> Result<Duration> {
    let filters = ["--from-pod", from, "--to-pod", &target.name];
    let packets = || -> Result<u64> {
        let flows = denied(lab, &filters)?;
        let flows = flows.iter().filter(|flow| flow.dest_port == target.port);
        Ok(flows.map(|flow| flow.packets_in + flow.packets_out).sum())
    };
    let before = packets()?;
    let pod = lab.state().pods.get(from).context("the sender is gone")?;
    let errand = Errand { netns: pod.netns.clone(), targets: vec![target.clone()] };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| probe::run(&[errand], TRY));
        while packets()? <= before {
            interrupt::check()?;
            if begun.elapsed() > PATIENCE {
                bail!("a packet that was denied is not among the flows after {} s", PATIENCE.as_secs());
            }
        }
        Ok(begun.elapsed())
    })
}

fn denied(lab: &Lab, filters: &[&str]) -> Result<Vec<Denied>> {
    let mut words = vec!["flows", "--denied", "--last", "10000", "-o", "json"];
    words.extend(filters);
    read(&lab.calicoctl(&words, "")?)
}

fn read(lines: &str) -> Result<Vec<Denied>> {
    let read = |line: &str| serde_json::from_str(line).with_context(|| format!("reading a flow: {line}"));
    lines.lines().filter(|line| !line.is_empty()).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::{read, text};

    fn line(port: u16, hit: &str) -> String {
        format!(
            r#"{{"source_namespace":"shop","source_name":"cart","dest_namespace":"shop","dest_name":"db","dest_port":{port},"packets_in":2,"packets_out":0,"policies":{{"enforced":[{{"kind":"GlobalNetworkPolicy","name":"platform.all","namespace":"","tier":"platform","rule_index":3}},{hit}],"pending":null}}}}"#
        )
    }

    #[test]
    fn flows_are_shown_with_policy_and_rule() {
        let rule =
            r#"{"kind":"NetworkPolicy","name":"db","namespace":"shop","tier":"default","rule_index":1}"#;
        let end = r#"{"kind":"EndOfTier","name":"","namespace":"","tier":"default","rule_index":-1,"trigger":{"kind":"GlobalNetworkPolicy","name":"deny","namespace":"","tier":"default"}}"#;
        let profile = r#"{"kind":"Profile","name":"","namespace":"","tier":"","rule_index":-1}"#;
        let lines = [line(80, rule), line(8080, rule), line(80, end), line(443, profile)].join("\n");
        let shown = text(&read(&lines).unwrap());
        let expected = [
            "FROM        TO        PORTS      PACKETS   DENIED BY",
            "shop/cart   shop/db   80         2         GlobalNetworkPolicy deny: none of its rules match, and tier default ends",
            "shop/cart   shop/db   80, 8080   4         NetworkPolicy shop/db, rule 1",
            "shop/cart   shop/db   443        2         no policy and no profile allows it",
        ];
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
    }
}
