//! kube-controllers with the role of every release, because upgrades swap images but keep manifests. Anything that the
//! role forbids is reported in the status file, and does not affect what the role permits.

use crate::world::{Servers, World, eventually};
use anyhow::{Context as _, Result};
use api::{IPPoolSpec, KubeControllersConfigurationSpec, Object};
use client::DeleteOptions;
use ipam::{AutoAssign, IntendedUse, Ipam};
use kube_controllers::for_tests::{Readiness, check};
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use testkit::roles::{RELEASES, rules};

/// The permissions that the status file reports as missing with the role of each release.
const REFUSED: [(&str, &[&str]); 8] = [
    ("3.26", &["networkpolicies", "virtualmachines", "services", "namespaces", "ipreservations"]),
    ("3.27", &["networkpolicies", "virtualmachines", "services", "namespaces", "ipreservations"]),
    ("3.28", &["networkpolicies", "virtualmachines", "services", "namespaces", "ipreservations"]),
    ("3.29", &["networkpolicies", "virtualmachines", "services", "namespaces", "ipreservations"]),
    ("3.30", &["networkpolicies", "virtualmachines", "namespaces", "ipreservations"]),
    ("3.31", &["networkpolicies", "virtualmachines", "ipreservations"]),
    ("3.32", &[]),
    ("3.33", &[]),
];

/// Takes an address for a pod that never existed, on a node that is being deleted.
async fn leak(world: &World, ipam: &Ipam, release: &str) -> Result<IpAddr> {
    world.create("/api/v1/nodes", &json!({"metadata": {"name": "gone"}})).await?;
    let attributes = [("node", "gone"), ("namespace", "shop"), ("pod", "lost")];
    let request = AutoAssign {
        handle: Some(format!("k8s-pod-network.lost-{release}").into()),
        attributes: attributes.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        num4: 1,
        ..AutoAssign::new("gone", IntendedUse::Workload)
    };
    let address = ipam.auto_assign(&request).await?.addresses().next().context("an address")?;
    world.delete("/api/v1/nodes/gone").await?;
    Ok(address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_roles_hold_back_only_what_they_forbid() -> Result<()> {
    let servers = Servers::start()?;
    let world = World::kubernetes(&servers.api_server).await?;
    world.client.ensure_initialized("v3.32.1", "k8s").await?;
    let pool: IPPoolSpec = serde_json::from_value(json!({"cidr": "10.71.0.0/16", "blockSize": 28}))?;
    world.client.resource::<IPPoolSpec>().create(Object::new("", "pods", pool)).await?;
    let ipam = Ipam::new(Arc::clone(world.client.backend()));
    let configurations = world.client.resource::<KubeControllersConfigurationSpec>();
    assert_eq!(REFUSED.map(|(release, _)| release), RELEASES);
    for (release, refused) in REFUSED {
        let name = format!("controllers-{}", release.replace('.', "-"));
        let rules = rules("calico", "calico-kube-controllers", release)?;
        let kubeconfig = servers.api_server.account(&name, &rules)?;
        let kubeconfig = kubeconfig.to_str().context("a path that is text")?;
        // Like the first start: the settings have to be created.
        match configurations.delete("", "default", &DeleteOptions::default()).await {
            Err(error) if !error.is_does_not_exist() => return Err(error.into()),
            _ => {}
        }
        let running = world.start(&[("KUBECONFIG", kubeconfig)]);
        let leaked = leak(&world, &ipam, release).await?;
        eventually(&format!("{release}: a leaked address is released"), async || {
            Ok(ipam.allocation(leaked).await?.is_none())
        })
        .await?;
        eventually(&format!("{release}: missing permissions are reported: {refused:?}"), async || {
            let file = Readiness::read(&world.status_file())?;
            let reason = file.parts.get("Informers").map(|part| part.reason.clone()).unwrap_or_default();
            anyhow::ensure!(refused.iter().all(|kind| reason.contains(&format!("\"{kind}\""))), "{reason:?}");
            anyhow::ensure!(refused.is_empty() == reason.is_empty(), "{reason:?}");
            Ok(check(&world.status_file()).1)
        })
        .await?;
        running.stop().await?;
    }
    Ok(())
}
