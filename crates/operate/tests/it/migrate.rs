//! Replaces a Calico of v3.29 with Tortie, node by node, and back.

use crate::controllers::Controllers;
use crate::{World, told};
use anyhow::Result;
use manifests::{Like, Options};
use operate::for_tests::{
    PREVIOUS_IMAGES, PREVIOUS_STRATEGY, Plan, Request, Target, gather_migration, plan, run_migration,
};
use serde_json::{Value, json};
use std::time::Duration;

const NODES: [&str; 3] = ["n1", "n2", "n3"];

fn request(nodes: &[&str], is_back: bool) -> Request {
    Request {
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        is_back,
        registry: "registry.example.org/tortie".into(),
        tag: "v1".into(),
        force: false,
    }
}

/// The objects of Calico's calico-typha.yaml of v3.29, with the same names as ours.
fn calico(world: &World) -> Result<()> {
    for node in NODES {
        world.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}))?;
    }
    let options = Options::new(Like::CalicoTypha, "quay.io/calico", "v3.29.1");
    let text = manifests::to_yaml("", &manifests::all(&options));
    world.api_server.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &text)?;
    Ok(())
}

async fn planned(target: &Target, request: &Request) -> Result<Plan> {
    Ok(plan(&gather_migration(target).await?, request))
}

async fn carry_out(target: &Target, request: &Request) -> Result<String> {
    let plan = planned(target, request).await?;
    anyhow::ensure!(plan.refusals.is_empty(), "{:?}", plan.refusals);
    let mut out = Vec::new();
    run_migration(target, &plan, Duration::from_secs(60), &mut out).await?;
    Ok(told(&out))
}

fn images(world: &World) -> Result<Vec<(String, String)>> {
    let pods = world.json(&["get", "pods", "-n", "kube-system", "-l", "k8s-app=calico-node"])?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut images: Vec<(String, String)> = pods["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|pod| (text(&pod["spec"]["nodeName"]), text(&pod["spec"]["containers"][0]["image"])))
        .collect();
    images.sort();
    Ok(images)
}

fn on_all(image: &str) -> Vec<(String, String)> {
    NODES.iter().map(|node| ((*node).to_owned(), image.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_by_node_and_back() -> Result<()> {
    let world = World::start()?;
    calico(&world)?;
    let target = world.target().await?;
    let controllers = Controllers::start(&world, &NODES).await?;
    let (theirs, ours) = ("quay.io/calico/node:v3.29.1", "registry.example.org/tortie/node:v1");
    testkit::eventually_async("Calico runs on every node", async || {
        Ok::<_, anyhow::Error>(
            planned(&target, &request(&[], false)).await?.refusals.is_empty()
                && images(&world)? == on_all(theirs),
        )
    })
    .await?;
    let before = world.json(&["get", "daemonset", "calico-node", "-n", "kube-system"])?;

    // One node: the others stay, and are not updated automatically.
    let said = carry_out(&target, &request(&["n2"], false)).await?;
    assert!(said.contains("node n2: replace"), "{said}");
    let mixed = [("n1", theirs), ("n2", ours), ("n3", theirs)]
        .map(|(node, image)| (node.to_owned(), image.to_owned()));
    assert_eq!(images(&world)?, mixed);
    let typha = world.json(&["get", "deployment", "calico-typha", "-n", "kube-system"])?;
    assert_eq!(typha["spec"]["template"]["spec"]["containers"][0]["image"], "quay.io/calico/typha:v3.29.1");

    // A node whose pod does not become ready ends the migration.
    *controllers.broken.lock().unwrap() = Some("n1".into());
    let plan = planned(&target, &request(&[], false)).await?;
    let mut out = Vec::new();
    let failed =
        format!("{:#}", run_migration(&target, &plan, Duration::from_secs(2), &mut out).await.unwrap_err());
    assert!(failed.contains("node n1 has no ready pod after 2 s") && failed.contains("--back"), "{failed}");
    assert_eq!(images(&world)?[2].1, theirs, "n3 was not touched");
    *controllers.broken.lock().unwrap() = None;
    testkit::eventually_async("n1 is well again", async || {
        Ok::<_, anyhow::Error>(planned(&target, &request(&[], false)).await?.refusals.is_empty())
    })
    .await?;

    // The same command continues; then everything is ours, and updates roll as before.
    carry_out(&target, &request(&[], false)).await?;
    assert_eq!(images(&world)?, on_all(ours));
    let set = world.json(&["get", "daemonset", "calico-node", "-n", "kube-system"])?;
    assert_eq!(set["spec"]["updateStrategy"], before["spec"]["updateStrategy"]);
    assert!(set["metadata"]["annotations"][PREVIOUS_STRATEGY].is_null());
    assert!(set["metadata"]["annotations"][PREVIOUS_IMAGES].as_str().unwrap().contains(theirs));
    let variables = set["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let mode = variables.iter().find(|variable| variable["name"] == "FELIX_NFTABLESMODE").unwrap();
    assert_eq!(mode["value"], "Disabled", "Calico v3.29 filters with iptables");
    let typha = world.json(&["get", "deployment", "calico-typha", "-n", "kube-system"])?;
    assert_eq!(
        typha["spec"]["template"]["spec"]["containers"][0]["image"],
        "registry.example.org/tortie/typha:v1"
    );

    // And back to the original images.
    carry_out(&target, &request(&[], true)).await?;
    assert_eq!(images(&world)?, on_all(theirs));
    let after = world.json(&["get", "daemonset", "calico-node", "-n", "kube-system"])?;
    for place in ["/spec/updateStrategy", "/spec/template/spec/initContainers"] {
        assert_eq!(before.pointer(place), after.pointer(place), "{place}");
    }
    assert!(after["metadata"]["annotations"][PREVIOUS_IMAGES].is_null());
    let order: Vec<String> =
        controllers.made.lock().unwrap().iter().skip(3).map(|(node, _)| node.clone()).collect();
    assert_eq!(order, ["n2", "n1", "n3", "n1", "n2", "n3"], "one pod after the other");
    Ok(())
}
