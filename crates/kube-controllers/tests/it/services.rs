//! Addresses for services.

use crate::stage::{Stage, Store, eventually};
use anyhow::{Context as _, Result, ensure};
use api::AssignIPs;
use kube_controllers::for_tests::LoadBalancer;
use serde_json::{Value, json};
use std::net::IpAddr;

const SERVICES: &str = "/api/v1/namespaces/shop/services";

async fn create(stage: &Stage, name: &str, annotations: &Value, spec: &Value) -> Result<()> {
    let mut service = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    stage.create(SERVICES, &service).await.map(drop)
}

async fn ingress(stage: &Stage, name: &str) -> Result<Vec<String>> {
    let service = stage.get(&format!("{SERVICES}/{name}")).await?.context("the service")?;
    let list = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    Ok(list.iter().filter_map(|entry| entry["ip"].as_str().map(str::to_owned)).collect())
}

async fn until_in(stage: &Stage, name: &str, prefix: &str) -> Result<IpAddr> {
    let what = format!("service {name} has an address in {prefix}");
    eventually(&what, || async {
        let addresses = ingress(stage, name).await?;
        Ok(addresses.len() == 1 && addresses[0].starts_with(prefix))
    })
    .await?;
    Ok(ingress(stage, name).await?.first().context("an address")?.parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_get_addresses_and_release_them() -> Result<()> {
    let stage = Stage::start(Store::Kubernetes).await?;
    stage.namespace("shop").await?;
    create(&stage, "early", &json!({}), &json!({})).await?;
    let context = stage.context();
    let controller = LoadBalancer::new(&context, AssignIPs::AllServices);
    let running = stage.run(&context, vec![Box::new(controller)]);

    // A waiting service gets its address when a pool is created.
    let uses = json!(["LoadBalancer"]);
    stage.pool("auto", json!({"cidr": "10.90.0.0/28", "blockSize": 28, "allowedUses": uses})).await?;
    let early = until_in(&stage, "early", "10.90.0.").await?;
    let attribute = stage.ipam.allocation(early).await?.context("an allocation")?;
    ensure!(attribute.handle_id.as_deref().is_some_and(|handle| handle.starts_with("lb-")), "{attribute:?}");
    let owner = &attribute.active_owner_attrs;
    ensure!(owner.get("service").is_some_and(|name| name == "early"), "{attribute:?}");
    ensure!(owner.get("type").is_some_and(|kind| kind == "LoadBalancer"), "{attribute:?}");

    // A pool that is only used on request, a service that requests it, and one that requests an address.
    stage
        .pool(
            "manual",
            json!({"cidr": "10.91.0.0/28", "blockSize": 28, "allowedUses": uses, "assignmentMode": "Manual"}),
        )
        .await?;
    create(&stage, "asks", &json!({"projectcalico.org/ipv4pools": "[\"manual\"]"}), &json!({})).await?;
    until_in(&stage, "asks", "10.91.0.").await?;
    create(&stage, "names", &json!({"projectcalico.org/loadBalancerIPs": "[\"10.91.0.9\"]"}), &json!({}))
        .await?;
    until_in(&stage, "names", "10.91.0.9").await?;
    create(&stage, "other", &json!({}), &json!({"loadBalancerClass": "other.example/class"})).await?;

    // The request changes.
    let path = format!("{SERVICES}/names");
    let wish =
        json!({"metadata": {"annotations": {"projectcalico.org/loadBalancerIPs": "[\"10.91.0.10\"]"}}});
    stage.patch(&path, &wish).await?;
    until_in(&stage, "names", "10.91.0.10").await?;
    ensure!(!stage.is_taken("10.91.0.9".parse()?).await?);

    // The status is overwritten by someone else, and corrected.
    let wrong = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    stage.patch(&format!("{SERVICES}/early/status"), &wrong).await?;
    until_in(&stage, "early", "10.90.0.").await?;
    ensure!(ingress(&stage, "other").await?.is_empty());

    // Deleted, also while the controllers are stopped; the name is used again at once.
    stage.delete(&path).await?;
    eventually("the address of a deleted service", || async {
        Ok(!stage.is_taken("10.91.0.10".parse()?).await?)
    })
    .await?;
    running.stop().await;
    stage.delete(&format!("{SERVICES}/early")).await?;
    create(&stage, "early", &json!({}), &json!({})).await?;
    let context = stage.context();
    let controller = LoadBalancer::new(&context, AssignIPs::AllServices);
    let running = stage.run(&context, vec![Box::new(controller)]);
    until_in(&stage, "early", "10.90.0.").await?;
    let fresh = attribute.handle_id.clone().context("a handle")?.into();
    eventually("the handle of the service before", || async {
        Ok(stage.ipam.ips_by_handle(&fresh).await.is_err_and(|error| error.is_does_not_exist()))
    })
    .await?;
    running.stop().await;

    // Only services that request an address: the others lose theirs.
    let context = stage.context();
    let controller = LoadBalancer::new(&context, AssignIPs::RequestedServicesOnly);
    let running = stage.run(&context, vec![Box::new(controller)]);
    eventually("a service that does not ask", || async { Ok(ingress(&stage, "early").await?.is_empty()) })
        .await?;
    until_in(&stage, "asks", "10.91.0.").await?;
    running.stop().await;
    Ok(())
}
