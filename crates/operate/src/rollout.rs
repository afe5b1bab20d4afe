//! Describes the progress of a daemon set or deployment: a function of the object and its pods.

use serde_json::Value;
use std::fmt::Write as _;

/// The progress of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Whether everything that should run is running.
    pub is_done: bool,
    /// The description.
    pub text: String,
}

/// The progress of a workload; `pods` are those that its selector matches.
#[must_use]
pub(crate) fn progress(workload: &Value, pods: &[Value]) -> Progress {
    let is_daemon_set = workload["kind"] == "DaemonSet";
    let number = |place: &str| workload.pointer(place).and_then(Value::as_i64).unwrap_or_default();
    let name = workload.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let generation = number("/metadata/generation");
    if number("/status/observedGeneration") < generation {
        let text = format!("{name}: no controller has processed it yet (is the controller manager running?)");
        return Progress { is_done: false, text };
    }
    let (wanted, updated, ready, what) = match is_daemon_set {
        true => (
            number("/status/desiredNumberScheduled"),
            number("/status/updatedNumberScheduled"),
            number("/status/numberAvailable"),
            "nodes",
        ),
        false => (
            workload.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1),
            number("/status/updatedReplicas"),
            number("/status/availableReplicas"),
            "pods",
        ),
    };
    // A daemon set with updates on deletion does not count the pods that were not replaced yet.
    let is_on_delete = workload.pointer("/spec/updateStrategy/type").is_some_and(|kind| kind == "OnDelete");
    let is_done = ready >= wanted && (updated >= wanted || is_on_delete);
    if is_done {
        return Progress { is_done, text: format!("{name}: all {wanted} {what} ready") };
    }
    let mut text = format!("{name}: {updated} of {wanted} {what} updated, {ready} ready");
    let troubles: Vec<String> = pods.iter().filter_map(trouble).collect();
    for trouble in troubles.iter().take(3) {
        text.push_str("; ");
        text.push_str(trouble);
    }
    if troubles.len() > 3 {
        // Writing to a string does not fail.
        let _ = write!(text, "; and {} more", troubles.len() - 3);
    }
    Progress { is_done, text }
}

/// Whether a pod is ready.
#[must_use]
pub(crate) fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let is_true = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    pod.pointer("/metadata/deletionTimestamp").is_none() && conditions.into_iter().flatten().any(is_true)
}

/// The reason why a pod is not ready; `None` if there is none.
#[must_use]
pub(crate) fn trouble(pod: &Value) -> Option<String> {
    if is_ready(pod) || pod.pointer("/metadata/deletionTimestamp").is_some() {
        return None;
    }
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("no node yet");
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let statuses = lists.iter().filter_map(|list| pod.pointer(list).and_then(Value::as_array)).flatten();
    let mut reason = String::new();
    for status in statuses {
        let container = status["name"].as_str().unwrap_or_default();
        let text = |place: &str| status.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
        let waiting = text("/state/waiting/reason");
        let ended = status.pointer("/state/terminated/exitCode").and_then(Value::as_i64).unwrap_or_default();
        if !waiting.is_empty() && waiting != "PodInitializing" && waiting != "ContainerCreating" {
            let message = text("/state/waiting/message");
            reason = format!(
                "{container}: {waiting}{}",
                if message.is_empty() { String::new() } else { format!(" ({message})") }
            );
            break;
        }
        if ended != 0 {
            reason = format!("{container} ended with {ended}: {}", text("/state/terminated/reason"));
            break;
        }
        if status["started"] == true && status["ready"] == false {
            reason = format!("{container} is running but not ready");
        }
    }
    if reason.is_empty() {
        let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or("Pending");
        reason = phase.to_owned();
    }
    Some(format!("{node}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn daemon_set(updated: i64, ready: i64) -> Value {
        json!({
            "kind": "DaemonSet", "metadata": {"name": "calico-node", "generation": 2},
            "status": {
                "observedGeneration": 2, "desiredNumberScheduled": 3,
                "updatedNumberScheduled": updated, "numberAvailable": ready,
            },
        })
    }

    #[test]
    fn progress_includes_the_reason_for_waiting() {
        let pod = json!({
            "spec": {"nodeName": "n2"},
            "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "install-cni", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
            ]},
        });
        let ready = json!({"spec": {"nodeName": "n1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let text = progress(&daemon_set(2, 1), &[ready.clone(), pod]).text;
        assert_eq!(
            text,
            "calico-node: 2 of 3 nodes updated, 1 ready; n2: install-cni: ImagePullBackOff (no such image)"
        );
        assert_eq!(progress(&daemon_set(3, 3), &[ready]).text, "calico-node: all 3 nodes ready");
        let mut fresh = daemon_set(3, 3);
        fresh["metadata"]["generation"] = json!(3);
        assert!(!progress(&fresh, &[]).is_done);
    }

    #[test]
    fn deployments_and_updates_on_deletion() {
        let deployment = json!({
            "kind": "Deployment", "metadata": {"name": "calico-typha", "generation": 1}, "spec": {"replicas": 2},
            "status": {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 1},
        });
        assert_eq!(progress(&deployment, &[]).text, "calico-typha: 2 of 2 pods updated, 1 ready");
        let mut set = daemon_set(1, 3);
        assert!(!progress(&set, &[]).is_done);
        set["spec"] = json!({"updateStrategy": {"type": "OnDelete"}});
        assert!(progress(&set, &[]).is_done);
    }

    #[test]
    fn a_pod_that_runs_or_ended_badly() {
        let pod = |state: Value| json!({"spec": {"nodeName": "n1"}, "status": {"phase": "Running", "containerStatuses": [state]}});
        let running =
            pod(json!({"name": "calico-node", "started": true, "ready": false, "state": {"running": {}}}));
        assert_eq!(trouble(&running).unwrap(), "n1: calico-node is running but not ready");
        let ended =
            pod(json!({"name": "calico-node", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}));
        assert_eq!(trouble(&ended).unwrap(), "n1: calico-node ended with 1: Error");
    }
}
