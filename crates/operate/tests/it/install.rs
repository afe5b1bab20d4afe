//! Installing, upgrading and uninstalling.

use crate::{World, told};
use anyhow::Result;
use manifests::{Like, Options};
use operate::for_tests::{How, Mode, Record, Removal, Target, install, uninstall, wait};
use serde_json::json;
use std::time::Duration;

fn how(is_upgrade: bool) -> How {
    How { mode: Mode::default(), wait: None, is_upgrade }
}

fn options(tag: &str, typha: bool) -> Options {
    let mut options = Options::new(Like::CalicoVxlan, "registry.example.org/tortie", tag);
    options.typha = typha;
    options
}

async fn run(target: &Target, options: &Options, how: How) -> Result<String> {
    let mut out = Vec::new();
    let settings = [("typha.enabled".to_owned(), options.typha.to_string())];
    install(target, options, &settings, how, &mut out).await?;
    Ok(told(&out))
}

/// Marks the pods of all workloads as ready.
fn come_up(world: &World) -> Result<()> {
    let generation = |kind: &str, name: &str| -> Result<i64> {
        let object = world.json(&["get", kind, name, "-n", "kube-system"])?;
        Ok(object["metadata"]["generation"].as_i64().unwrap_or_default())
    };
    world.set_status("daemonset", "calico-node", &json!({
        "observedGeneration": generation("daemonset", "calico-node")?, "currentNumberScheduled": 2, "numberMisscheduled": 0,
        "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2,
    }))?;
    world.set_status(
        "deployment",
        "calico-kube-controllers",
        &json!({
            "observedGeneration": generation("deployment", "calico-kube-controllers")?,
            "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        }),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_nothing_to_nothing() -> Result<()> {
    let world = World::start()?;
    let target = world.target().await?;

    // A dry run leaves nothing behind, and continues if a namespace does not exist yet.
    let mut with_server = options("v1", true);
    with_server.set("apiServer.enabled", "true")?;
    with_server.set("apiServer.caBundle", "Y2VydGlmaWNhdGU=")?;
    let said =
        run(&target, &with_server, How { mode: Mode { dry_run: true, force: false }, ..how(false) }).await?;
    assert!(
        said.contains("dry run") && said.contains("created    DaemonSet kube-system/calico-node"),
        "{said}"
    );
    assert!(world.json(&["get", "daemonset", "calico-node", "-n", "kube-system"]).is_err());

    let said = run(&target, &options("v1", true), how(false)).await?;
    assert!(said.contains(" created, 0 changed, 0 unchanged"), "{said}");
    let refused = run(&target, &options("v1", true), how(false)).await.unwrap_err().to_string();
    assert!(refused.contains("tortie upgrade"), "{refused}");

    // No controller has processed anything yet; then everything becomes ready.
    let objects = manifests::objects::without_crds(&options("v1", false));
    let references: Vec<&manifests::Object> = objects.iter().collect();
    let mut out = Vec::new();
    let late = wait(&target, &references, Duration::ZERO, &mut out).await.unwrap_err().to_string();
    assert!(late.contains("no controller has processed it yet"), "{late}");
    come_up(&world)?;
    out.clear();
    wait(&target, &references, Duration::from_secs(60), &mut out).await?;
    assert!(told(&out).contains("calico-node: all 2 nodes ready"), "{}", told(&out));

    // An upgrade changes images, deletes objects that are no longer needed, and updates the record.
    let said = run(&target, &options("v2", false), how(true)).await?;
    for line in [
        "changed    DaemonSet kube-system/calico-node",
        "deleted    Deployment kube-system/calico-typha (this version does not have it)",
        "0 created,",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(world.json(&["get", "deployment", "calico-typha", "-n", "kube-system"]).is_err());
    let set = world.json(&["get", "daemonset", "calico-node", "-n", "kube-system"])?;
    assert_eq!(
        set["spec"]["template"]["spec"]["containers"][0]["image"],
        "registry.example.org/tortie/node:v2"
    );
    let record = Record::read(&target).await?.unwrap();
    assert_eq!((record.tag.as_str(), record.settings[0].1.as_str()), ("v2", "false"));
    let said = run(&target, &options("v2", false), how(true)).await?;
    assert!(said.contains("0 created, 0 changed"), "{said}");

    // With every node ours and ready, the cluster's version is ours, too.
    world.apply(&json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": "ClusterInformation", "metadata": {"name": "default"},
        "spec": {"calicoVersion": "v3.30.0"},
    }))?;
    come_up(&world)?;
    let said =
        run(&target, &options("v2", false), How { wait: Some(Duration::from_secs(60)), ..how(true) }).await?;
    assert!(said.contains("calicoVersion is v3.32.1 now; it was v3.30.0"), "{said}");

    // A field that another manager changed is not taken over without a request.
    let patch = r#"{"spec":{"template":{"spec":{"priorityClassName":"system-cluster-critical"}}}}"#;
    let arguments =
        ["patch", "daemonset", "calico-node", "-n", "kube-system", "--field-manager=somebody", "-p", patch];
    assert!(world.api_server.kubectl(&arguments)?.status.success());
    let refused = format!("{:#}", run(&target, &options("v2", false), how(true)).await.unwrap_err());
    assert!(refused.contains("--force-conflicts") && refused.contains("somebody"), "{refused}");
    run(&target, &options("v2", false), How { mode: Mode { dry_run: false, force: true }, ..how(true) })
        .await?;

    uninstalls(&world, &target).await
}

/// Uninstalling: nothing without confirmation, data only on request, and finalizers hold nothing back.
async fn uninstalls(world: &World, target: &Target) -> Result<()> {
    world.apply(&json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": {"name": "pool", "finalizers": ["example.org/held"]},
        "spec": {"cidr": "10.1.0.0/16"},
    }))?;
    let finalizers = r#"{"metadata":{"finalizers":["tigera.io/cni-protector"]}}"#;
    let arguments =
        ["patch", "serviceaccount", "calico-node", "-n", "kube-system", "--type=merge", "-p", finalizers];
    assert!(world.api_server.kubectl(&arguments)?.status.success());

    let mut out = Vec::new();
    uninstall(target, Removal { dry_run: true, delete_data: true, is_agreed: true }, &mut out).await?;
    assert!(told(&out).contains("ippools.crd.projectcalico.org, with 1 object\n"), "{}", told(&out));
    let refused = uninstall(target, Removal::default(), &mut out).await.unwrap_err().to_string();
    assert!(refused.contains("--yes"), "{refused}");
    assert!(world.json(&["get", "daemonset", "calico-node", "-n", "kube-system"]).is_ok());

    out.clear();
    uninstall(target, Removal { is_agreed: true, ..Removal::default() }, &mut out).await?;
    let said = told(&out);
    assert!(
        said.contains(
            "finalizers of ServiceAccount kube-system/calico-node are removed: tigera.io/cni-protector"
        ),
        "{said}"
    );
    for (kind, name) in [
        ("daemonset", "calico-node"),
        ("deployment", "calico-kube-controllers"),
        ("serviceaccount", "calico-node"),
        ("configmap", "tortie-install"),
    ] {
        assert!(
            world.json(&["get", kind, name, "-n", "kube-system"]).is_err(),
            "{kind} {name} is still there"
        );
    }
    assert!(world.json(&["get", "ippools.crd.projectcalico.org", "pool"]).is_ok(), "data stays");

    // Another tool's installation is not deleted.
    let theirs = Options::new(Like::Canal, "quay.io/calico", "v3.30.0");
    let set = manifests::node::daemon_set(&theirs).value;
    world.apply(&set)?;
    let everything = Removal { delete_data: true, is_agreed: true, dry_run: false };
    let refused = uninstall(target, everything, &mut out).await.unwrap_err().to_string();
    assert!(refused.contains("canal (quay.io/calico/cni:v3.30.0"), "{refused}");
    assert!(
        world.api_server.kubectl(&["delete", "daemonset", "canal", "-n", "kube-system"])?.status.success()
    );

    out.clear();
    uninstall(target, Removal { delete_data: true, is_agreed: true, dry_run: false }, &mut out).await?;
    let left = world.json(&["get", "customresourcedefinitions"])?;
    assert_eq!(left["items"].as_array().map(Vec::len), Some(0), "{left}");
    out.clear();
    uninstall(target, Removal { delete_data: true, is_agreed: true, dry_run: false }, &mut out).await?;
    assert!(told(&out).starts_with("nothing to uninstall"), "{}", told(&out));
    Ok(())
}
