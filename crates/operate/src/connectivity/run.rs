//! Creates the pods, lets them talk, changes policies under them, and judges their logs. Everything that it created is
//! deleted, even after a failure.

use super::aims::{Aim, Goal, words};
use super::phases::{Client, Layout, Phase, Reach, SERVER_PORT, phases};
use super::{Outcome, newest_round};
use crate::cluster::{Mode, Reference, Target};
use crate::rollout::{is_ready, trouble};
use crate::status;
use anyhow::{Context as _, Result, bail};
use explain::{CaseReport, TestReport, Verdict};
use serde_json::Value;
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The options.
#[derive(Clone, Debug)]
pub(crate) struct Choices {
    /// The image of the probes.
    pub image: String,
    /// Only one node.
    pub single_node: bool,
    /// Hosts and ports outside of the cluster that pods must reach.
    pub outside: Vec<String>,
    /// How long each step may take.
    pub patience: Duration,
    /// The kubeconfig, for `explain`.
    pub kubeconfig: Option<PathBuf>,
}

const PAUSE: Duration = Duration::from_millis(500);

/// Runs the test; the report has a case for each client, target and phase that is judged.
///
/// # Errors
/// When the pods do not start, or the cluster cannot be read.
pub(crate) async fn run(target: &Target, choices: &Choices, out: &mut dyn Write) -> Result<TestReport> {
    let layout = layout(target, choices).await?;
    writeln!(out, "namespace {}, nodes {}", layout.namespace, layout.nodes.join(" and "))?;
    let outcome = inside(target, choices, &layout, out).await;
    let namespace = Reference::new("Namespace", "", &layout.namespace);
    let removed = target.delete_path(&namespace.path()?).await;
    let report = outcome?;
    removed.with_context(|| format!("the namespace {} is left behind", layout.namespace))?;
    Ok(report)
}

async fn layout(target: &Target, choices: &Choices) -> Result<Layout> {
    let nodes = target.list("/api/v1/nodes").await?;
    let is_useful = |node: &&Value| {
        crate::install::condition(node, "Ready")
            && node.pointer("/spec/unschedulable").is_none_or(|value| value != true)
            && node.pointer("/metadata/labels/kubernetes.io~1os").is_none_or(|os| os == "linux")
    };
    let mut names: Vec<String> = nodes
        .iter()
        .filter(is_useful)
        .filter_map(|node| node.pointer("/metadata/name")?.as_str().map(str::to_owned))
        .collect();
    names.sort();
    names.truncate(if choices.single_node { 1 } else { 2 });
    if names.is_empty() {
        bail!("no node is ready");
    }
    let id = jiff::Timestamp::now().as_millisecond();
    Ok(Layout { namespace: format!("tortie-connectivity-{id}"), image: choices.image.clone(), nodes: names })
}

async fn inside(
    target: &Target,
    choices: &Choices,
    layout: &Layout,
    out: &mut dyn Write,
) -> Result<TestReport> {
    let mode = Mode::default();
    target.apply(&layout.namespace_object(), mode).await?;
    for object in layout.server_objects() {
        target.apply(&object, mode).await?;
    }
    let aims = aims(target, choices, layout, out).await?;
    for client in Client::ALL {
        target.apply(&layout.client_object(client, &words(client, &aims)), mode).await?;
    }
    for client in Client::ALL {
        ready(target, layout, client.name(), choices.patience).await?;
    }
    let mut cases = Vec::new();
    let mut before: Vec<Value> = Vec::new();
    for phase in phases(&layout.namespace) {
        writeln!(out, "{}", phase.name)?;
        for old in before.iter().filter(|old| !phase.policies.contains(old)) {
            target.delete_path(&Reference::of(old).path()?).await?;
        }
        for policy in &phase.policies {
            target.apply(policy, mode).await?;
        }
        before.clone_from(&phase.policies);
        for client in Client::ALL {
            cases.extend(judge(target, choices, layout, &phase, client, &aims, out).await?);
        }
    }
    Ok(TestReport { cases })
}

/// Waits for the servers, creates their service, and collects the targets.
async fn aims(target: &Target, choices: &Choices, layout: &Layout, out: &mut dyn Write) -> Result<Vec<Aim>> {
    let mut aims = Vec::new();
    let mut versions = Vec::new();
    for server in layout.servers() {
        let pod = ready(target, layout, &server.name, choices.patience).await?;
        let found = pod.pointer("/status/podIPs").and_then(Value::as_array);
        let addresses: Vec<IpAddr> =
            found.into_iter().flatten().filter_map(|one| one["ip"].as_str()?.parse().ok()).collect();
        if addresses.is_empty() {
            bail!("the pod {} has no address", server.name);
        }
        versions = addresses.iter().map(|address| if address.is_ipv4() { "IPv4" } else { "IPv6" }).collect();
        aims.extend(Aim::at_server(&server, &addresses));
    }
    target.apply(&layout.service_object(&versions), Mode::default()).await?;
    let service =
        target.get(&Reference::new("Service", &layout.namespace, "server")).await?.context("no service")?;
    let facts = status::gather(target).await;
    aims.extend(Aim::at_service(layout, &service, &node_addresses(layout, &facts.nodes)));
    aims.extend(choices.outside.iter().map(|outside| Aim::outside(outside)));
    let mut encrypts = false;
    for (field, variable, interface) in [
        ("wireguardEnabled", "FELIX_WIREGUARDENABLED", "wireguard.cali"),
        ("wireguardEnabledV6", "FELIX_WIREGUARDENABLEDV6", "wg-v6.cali"),
    ] {
        let chosen = status::parameter(&facts, field, variable);
        if chosen.is_some_and(|(value, _)| value.eq_ignore_ascii_case("true")) && layout.nodes.len() > 1 {
            encrypts = true;
            aims.push(Aim::encryption(interface));
        }
    }
    let not_tried =
        [(choices.outside.is_empty(), "outside (--outside HOST:PORT)"), (!encrypts, "encryption (off)")];
    let not_tried: Vec<&str> = not_tried.iter().filter(|(is_so, _)| *is_so).map(|(_, what)| *what).collect();
    if !not_tried.is_empty() {
        writeln!(out, "not tried: {}", not_tried.join(", "))?;
    }
    Ok(aims)
}

/// The addresses of the test's nodes.
fn node_addresses(layout: &Layout, nodes: &[Value]) -> Vec<(String, IpAddr)> {
    let mut found = Vec::new();
    for node in nodes {
        let name = status::text(node, "/metadata/name");
        let addresses = node.pointer("/status/addresses").and_then(Value::as_array);
        for address in addresses.into_iter().flatten().filter(|address| address["type"] == "InternalIP") {
            if let (true, Ok(address)) =
                (layout.nodes.iter().any(|known| known == name), status::text(address, "/address").parse())
            {
                found.push((name.to_owned(), address));
            }
        }
    }
    found
}

/// Reads a client's log until two consecutive rounds are entirely as expected, or time is up.
async fn judge(
    target: &Target,
    choices: &Choices,
    layout: &Layout,
    phase: &Phase,
    client: Client,
    aims: &[Aim],
    out: &mut dyn Write,
) -> Result<Vec<CaseReport>> {
    let expected: Vec<(&Aim, Reach)> = aims
        .iter()
        .map(|aim| (aim, aim.reach(layout, phase, client)))
        .filter(|(_, reach)| *reach != Reach::Any)
        .collect();
    let deadline = Instant::now() + choices.patience;
    let mut good_since: Option<u64> = None;
    let found = loop {
        let log = target.log(&layout.namespace, client.name()).await?;
        let (round, found) = newest_round(&log);
        let is_good = expected.iter().all(|(aim, reach)| {
            let wanted = if *reach == Reach::Yes { Outcome::Reached } else { Outcome::Failed };
            found.get(&aim.address) == Some(&wanted)
        });
        good_since = match (is_good, good_since) {
            (true, None) => round,
            (true, since) => since,
            (false, _) => None,
        };
        let has_lasted = good_since.zip(round).is_some_and(|(since, now)| now > since);
        if has_lasted || Instant::now() > deadline {
            break found;
        }
        tokio::time::sleep(PAUSE).await;
    };
    let mut cases = Vec::new();
    for (aim, reach) in expected {
        let name = format!("{}: {} to {}", phase.name, client.name(), aim.title);
        let verdict = |is_reached: bool| if is_reached { Verdict::Allow } else { Verdict::Deny };
        let outcome = found.get(&aim.address).copied();
        let measured = outcome.map(|outcome| verdict(outcome != Outcome::Failed));
        let wanted = verdict(reach == Reach::Yes);
        let mut reason = String::new();
        if outcome == Some(Outcome::Stuck) {
            reason = "connections are established, but full packets do not arrive: an MTU on the path is smaller than pods assume; \
                      --set mtu=... changes theirs"
                .to_owned();
        } else if let (Goal::Server(server), true) = (&aim.goal, client != Client::Host) {
            // The cluster's own policies may decide differently.
            match explained(choices, &layout.namespace, client, &server.name).await {
                Ok(explained) if Some(explained) != measured => {
                    reason = format!("explain says {}", explained.as_str());
                }
                Ok(_) => {}
                Err(error) => reason = format!("explain does not answer: {error:#}"),
            }
        }
        let passed = measured == Some(wanted) && reason.is_empty();
        let mark = if passed { "ok" } else { "FAILED" };
        let said = measured.map_or("no answer", Verdict::as_str);
        writeln!(
            out,
            "  {mark:<7} {} to {} ({}): {said}, expected {} {reason}",
            client.name(),
            aim.title,
            aim.address,
            wanted.as_str()
        )?;
        cases.push(CaseReport { name, passed, expected: wanted, found: measured, reason });
    }
    Ok(cases)
}

/// The verdict of `calicoctl explain` in this program. A case that it cannot judge counts as a failure: the two must
/// agree.
async fn explained(choices: &Choices, namespace: &str, client: Client, server: &str) -> Result<Verdict> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.args(["ctl", "explain", "-o", "json", "--from"]).arg(format!("{namespace}/{}", client.name()));
    command.arg("--to").arg(format!("{namespace}/{server}:{SERVER_PORT}"));
    command.env("DATASTORE_TYPE", "kubernetes").stdin(Stdio::null());
    if let Some(kubeconfig) = &choices.kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    let output = command.output().await?;
    let value: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    match value["verdict"].as_str() {
        Some("allow") => Ok(Verdict::Allow),
        Some("deny") => Ok(Verdict::Deny),
        other => bail!("a verdict {other:?}"),
    }
}

async fn ready(target: &Target, layout: &Layout, name: &str, patience: Duration) -> Result<Value> {
    let reference = Reference::new("Pod", &layout.namespace, name);
    let deadline = Instant::now() + patience;
    loop {
        let pod = target.get(&reference).await?.with_context(|| format!("{reference} is gone"))?;
        if is_ready(&pod) {
            return Ok(pod);
        }
        if Instant::now() > deadline {
            let why = trouble(&pod).unwrap_or_default();
            bail!("{reference} is not ready after {} s: {why}", patience.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
}
