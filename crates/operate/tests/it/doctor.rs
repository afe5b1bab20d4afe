//! `doctor` and `status` on a real API server with an installation.

use crate::World;
use anyhow::Result;
use manifests::{Like, Options};
use operate::for_tests::{
    How, Level, Mode, Target, check_cluster, gather_cluster, gather_status, install, report,
};
use serde_json::json;

async fn finding(target: &Target, check: &str) -> (Level, String) {
    let findings = check_cluster(&gather_cluster(target).await);
    let found = findings
        .iter()
        .find(|finding| finding.check == check)
        .unwrap_or_else(|| panic!("{check}: {findings:#?}"));
    (found.level, format!("{} {}", found.text, found.remedy))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_checked_before_and_after_installing() -> Result<()> {
    let world = World::start()?;
    let target = world.target().await?;
    assert_eq!(finding(&target, "definitions").await.0, Level::Warning);
    assert!(report(&gather_status(&target).await).problems[0].contains("nothing is installed"));

    let options = Options::new(Like::CalicoTypha, "r", "v1");
    let how = How { mode: Mode::default(), wait: None, is_upgrade: false };
    install(&target, &options, &[], how, &mut Vec::new()).await?;
    world.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}))?;
    for (check, level) in [
        ("definitions", Level::Ok),
        ("rights", Level::Ok),
        ("clock", Level::Ok),
        ("operator", Level::Ok),
        ("kube-proxy", Level::Unknown),
    ] {
        let found = finding(&target, check).await;
        assert_eq!(found.0, level, "{check}: {}", found.1);
    }

    // A role without a right, a pool that overlaps the services, a missing definition.
    let rules = r#"[{"op": "remove", "path": "/rules/1"}]"#;
    let arguments = ["patch", "clusterrole", "calico-kube-controllers", "--type=json", "-p", rules];
    assert!(world.api_server.kubectl(&arguments)?.status.success());
    let rights = finding(&target, "rights").await;
    assert!(rights.1.contains("calico-kube-controllers may not"), "{}", rights.1);
    world.apply(&json!({
        "apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": {"name": "pool"},
        "spec": {"cidr": "10.96.0.0/16", "vxlanMode": "Always"},
    }))?;
    let cluster = "networking:\n  podSubnet: 10.244.0.0/16\n  serviceSubnet: 10.96.0.0/12\n";
    world.apply(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeadm-config", "namespace": "kube-system"},
        "data": {"ClusterConfiguration": cluster},
    }))?;
    let findings = check_cluster(&gather_cluster(&target).await);
    let pools: Vec<&str> = findings
        .iter()
        .filter(|finding| finding.check == "pools")
        .map(|finding| finding.text.as_str())
        .collect();
    assert!(pools.iter().any(|text| text.contains("overlaps the services' range 10.96.0.0/12")), "{pools:?}");
    assert!(
        pools.iter().any(|text| text.contains("is not inside the cluster's range 10.244.0.0/16")),
        "{pools:?}"
    );

    let status = report(&gather_status(&target).await);
    assert!(
        status.to_text().contains("Pool         pool 10.96.0.0/16: IPIP Never, VXLAN Always"),
        "{}",
        status.to_text()
    );
    assert!(
        status.problems.iter().any(|problem| problem == "node n1 has no pod of calico-node"),
        "{:?}",
        status.problems
    );
    assert!(status.routing.starts_with("BGP where pools use it"), "{}", status.routing);

    // An account without rights is shown what could not be read.
    let nobody = Target::open(Some(&world.api_server.kubeconfig_without_rights())).await?;
    let status = report(&gather_status(&nobody).await);
    assert!(
        status.problems.iter().any(|problem| problem.starts_with("could not be read")),
        "{:?}",
        status.problems
    );
    assert_eq!(finding(&nobody, "rights").await.0, Level::Unknown);
    Ok(())
}
