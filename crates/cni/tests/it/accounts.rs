//! The agent and the plugin with exactly the rights that Calico's manifests grant their accounts, on a real
//! kube-apiserver: pods through the agent, and virtual machines, which only the plugin's account may read.

use crate::agent::Agent;
use crate::kubernetes::{World, apply};
use crate::machines::{install, launcher, machine};
use crate::world::{address_of, answer, told};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const NAMESPACE: &str = "kube-system";

/// Creates an account with its role, and its kubeconfig.
fn account(world: &World, name: &str) -> Result<PathBuf> {
    let roles: Value = serde_json::from_str(include_str!("../data/accounts.json"))?;
    let rules = roles.get(name).context("no such role")?;
    let group = "rbac.authorization.k8s.io";
    let subject = json!([{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}]);
    for object in [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name}, "subjects": subject}),
    ] {
        apply(&world.api, &object)?;
    }
    let token = world.kubectl(&["create", "token", name, "-n", NAMESPACE])?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": world.api.endpoint(),
            "certificate-authority": world.api.ca_certificate()}}],
        "users": [{"name": "u", "user": {"token": token.trim()}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    });
    let file = world.node.root().join(format!("{name}.kubeconfig"));
    std::fs::write(&file, kubeconfig.to_string())?;
    Ok(file)
}

/// The agent as calico-node runs it: with its own account, and without the plugin's files.
fn agent(world: &World, own: &Path) -> Result<Agent> {
    let own = own.display().to_string();
    let variables = [("DATASTORE_TYPE", "kubernetes"), ("KUBECONFIG", own.as_str())];
    Agent::start(&world.node, &variables)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_and_machines_with_the_two_accounts_of_the_manifests() -> Result<()> {
    let mut world = World::start().await?;
    install(&world)?;
    let (own, plugins) = (account(&world, "calico-node")?, account(&world, "calico-cni-plugin")?);
    world.node.settings["kubernetes"]["kubeconfig"] = json!(plugins);
    let agent = agent(&world, &own)?;
    let node = &world.node;

    // The agent serves pods: the plugin needs no usable kubeconfig.
    let useless = json!({"kubernetes": {"kubeconfig": world.api.kubeconfig_without_rights()}});
    let pod = world.pod("web", "w1", &json!({}))?;
    node.add(&pod, useless.clone())?;
    node.del(&pod, useless)?;
    // Without an agent the plugin's own account is used.
    let alone = json!({"agent_socket": "none"});
    node.add(&pod, alone.clone())?;
    node.del(&pod, alone)?;
    world.assert_bare().await?;

    // Virtual machines are left to the plugin.
    let vm = machine(&world, "VirtualMachine", "vm1", None)?;
    let instance = machine(&world, "VirtualMachineInstance", "vm1", Some(("VirtualMachine", &vm)))?;
    let runs = launcher(&world, "virt-launcher-vm1-a", "va", ("vm1", &instance), "")?;
    let output = node.call(&runs.call("ADD"), &node.configuration(json!({})))?;
    let address = address_of(&answer(&output)?)?;
    ensure!(told(&output).contains("only the plugin's account may read"), "{}", told(&output));
    node.del(&runs, json!({}))?;
    // The machine keeps its address for its next pod.
    let again = launcher(&world, "virt-launcher-vm1-b", "vb", ("vm1", &instance), "")?;
    assert_eq!(address_of(&node.add(&again, json!({}))?)?, address);
    world.kubectl(&["delete", "virtualmachines.kubevirt.io", "-n", "shop", "vm1", "--wait=false"])?;
    node.del(&again, json!({}))?;
    agent.kill()?;
    world.assert_bare().await
}

/// In Calico's policy-only manifest the plugin's account may not even read ClusterInformation; addresses are
/// host-local's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_with_the_account_of_the_policy_only_manifest() -> Result<()> {
    let mut world = World::start().await?;
    let rules = [
        json!({"apiGroups": [""], "resources": ["pods", "nodes", "namespaces"], "verbs": ["get"]}),
        json!({"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}),
    ];
    world.node.settings["kubernetes"]["kubeconfig"] = json!(world.api.account("policy-only", &rules)?);
    let data = world.node.root().join("host-local");
    let local = json!({
        "agent_socket": "none",
        "ipam": {"type": "host-local", "subnet": "10.99.0.0/24", "dataDir": data},
    });
    let pod = world.pod("web", "w1", &json!({}))?;
    let address = address_of(&world.node.add(&pod, local.clone())?)?;
    ensure!(address.to_string().starts_with("10.99.0."), "{address}");
    world.node.del(&pod, local)?;
    world.assert_bare().await
}
