//! Executes a plan, one step at a time, and stops at the first step that fails.

use super::plan::{Plan, Step};
use crate::cluster::{Mode, Reference, Target};
use crate::rollout::{is_ready, progress, trouble};
use anyhow::{Context as _, Result, bail};
use manifests::NAMESPACE;
use serde_json::Value;
use std::io::Write;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_secs(1);

/// Executes the steps; `patience` is the limit for each wait.
///
/// # Errors
/// When a step fails; completed steps stay in place, and the same command continues from there.
pub async fn run(target: &Target, plan: &Plan, patience: Duration, out: &mut dyn Write) -> Result<()> {
    let count = plan.steps.len();
    for (index, step) in plan.steps.iter().enumerate() {
        writeln!(out, "[{}/{count}] {step}", index + 1)?;
        one(target, step, patience, out).await.with_context(|| {
            format!(
                "step {} of {count} failed ({step}). Completed steps stay in place; the same command continues from here, and with --back it \
                 goes back",
                index + 1
            )
        })?;
    }
    Ok(())
}

async fn one(target: &Target, step: &Step, patience: Duration, out: &mut dyn Write) -> Result<()> {
    match step {
        Step::ApplyDefinitions => {
            for definition in api::crds::all() {
                target.apply(&definition, Mode { dry_run: false, force: true }).await?;
            }
            Ok(())
        }
        Step::Change { kind, name, patch, .. } => {
            target.patch_strategically(&Reference::new(kind, NAMESPACE, name), patch).await?;
            Ok(())
        }
        Step::AwaitDeployment { name } => {
            let reference = Reference::new("Deployment", NAMESPACE, name);
            let deadline = Instant::now() + patience;
            let mut told = String::new();
            loop {
                let workload =
                    target.get(&reference).await?.with_context(|| format!("{reference} is gone"))?;
                let progress = progress(&workload, &pods(target, name).await?);
                if progress.is_done {
                    return Ok(());
                }
                tell(&mut told, &progress.text, out)?;
                if Instant::now() > deadline {
                    bail!("not ready after {} s: {told}", patience.as_secs());
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
        Step::ReplacePod { node, pod } => replace(target, node, pod, patience, out).await,
    }
}

/// The gate of a node: passes when the old pod is gone, and a new pod is ready and was not restarted.
async fn replace(
    target: &Target,
    node: &str,
    pod: &str,
    patience: Duration,
    out: &mut dyn Write,
) -> Result<()> {
    let old = Reference::new("Pod", NAMESPACE, pod);
    let Some(before) = target.get(&old).await? else { return Ok(()) };
    let label = before
        .pointer("/metadata/labels/k8s-app")
        .and_then(Value::as_str)
        .unwrap_or("calico-node")
        .to_owned();
    target.delete_path(&old.path()?).await?;
    let deadline = Instant::now() + patience;
    let mut told = String::new();
    loop {
        let all = pods(target, &label).await?;
        let here =
            all.iter().filter(|found| found.pointer("/spec/nodeName").is_some_and(|name| name == node));
        let new: Vec<&Value> =
            here.filter(|found| found.pointer("/metadata/name").is_none_or(|name| name != pod)).collect();
        let state = match new.first() {
            Some(found) if is_ready(found) => {
                let statuses = found.pointer("/status/containerStatuses").and_then(Value::as_array);
                let restarts: i64 = statuses
                    .into_iter()
                    .flatten()
                    .map(|status| status["restartCount"].as_i64().unwrap_or_default())
                    .sum();
                if restarts > 0 {
                    bail!(
                        "the new pod on {node} is ready, but was restarted {restarts} times: look at its log before continuing"
                    );
                }
                return Ok(());
            }
            Some(found) => trouble(found).unwrap_or_else(|| format!("{node}: the new pod starts")),
            None => format!("{node}: waiting for a new pod"),
        };
        tell(&mut told, &state, out)?;
        if Instant::now() > deadline {
            bail!("node {node} has no ready pod after {} s: {told}", patience.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn pods(target: &Target, label: &str) -> Result<Vec<Value>> {
    target.list(&format!("/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=k8s-app%3D{label}")).await
}

fn tell(told: &mut String, text: &str, out: &mut dyn Write) -> Result<()> {
    if told != text {
        writeln!(out, "      {text}")?;
        text.clone_into(told);
    }
    Ok(())
}
