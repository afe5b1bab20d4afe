//! The IPAM commands on a real kube-apiserver with nodes, pods and the records of a running Calico.

use super::{cni, golden, put};
use crate::harness::Shell;
use testkit::{ApiServer, Etcd};

const RECORDS: &str = include_str!("../../data/ipam/kubernetes.yaml");

struct Cluster {
    api_server: ApiServer,
    shell: Shell,
    _etcd: Etcd,
}

impl Cluster {
    fn start() -> Self {
        let etcd = Etcd::start().expect("starting etcd");
        let api_server = ApiServer::start(&etcd.endpoint()).expect("starting kube-apiserver");
        let shell = Shell::kubernetes(&api_server, "ipam-kubernetes");
        api_server.kubectl_with_input(&["create", "-f", "-"], RECORDS).expect("creating the records");
        Self { api_server, shell, _etcd: etcd }
    }

    fn kubectl(&self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = self.api_server.kubectl(&words).expect("kubectl");
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

#[test]
fn a_cluster_is_checked_repaired_and_freed_of_leaks() {
    let cluster = Cluster::start();
    let shell = &cluster.shell;
    // The first half is what Calico printed before it gave up on the missing controllers' configuration.
    golden("kubernetes-check.txt", &shell.run("ipam check --show-all-ips").text());
    golden("kubernetes-show.txt", &shell.run("ipam show --show-blocks").text());

    // A pod disappears without releasing its address; a node changes its tunnel address; a handle is left over.
    cluster.kubectl("delete pod -n shop web-1 --force --grace-period=0");
    cluster
        .kubectl("annotate node kc-node2 --overwrite projectcalico.org/IPv4VXLANTunnelAddr=10.244.143.200");
    cluster.kubectl("delete blockaffinities.crd.projectcalico.org kc-node1-10-244-45-0-26");
    let leftover = r#"{"apiVersion":"crd.projectcalico.org/v1","kind":"IPAMHandle","metadata":{"name":"leftover"},"spec":{"handleID":"leftover","block":{"10.244.45.0/26":1},"deleted":false}}"#;
    cluster.api_server.kubectl_with_input(&["create", "-f", "-"], leftover).expect("creating a handle");
    cluster.kubectl("patch clusterinformations.crd.projectcalico.org default --type=merge -p {\"spec\":{\"datastoreReady\":false}}");
    golden("kubernetes-check-leaks.txt", &shell.run("ipam check --show-problem-ips --fix --yes").text());
    cluster.kubectl("get blockaffinities.crd.projectcalico.org kc-node1-10-244-45-0-26");

    let file = shell.path("report.json").display().to_string();
    shell.run_with("ipam check -o", &[&file]).text();
    let output = shell.run_with("ipam release --from-report", &[&file]).text();
    assert_eq!(
        output,
        "Releasing 2 old IPs...\nReleased 2 IPs successfully\nReport didn't contain any handles to clean up.\n\
         You may now unlock the data store.\n"
    );
    let handles = cluster.kubectl("get ipamhandles.crd.projectcalico.org -o name");
    assert_eq!(handles.lines().count(), 2, "{handles}");
    assert!(
        shell.run("ipam check").text().ends_with("Check complete; found 1 problem.\n"),
        "the new tunnel address"
    );

    services(&cluster);
    services_of_another_datastore(&cluster);
    settings(&cluster);
}

/// A service of type LoadBalancer uses the address in its status, once the controllers are configured.
fn services(cluster: &Cluster) {
    let shell = &cluster.shell;
    let objects = r#"{"apiVersion":"crd.projectcalico.org/v1","kind":"KubeControllersConfiguration","metadata":{"name":"default"},"spec":{"controllers":{"loadBalancer":{"assignIPs":"AllServices"}}}}
---
{"apiVersion":"v1","kind":"Service","metadata":{"name":"front","namespace":"shop"},"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}"#;
    cluster.api_server.kubectl_with_input(&["create", "-f", "-"], objects).expect("creating a service");
    cluster.kubectl("patch service -n shop front --subresource=status --type=merge -p {\"status\":{\"loadBalancer\":{\"ingress\":[{\"ip\":\"10.244.9.9\"}]}}}");
    let text = shell.run("ipam check --show-problem-ips").text();
    assert!(text.contains("Found 1 service load balancer(s).\n"), "{text}");
    assert!(
        text.contains("  10.244.9.9 in use by front and in active IPAM pool but has no IPAM allocation.\n"),
        "{text}"
    );
}

/// Checks another datastore against the services of this cluster.
fn services_of_another_datastore(cluster: &Cluster) {
    let kubeconfig = cluster.shell.variables["KUBECONFIG"].clone();
    let mut shell = cni();
    let skipped = "No configuration for LoadBalancer kubecontroller found, skipping service check\n";
    let text = shell.run_with("ipam check --kubeconfig", &[&kubeconfig]).text();
    assert!(text.contains(skipped), "{text}");
    put(
        &shell,
        &[(
            "/calico/resources/v3/projectcalico.org/kubecontrollersconfigurations/default",
            r#"{"kind":"KubeControllersConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"default","uid":"6c1dcd0f-0b0b-4d43-8a7a-0b1f6b1f2f10","creationTimestamp":"2026-11-15T19:48:00Z"},"spec":{"controllers":{"loadBalancer":{"assignIPs":"AllServices"}}}}"#,
        )],
    );
    shell.variables.insert("KUBECONFIG".to_owned(), kubeconfig);
    let text = shell.run("ipam check --show-problem-ips").text();
    assert!(text.contains("Found 1 service load balancer(s).\n"), "{text}");
    assert!(text.contains("  10.244.9.9 in use by front is not in any active IP pool.\n"), "{text}");
    let error = shell.run("ipam check --kubeconfig /nonexistent").error();
    assert!(error.contains("/nonexistent"), "{error}");
}

/// Settings, and a pool that is split.
fn settings(cluster: &Cluster) {
    let shell = &cluster.shell;
    assert_eq!(
        shell.run("ipam configure --strictaffinity=true").text(),
        "Successfully set StrictAffinity to: true\n"
    );
    assert!(
        cluster
            .kubectl("get ipamconfigs.crd.projectcalico.org default -o yaml")
            .contains("strictAffinity: true")
    );
    let text = shell.run("ipam split 2 --cidr=10.244.0.0/16").text();
    assert!(
        text.starts_with("IP Pool default-ipv4-ippool was successfully split into 2 smaller pools.\n"),
        "{text}"
    );
    let pools = cluster.kubectl("get ippools.crd.projectcalico.org -o name");
    assert_eq!(
        pools,
        "ippool.crd.projectcalico.org/split-default-ipv4-ippool-0\nippool.crd.projectcalico.org/split-default-ipv4-ippool-1\n"
    );
    assert!(shell.run("ipam check").text().contains("Found 2 active IP pools.\n"));
}
