//! Pods: a namespace, the CNI plugin called like a container runtime does, and a responder inside.
//!
//! Without Kubernetes the datastore has no labels of a pod and no profile of its namespace; then this file writes them,
//! as an orchestrator's controllers would.

use crate::accounts;
use crate::inside::{OWN_PROGRAM, node_program};
use crate::interrupt;
use crate::keeper::Request;
use crate::lab::{Lab, ROUTER};
use crate::settings;
use crate::state::PodState;
use crate::topology::{Datastore, Encap, Pod};
use crate::wire;
use anyhow::{Context as _, Result, anyhow, bail};
use api::words;
use api::{Object, ProfileSpec, WorkloadEndpointSpec};
use client::Client;
use model::names::WorkloadEndpointIdentifiers;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How often an ADD is attempted.
const ATTEMPTS: usize = 3;

/// Adds pods concurrently: all of them, or none.
///
/// # Errors
/// The error of the plugin.
pub(crate) fn add(lab: &mut Lab, wanted: &[Pod]) -> Result<()> {
    for pod in wanted {
        if lab.state.pods.contains_key(&pod.full_name()) {
            bail!("pod '{}' already exists", pod.full_name());
        }
    }
    let added = add_all(lab, wanted);
    // If the command that creates the lab is interrupted, the whole lab is removed.
    if added.is_err() && !interrupt::came() {
        // The first error is the one that matters.
        wanted.iter().for_each(|pod| drop(undo(lab, pod)));
        let _ = lab.folder.save(&lab.state);
    }
    added
}

fn add_all(lab: &mut Lab, wanted: &[Pod]) -> Result<()> {
    describe(lab, wanted)?;
    let mut prepared = Vec::new();
    for pod in wanted {
        let netns = lab.keeper.namespace(&namespace_name(pod))?;
        wire::prepare_pod(&netns)?;
        prepared.push((pod.clone(), netns));
    }
    let lab_now = &*lab;
    let attached: Vec<Result<PodState>> = std::thread::scope(|scope| {
        let threads: Vec<_> = prepared
            .into_iter()
            .map(|(pod, netns)| scope.spawn(move || attach(lab_now, pod, netns)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a thread failed"))))
            .collect()
    });
    let mut failure = None;
    let mut added = Vec::new();
    for outcome in attached {
        match outcome {
            Ok(state) => {
                lab.state.pods.insert(state.pod.full_name(), state.clone());
                added.push(state);
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    lab.folder.save(&lab.state)?;
    if let Some(error) = failure {
        return Err(error);
    }
    if lab.state.topology.datastore != Datastore::Kubernetes {
        label(lab, &added)?;
    }
    for pod in &added {
        start_responder(lab, pod)?;
        route(lab, pod, true)?;
    }
    if lab.state.topology.datastore == Datastore::Kubernetes {
        report(lab, &added)?;
    }
    Ok(())
}

/// Reports to Kubernetes that pods are running, as a kubelet does: without this `kubectl` shows them as pending.
fn report(lab: &Lab, pods: &[PodState]) -> Result<()> {
    let node_address = |pod: &PodState| {
        let node = lab.state.topology.node(&pod.pod.node)?;
        node.v4.or(node.v6).map(|address| address.addr())
    };
    let items: Vec<Value> =
        pods.iter().map(|pod| settings::pod_status(&pod.pod, &pod.addresses, node_address(pod))).collect();
    lab.report_status(&items)
}

/// Undoes everything that was done for a pod.
fn undo(lab: &mut Lab, pod: &Pod) -> Result<()> {
    if let Some(state) = lab.state.pods.remove(&pod.full_name()) {
        // Each part may not have been done yet.
        let _ = call(lab, "DEL", &state.pod, &state.container, &state.netns);
        let _ = route(lab, &state, false);
    }
    forget(lab, pod)
}

/// Removes what is left of a pod after the plugin's DEL.
fn forget(lab: &Lab, pod: &Pod) -> Result<()> {
    lab.keeper.ask(&Request::Stop { name: responder_name(pod) })?;
    lab.keeper.ask(&Request::Forget { name: namespace_name(pod) })?;
    if lab.state.topology.datastore == Datastore::Kubernetes {
        let words = ["delete", "pod", "-n", &pod.namespace, &pod.name, "--force", "--grace-period=0"];
        lab.kubectl(&words, None)?;
    }
    Ok(())
}

/// Removes a pod.
///
/// # Errors
/// When there is no such pod, or the plugin fails.
pub(crate) fn remove(lab: &mut Lab, name: &str) -> Result<()> {
    let pod = match lab.state.pods.get(name) {
        Some(pod) => pod.clone(),
        None => {
            let there: Vec<&str> = lab.state.pods.keys().map(String::as_str).collect();
            bail!("no pod '{name}' in this lab; it has: {}", there.join(", "))
        }
    };
    call(lab, "DEL", &pod.pod, &pod.container, &pod.netns)?;
    route(lab, &pod, false)?;
    forget(lab, &pod.pod)?;
    lab.state.pods.remove(name);
    lab.folder.save(&lab.state)
}

fn namespace_name(pod: &Pod) -> String {
    format!("pod/{}", pod.full_name())
}

fn responder_name(pod: &Pod) -> String {
    format!("pod/{}", pod.full_name())
}

/// Creates pods and their namespaces in the datastore before they are wired.
fn describe(lab: &Lab, pods: &[Pod]) -> Result<()> {
    let namespaces: BTreeSet<String> = pods.iter().map(|pod| pod.namespace.clone()).collect();
    if lab.state.topology.datastore == Datastore::Kubernetes {
        let mut objects: Vec<Value> = namespaces
            .iter()
            .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
            .collect();
        objects.extend(namespaces.iter().map(|name| {
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}})
        }));
        objects.extend(pods.iter().map(settings::pod_object));
        return lab.kubectl_apply(&objects);
    }
    lab.with_client(async move |client: &Client| {
        for namespace in &namespaces {
            for (name, spec) in profiles(namespace)? {
                let mut profile: Object<ProfileSpec> = Object { spec, ..Object::default() };
                profile.metadata.name = name;
                match client.resource::<ProfileSpec>().create(profile).await {
                    Err(client::Error::AlreadyExists { .. }) | Ok(_) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    })
}

/// The profiles that kube-controllers would create for a namespace and its default service account.
fn profiles(namespace: &str) -> Result<Vec<(String, ProfileSpec)>> {
    let all = json!([{"action": "Allow"}]);
    let of_namespace = json!({
        "ingress": all, "egress": all,
        "labelsToApply": {
            "pcns.kubernetes.io/metadata.name": namespace, "pcns.projectcalico.org/name": namespace,
        },
    });
    let of_account = json!({"labelsToApply": {"pcsa.projectcalico.org/name": "default"}});
    Ok(vec![
        (format!("{}{namespace}", words::NAMESPACE_PROFILE_PREFIX), serde_json::from_value(of_namespace)?),
        (
            format!("{}{namespace}.default", words::SERVICE_ACCOUNT_PROFILE_PREFIX),
            serde_json::from_value(of_account)?,
        ),
    ])
}

fn attach(lab: &Lab, pod: Pod, netns: PathBuf) -> Result<PodState> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let container = format!("{}-{}-{:x}", pod.namespace, pod.name, since.as_nanos());
    // A kubelet retries, too: an API server that has just begun to serve a kind rejects the first requests.
    let mut attempt = 1;
    let told = loop {
        match call(lab, "ADD", &pod, &container, &netns) {
            Err(_) if attempt < ATTEMPTS && !interrupt::came() => attempt += 1,
            outcome => break outcome?,
        }
        std::thread::sleep(Duration::from_secs(1));
    };
    let result: Value = serde_json::from_str(&told).context("reading the plugin's result")?;
    let addresses: Vec<IpAddr> = result["ips"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|ip| ip["address"].as_str()?.parse::<ipnet::IpNet>().ok())
        .map(|network| network.addr())
        .collect();
    if addresses.is_empty() {
        bail!("the plugin gave {} no address: {told}", pod.full_name());
    }
    Ok(PodState { pod, container, addresses, netns })
}

/// Calls the plugin on the pod's node.
fn call(lab: &Lab, command: &str, pod: &Pod, container: &str, netns: &std::path::Path) -> Result<String> {
    let mut variables = settings::cni(command, pod, container, &netns.display().to_string());
    if lab.state.topology.datastore == Datastore::Kubernetes {
        // The plugin must not use the administrator's rights, which the lab's own commands have.
        let (login, _, _) = accounts::login(accounts::PLUGIN);
        variables.insert("KUBECONFIG".to_owned(), lab.folder.file(&login).display().to_string());
    }
    let conf = settings::network(&lab.folder, &lab.state.topology, &pod.node);
    // A conflist that was put on the node applies, as with a container runtime.
    let conf = std::fs::read_to_string(lab.node_file(&pod.node, CONFLIST))
        .ok()
        .and_then(|text| plugin_of(&text))
        .unwrap_or(conf);
    let output = lab.run_in(&pod.node, &[&node_program()], &variables, &conf.to_string())?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error: Value = serde_json::from_str(&told).unwrap_or_default();
        let message = [&error["msg"], &error["details"]]
            .iter()
            .filter_map(|text| text.as_str())
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(": ");
        let message = if message.is_empty() {
            format!("{told}{}", String::from_utf8_lossy(&output.stderr)).trim().to_owned()
        } else {
            message
        };
        bail!("the CNI plugin refused {command} for {}: {message}", pod.full_name());
    }
    Ok(told)
}

/// The path of a node's own network configuration, as seen by its container.
pub(crate) const CONFLIST: &str = "/host/etc/cni/net.d/10-calico.conflist";

/// The configuration of the first plugin of a list, completed like a runtime does.
fn plugin_of(text: &str) -> Option<Value> {
    let list: Value = serde_json::from_str(text).ok()?;
    let mut plugin = list["plugins"].as_array()?.first()?.clone();
    let fields = plugin.as_object_mut()?;
    fields.insert("name".to_owned(), list["name"].clone());
    fields.insert("cniVersion".to_owned(), list["cniVersion"].clone());
    Some(plugin)
}

/// Writes what the plugin could not know: labels and profiles.
fn label(lab: &Lab, pods: &[PodState]) -> Result<()> {
    let pods = pods.to_vec();
    lab.with_client(async move |client: &Client| {
        for state in &pods {
            let pod = &state.pod;
            let identifiers = WorkloadEndpointIdentifiers {
                node: pod.node.clone(),
                orchestrator: words::KUBERNETES.to_owned(),
                endpoint: "eth0".to_owned(),
                pod: pod.name.clone(),
                ..WorkloadEndpointIdentifiers::default()
            };
            let name = identifiers.name().map_err(|error| anyhow!("{}: {error}", pod.full_name()))?;
            let change = |endpoint: &mut Object<WorkloadEndpointSpec>| {
                let labels: BTreeMap<String, String> = pod.labels.clone();
                endpoint.metadata.labels.extend(labels);
                let account = words::LABEL_SERVICE_ACCOUNT.to_owned();
                endpoint.metadata.labels.insert(account, "default".to_owned());
                endpoint.spec.service_account_name = "default".to_owned();
                endpoint.spec.profiles = vec![
                    format!("{}{}", words::NAMESPACE_PROFILE_PREFIX, pod.namespace),
                    format!("{}{}.default", words::SERVICE_ACCOUNT_PROFILE_PREFIX, pod.namespace),
                ];
                true
            };
            let endpoints = client.resource::<WorkloadEndpointSpec>();
            endpoints
                .update_with_retry(&pod.namespace, &name, change)
                .await
                .with_context(|| format!("labelling the endpoint of {}", pod.full_name()))?;
        }
        Ok(())
    })
}

fn start_responder(lab: &Lab, pod: &PodState) -> Result<()> {
    let place = lab.place(&pod.pod.full_name())?;
    let name = pod.pod.full_name();
    let ports: Vec<String> = pod.pod.ports.iter().map(ToString::to_string).collect();
    let ports = ports.join(",");
    let words = [OWN_PROGRAM, "lab", "internal", "responder", "--name", &name, "--ports", &ports];
    lab.keeper.ask(&Request::Start {
        name: responder_name(&pod.pod),
        words: place.words(lab.keeper_pid(), &words),
        environment: lab.environment(),
    })?;
    Ok(())
}

/// Without encapsulation, the network between the subnets needs routes to pods.
fn route(lab: &Lab, pod: &PodState, is_there: bool) -> Result<()> {
    let topology = &lab.state.topology;
    let node = topology.node(&pod.pod.node).context("the pod's node is gone")?;
    // If there are BGP speakers, the network learns the routes from them.
    if topology.encap != Encap::None || topology.bgp.is_spoken() {
        return Ok(());
    }
    wire::route_pod(&lab.place(ROUTER)?.netns, node, &pod.addresses, is_there)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_list_becomes_its_first_plugin() {
        let text =
            r#"{"name":"gke-pod-network","cniVersion":"0.3.1","plugins":[{"type":"calico","mtu":1460}]}"#;
        let conf = super::plugin_of(text).unwrap();
        assert_eq!((&conf["name"], &conf["mtu"]), (&"gke-pod-network".into(), &1460.into()));
        assert!(super::plugin_of("{}").is_none());
    }
}
