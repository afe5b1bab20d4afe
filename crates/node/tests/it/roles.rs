//! A node with the account of each stock manifest of each release, because upgrades swap images but keep manifests.
//! Whatever the role forbids, the node starts, gets its tunnel address where Calico manages addresses, and shuts down
//! cleanly.

use crate::kubernetes::Cluster;
use crate::support::TestNode;
use node::for_tests::startup::run;
use node::for_tests::{shutdown, tunnel};
use serde_json::json;
use testkit::roles::{RELEASES, rules};

/// The manifests, and the variables that each sets for calico-node.
const MANIFESTS: [(&str, &[(&str, &str)]); 3] = [
    (
        "calico",
        &[
            ("CALICO_NETWORKING_BACKEND", "vxlan"),
            ("CLUSTER_TYPE", "k8s"),
            ("IP", "autodetect"),
            ("CALICO_IPV4POOL_CIDR", "10.244.0.0/16"),
            ("CALICO_IPV4POOL_VXLAN", "Always"),
        ],
    ),
    (
        "canal",
        &[
            ("USE_POD_CIDR", "true"),
            ("CALICO_NETWORKING_BACKEND", "none"),
            ("CLUSTER_TYPE", "k8s,canal"),
            ("IP", ""),
            ("CALICO_IPV4POOL_CIDR", "10.244.0.0/16"),
        ],
    ),
    (
        "calico-policy-only",
        &[("USE_POD_CIDR", "true"), ("CALICO_NETWORKING_BACKEND", "none"), ("CLUSTER_TYPE", "k8s")],
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_starts_with_the_role_of_every_manifest_and_release() {
    let cluster = Cluster::start();
    for (number, release) in RELEASES.into_iter().enumerate() {
        for (manifest, settings) in MANIFESTS {
            let what = format!("{manifest}.yaml of {release}");
            let name = format!("node-{manifest}-{}", release.replace('.', "-"));
            let rules = rules(manifest, "calico-node", release).expect("a role");
            let kubeconfig = cluster.api_server.account(&name, &rules).expect("an account");
            let kubeconfig = kubeconfig.display().to_string();
            cluster.add_node(&name, "10.99.0.11", &format!("10.244.{number}.0/24"));
            // Like the first start of a cluster: everything has to be created.
            cluster.delete_all(&[
                "ippools",
                "clusterinformations",
                "felixconfigurations",
                "bgpconfigurations",
                "ipamconfigs",
                "ipamblocks",
                "blockaffinities",
            ]);
            let mut variables = vec![
                ("DATASTORE_TYPE", "kubernetes"),
                ("KUBECONFIG", kubeconfig.as_str()),
                ("NODENAME", name.as_str()),
                ("WAIT_FOR_DATASTORE", "true"),
                ("CALICO_DISABLE_FILE_LOGGING", "true"),
                ("FELIX_IPV6SUPPORT", "false"),
                // Each node in this test has the address of the previous one.
                ("DISABLE_NODE_IP_CHECK", "true"),
            ];
            variables.extend_from_slice(settings);
            let node = TestNode::new(&variables);
            run(&node.context).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            tunnel::run_once(&node.context).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            shutdown::run(&node.context).await.unwrap_or_else(|error| panic!("{what}: {error}"));

            let pools = cluster.get(&["ippools.crd.projectcalico.org"]);
            assert_eq!(pools["items"].as_array().map(Vec::len), Some(1), "{what}");
            let felix = cluster.get(&["felixconfigurations.crd.projectcalico.org", "default"]);
            assert_eq!(felix["metadata"]["name"], json!("default"), "{what}");
            let annotations = cluster.get(&["node", &name])["metadata"]["annotations"].clone();
            let has_tunnel = annotations["projectcalico.org/IPv4VXLANTunnelAddr"].is_string();
            assert_eq!(has_tunnel, manifest == "calico", "{what}: {annotations}");
        }
    }
}
