//! Makes the pods, lets them talk, changes policies under them, and judges what their logs say. What it made it deletes, also
//! when it fails.

use super::newest_round;
use super::phases::{Client, Layout, Phase, Reach, SERVER_PORT, SERVICE_PORT, phases};
use crate::cluster::{Mode, Reference, Target};
use crate::rollout::{is_ready, trouble};
use anyhow::{Context as _, Result, bail};
use explain::{CaseReport, TestReport, Verdict};
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What was chosen.
#[derive(Clone, Debug)]
pub struct Choices {
    /// The image of the probes.
    pub image: String,
    /// Only one node.
    pub single_node: bool,
    /// How long each thing may take.
    pub patience: Duration,
    /// The kubeconfig, for `explain`.
    pub kubeconfig: Option<PathBuf>,
}

const PAUSE: Duration = Duration::from_millis(500);

/// A target of clients: its name for people, its address, and the server that it is, where it is one.
struct Aim {
    title: String,
    address: String,
    server: Option<super::Server>,
}

/// Runs the test; the report has a case for each client, target and phase that is judged.
///
/// # Errors
/// When the pods do not come up, or the cluster cannot be asked.
pub async fn run(target: &Target, choices: &Choices, out: &mut dyn Write) -> Result<TestReport> {
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
        bail!("there is no node that is ready");
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
    let mut aims = Vec::new();
    for server in layout.servers() {
        let pod = ready(target, layout, &server.name, choices.patience).await?;
        let address =
            pod.pointer("/status/podIP").and_then(Value::as_str).context("a pod without an address")?;
        let address = kube_access::access::join_host_port(address, &SERVER_PORT.to_string());
        aims.push(Aim { title: server.name.clone(), address, server: Some(server) });
    }
    let service =
        target.get(&Reference::new("Service", &layout.namespace, "server")).await?.context("no service")?;
    let address = service.pointer("/spec/clusterIP").and_then(Value::as_str).unwrap_or_default();
    aims.push(Aim {
        title: "service".to_owned(),
        address: kube_access::access::join_host_port(address, &SERVICE_PORT.to_string()),
        server: None,
    });
    let targets: Vec<String> = aims.iter().map(|aim| aim.address.clone()).collect();
    for client in Client::ALL {
        target.apply(&layout.client_object(client, &targets), mode).await?;
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

/// Whether a service is reached: only where all its backends have one answer.
fn service_reach(layout: &Layout, phase: &Phase, client: Client) -> Reach {
    let all: Vec<Reach> = layout.servers().iter().map(|server| layout.reach(phase, client, server)).collect();
    match all.first() {
        Some(first) if all.iter().all(|reach| reach == first) => *first,
        _ => Reach::Any,
    }
}

/// Looks at a client's log until everything is as it must be in two rounds that follow each other, or time is up.
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
        .map(|aim| match &aim.server {
            Some(server) => (aim, layout.reach(phase, client, server)),
            None => (aim, service_reach(layout, phase, client)),
        })
        .filter(|(_, reach)| *reach != Reach::Any)
        .collect();
    let deadline = Instant::now() + choices.patience;
    let mut good_since: Option<u64> = None;
    let found = loop {
        let log = target.log(&layout.namespace, client.name()).await?;
        let (round, found) = newest_round(&log);
        let is_good =
            expected.iter().all(|(aim, reach)| found.get(&aim.address) == Some(&(*reach == Reach::Yes)));
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
        let measured = found.get(&aim.address).copied().map(verdict);
        let wanted = verdict(reach == Reach::Yes);
        let mut reason = String::new();
        if let (Some(server), true) = (&aim.server, client != Client::Host) {
            // Policies of the cluster's own may say something else than ours.
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

/// What `calicoctl explain` of this same program says. What it cannot judge counts as a fault: the two must agree.
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
