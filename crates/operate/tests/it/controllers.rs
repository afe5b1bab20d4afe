//! Simulates the controller manager, the scheduler and kubelets, as far as a migration needs them: a ready pod of the
//! daemon set on every node, recreated from the template when it is gone; and deployments that are ready.

use crate::{Shared, World};
use anyhow::{Context as _, Result};
use operate::for_tests::{Reference, Target};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Simulated controllers; they run until this is dropped.
pub(crate) struct Controllers {
    task: JoinHandle<()>,
    /// The nodes in the order in which their pods were created, with the image of each.
    pub(crate) made: Shared<Vec<(String, String)>>,
    /// Pods on this node are never ready.
    pub(crate) broken: Shared<Option<String>>,
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Controllers {
    pub(crate) async fn start(world: &World, nodes: &[&str]) -> Result<Self> {
        let target = world.target().await?;
        let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        let made: Shared<Vec<(String, String)>> = Arc::default();
        let broken: Shared<Option<String>> = Arc::new(Mutex::new(None));
        let (made_inside, broken_inside) = (Arc::clone(&made), Arc::clone(&broken));
        let task = tokio::spawn(async move {
            let mut number = 0;
            loop {
                // A conflict with the command under test is temporary: the next round tries again.
                let _ = round(&target, &nodes, &made_inside, &broken_inside, &mut number).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Ok(Self { task, made, broken })
    }
}

async fn round(
    target: &Target,
    nodes: &[String],
    made: &Shared<Vec<(String, String)>>,
    broken: &Shared<Option<String>>,
    number: &mut usize,
) -> Result<()> {
    let set = target
        .get(&Reference::new("DaemonSet", "kube-system", "calico-node"))
        .await?
        .context("no daemon set")?;
    let pods = target.list("/api/v1/namespaces/kube-system/pods?labelSelector=k8s-app%3Dcalico-node").await?;
    for node in nodes {
        let here = pods.iter().find(|pod| pod["spec"]["nodeName"] == node.as_str());
        let is_broken = broken.lock().is_ok_and(|broken| broken.as_ref() == Some(node));
        match here {
            None => {
                let mut spec = set["spec"]["template"]["spec"].clone();
                spec["nodeName"] = json!(node);
                *number += 1;
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {
                        "name": format!("calico-node-{number}"), "namespace": "kube-system",
                        "labels": {"k8s-app": "calico-node"},
                    },
                    "spec": spec,
                });
                target.create("make a pod", "/api/v1/namespaces/kube-system/pods", &pod).await?;
                let image = spec["containers"][0]["image"].as_str().unwrap_or_default().to_owned();
                if let Ok(mut made) = made.lock() {
                    made.push((node.clone(), image));
                }
            }
            Some(pod) if pod["status"]["conditions"].is_null() && !is_broken => {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let status = json!({"status": {
                    "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                }});
                write_status(target, "Pod", name, &status).await?;
            }
            Some(_) => {}
        }
    }
    for name in ["calico-kube-controllers", "calico-typha"] {
        let reference = Reference::new("Deployment", "kube-system", name);
        let Some(deployment) = target.get(&reference).await? else { continue };
        let generation = &deployment["metadata"]["generation"];
        if &deployment["status"]["observedGeneration"] != generation {
            let status = json!({"status": {
                "observedGeneration": generation, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
            }});
            write_status(target, "Deployment", name, &status).await?;
        }
    }
    Ok(())
}

async fn write_status(target: &Target, kind: &str, name: &str, status: &Value) -> Result<()> {
    target
        .patch_path(&format!("{}/status", Reference::new(kind, "kube-system", name).path()?), status)
        .await?;
    Ok(())
}
