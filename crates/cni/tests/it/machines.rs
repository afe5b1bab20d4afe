//! Pods that run virtual machines, on a real kube-apiserver with KubeVirt's kinds: a machine keeps its address from pod to
//! pod until it is deleted.

use crate::kubernetes::{World, apply, pod_object};
use crate::world::{Pod, address_of, merge, refusal, told};
use anyhow::{Context as _, Result, ensure};
use ipam::Ipam;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const KINDS: [(&str, &str); 2] =
    [("VirtualMachine", "virtualmachines"), ("VirtualMachineInstance", "virtualmachineinstances")];

/// Installs KubeVirt's kinds, without their schemas.
pub(crate) fn install(world: &World) -> Result<()> {
    for (kind, plural) in KINDS {
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        apply(
            &world.api,
            &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.kubevirt.io")},
                "spec": {"group": "kubevirt.io", "scope": "Namespaced",
                    "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}}),
        )?;
        let name = format!("crd/{plural}.kubevirt.io");
        world.kubectl(&["wait", "--for", "condition=established", "--timeout=60s", &name])?;
    }
    Ok(())
}

/// Creates an object of KubeVirt's that a finalizer keeps while it is being deleted; returns its uid.
pub(crate) fn machine(world: &World, kind: &str, name: &str, owner: Option<(&str, &str)>) -> Result<String> {
    let mut object = json!({"apiVersion": "kubevirt.io/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "finalizers": ["example.org/keep"]}});
    if let Some((owner_kind, uid)) = owner {
        object["metadata"]["ownerReferences"] = json!([reference(owner_kind, name, uid)]);
    }
    apply(&world.api, &object)?;
    let path = "jsonpath={.metadata.uid}";
    world.kubectl(&["get", &format!("{}.kubevirt.io", kind.to_lowercase()), "-n", "shop", name, "-o", path])
}

fn reference(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "kubevirt.io/v1", "kind": kind, "name": name, "uid": uid, "controller": true,
        "blockOwnerDeletion": true})
}

/// The pod that runs an instance.
pub(crate) fn launcher(
    world: &World,
    name: &str,
    container: &str,
    instance: (&str, &str),
    migration: &str,
) -> Result<Pod> {
    let mut object = pod_object(name, &json!({}));
    object["metadata"]["ownerReferences"] =
        json!([reference("VirtualMachineInstance", instance.0, instance.1)]);
    if !migration.is_empty() {
        merge(&mut object, json!({"metadata": {"labels": {"kubevirt.io/migrationJobUID": migration}}}));
    }
    apply(&world.api, &object)?;
    Pod::of_kubernetes(container, "shop", name)
}

/// The recorded owners of an address: active and alternate.
async fn owners(
    world: &World,
    address: &str,
) -> Result<(BTreeMap<String, String>, BTreeMap<String, String>)> {
    let ipam = Ipam::new(world.client.backend().clone());
    let record = ipam.allocation(address.parse()?).await?.context("the address is free")?;
    Ok((record.active_owner_attrs, record.alternate_owner_attrs))
}

fn text<'a>(attributes: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    attributes.get(name).map_or("", String::as_str)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_keeps_its_address_from_pod_to_pod() -> Result<()> {
    let world = World::start().await?;
    install(&world)?;
    let node = &world.node;
    let vm = machine(&world, "VirtualMachine", "vm1", None)?;
    let instance = machine(&world, "VirtualMachineInstance", "vm1", Some(("VirtualMachine", &vm)))?;
    let source = launcher(&world, "virt-launcher-vm1-a", "va", ("vm1", &instance), "")?;
    let address = address_of(&node.add(&source, json!({}))?)?;
    let (active, alternate) = owners(&world, &address).await?;
    assert_eq!((text(&active, "pod"), text(&active, "vmi-name")), ("virt-launcher-vm1-a", "vm1"));
    assert_eq!((text(&active, "vm-uid"), text(&active, "vmi-uid")), (vm.as_str(), instance.as_str()));
    assert!(alternate.is_empty(), "{alternate:?}");
    let handles = world.kubectl(&["get", "ipamhandles.crd.projectcalico.org", "-o", "name"])?;
    ensure!(handles.trim().ends_with("/k8s-pod-network.vmi.shop.vm1"), "{handles}");
    // A repeated call gets the same address.
    assert_eq!(address_of(&node.add(&source, json!({}))?)?, address);

    // It moves: the target has the address inside, and the host keeps the route to the source.
    let before = node.host.ip(&["route", "show", &format!("{address}/32")])?;
    let target = launcher(&world, "virt-launcher-vm1-b", "vb", ("vm1", &instance), "move-1")?;
    assert_eq!(address_of(&node.add(&target, json!({}))?)?, address);
    ensure!(target.netns.ip(&["addr", "show", "eth0"])?.contains(&address), "the target has no address");
    assert_eq!(node.host.ip(&["route", "show", &format!("{address}/32")])?, before);
    let (active, alternate) = owners(&world, &address).await?;
    assert_eq!(text(&active, "pod"), "virt-launcher-vm1-a");
    assert_eq!((text(&alternate, "pod"), text(&alternate, "vmim-uid")), ("virt-launcher-vm1-b", "move-1"));

    // The move failed: only the record of the target is removed.
    node.del(&target, json!({}))?;
    let (active, alternate) = owners(&world, &address).await?;
    assert!(
        alternate.is_empty() && text(&active, "pod") == "virt-launcher-vm1-a",
        "{active:?} {alternate:?}"
    );
    // The machine stops and starts again in another pod.
    node.del(&source, json!({}))?;
    let (active, alternate) = owners(&world, &address).await?;
    assert!(active.is_empty() && alternate.is_empty(), "{active:?} {alternate:?}");
    let again = launcher(&world, "virt-launcher-vm1-c", "vc", ("vm1", &instance), "")?;
    assert_eq!(address_of(&node.add(&again, json!({}))?)?, address);
    ensure!(node.host.ip(&["route"])?.contains(&address), "no route to the machine");
    // A late DEL of the first pod does not touch what the third pod has.
    node.del(&source, json!({}))?;
    assert_eq!(text(&owners(&world, &address).await?.0, "pod"), "virt-launcher-vm1-c");

    // The address is released only with the machine.
    world.kubectl(&["delete", "virtualmachines.kubevirt.io", "-n", "shop", "vm1", "--wait=false"])?;
    node.del(&again, json!({}))?;
    world.assert_bare().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_with_contradictions_alone_or_without_kept_addresses() -> Result<()> {
    let world = World::start().await?;
    install(&world)?;
    let node = &world.node;
    // An instance without a machine: its own deletion counts.
    let alone = machine(&world, "VirtualMachineInstance", "alone", None)?;
    let pod = launcher(&world, "virt-launcher-alone-a", "la", ("alone", &alone), "")?;
    let address = address_of(&node.add(&pod, json!({}))?)?;
    world.kubectl(&[
        "delete",
        "virtualmachineinstances.kubevirt.io",
        "-n",
        "shop",
        "alone",
        "--wait=false",
    ])?;
    node.del(&pod, json!({}))?;
    world.assert_bare().await?;
    // A pod that names a different instance than exists, and a move of a machine that has no address yet.
    let liar =
        launcher(&world, "virt-launcher-liar", "lb", ("alone", "00000000-0000-0000-0000-000000000000"), "")?;
    let output = node.call(&liar.call("ADD"), &node.configuration(json!({})))?;
    let (_, message) = refusal(&output)?;
    ensure!(message.starts_with("failed to get VMI info: VMI UID mismatch"), "{}", told(&output));
    let early = launcher(&world, "virt-launcher-early", "lc", ("alone", &alone), "move-2")?;
    let (code, message) = refusal(&node.call(&early.call("ADD"), &node.configuration(json!({})))?)?;
    assert_eq!(code, 103);
    assert_eq!(
        message,
        "migration target pod but no IP allocated to VM handle k8s-pod-network.vmi.shop.alone"
    );
    // A name that looks like one of KubeVirt's is not enough.
    let plain = world.pod("virt-launcher-not-really", "ld", &json!({}))?;
    node.add(&plain, json!({}))?;
    node.del(&plain, json!({}))?;
    // A DEL after the pod is gone from the API has nothing to do.
    world.kubectl(&[
        "delete",
        "pod",
        "-n",
        "shop",
        "virt-launcher-not-really",
        "--force",
        "--grace-period=0",
    ])?;
    node.del(&plain, json!({}))?;

    // Where machines do not keep addresses, the pod is treated like any other, and no machine can move.
    let settings: api::IPAMConfiguration = serde_json::from_value(json!({"metadata": {"name": "default"},
        "spec": {"autoAllocateBlocks": true, "strictAffinity": false, "kubeVirtVMAddressPersistence": "Disabled"}}))?;
    world.client.resource::<api::IPAMConfigurationSpec>().create(settings).await?;
    let pod = launcher(&world, "virt-launcher-alone-b", "le", ("alone", &alone), "")?;
    let other = address_of(&node.add(&pod, json!({}))?)?;
    ensure!(!other.is_empty() && !address.is_empty(), "no addresses");
    let handles = world.kubectl(&["get", "ipamhandles.crd.projectcalico.org", "-o", "name"])?;
    ensure!(handles.contains("k8s-pod-network.le") && !handles.contains("vmi"), "{handles}");
    let (code, message) = refusal(&node.call(&early.call("ADD"), &node.configuration(json!({})))?)?;
    ensure!(
        code == 103 && message.starts_with("live migration target pod is not allowed"),
        "{code} {message}"
    );
    node.del(&pod, json!({}))?;
    node.del(&early, json!({}))?;
    world.assert_bare().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_are_gone_before_their_del() -> Result<()> {
    let world = World::start().await?;
    install(&world)?;
    let node = &world.node;
    let delete =
        |name: &str| world.kubectl(&["delete", "pod", "-n", "shop", name, "--force", "--grace-period=0"]);
    // It ran no machine, whatever its name: its address is released.
    let plain = world.pod("virt-launcher-not-really", "pa", &json!({}))?;
    node.add(&plain, json!({}))?;
    delete("virt-launcher-not-really")?;
    node.del(&plain, json!({}))?;
    world.assert_bare().await?;
    // It ran a machine: the machine keeps the address, and this pod is no longer recorded as an owner.
    let vm = machine(&world, "VirtualMachine", "vm1", None)?;
    let instance = machine(&world, "VirtualMachineInstance", "vm1", Some(("VirtualMachine", &vm)))?;
    let pod = launcher(&world, "virt-launcher-vm1-a", "va", ("vm1", &instance), "")?;
    let address = address_of(&node.add(&pod, json!({}))?)?;
    delete("virt-launcher-vm1-a")?;
    node.del(&pod, json!({}))?;
    let (active, alternate) = owners(&world, &address).await?;
    assert!(active.is_empty() && alternate.is_empty(), "{active:?} {alternate:?}");
    let again = launcher(&world, "virt-launcher-vm1-b", "vb", ("vm1", &instance), "")?;
    assert_eq!(address_of(&node.add(&again, json!({}))?)?, address);
    world.kubectl(&["delete", "virtualmachines.kubevirt.io", "-n", "shop", "vm1", "--wait=false"])?;
    node.del(&again, json!({}))?;
    world.assert_bare().await
}
