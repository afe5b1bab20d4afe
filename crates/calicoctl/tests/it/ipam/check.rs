//! `ipam check`: verdicts, explanations and the report.

use super::{BLOCK_A, LOCKED, cni, cni_in_etcd, embedded_with, golden, put};
use std::process::ExitCode;

#[test]
fn a_healthy_cluster_has_no_problems() {
    let (_etcd, etcd) = cni_in_etcd();
    for shell in [cni(), etcd] {
        golden("check.txt", &shell.run("ipam check").text());
        golden("check-all.txt", &shell.run("ipam check --show-all-ips").text());
    }
}

/// Records with one problem of every kind.
fn troubled() -> crate::harness::Shell {
    let shell = cni();
    put(
        &shell,
        &[
            // c2 left without releasing; c4 has an address that IPAM did not allocate, c5 one that is in no pool.
            ("/calico/resources/v3/projectcalico.org/workloadendpoints/default/node--a-cni-c2-eth0", ""),
            (
                "/calico/resources/v3/projectcalico.org/workloadendpoints/default/node--a-cni-c4-eth0",
                r#"{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"node--a-cni-c4-eth0","namespace":"default","uid":"4c1dcd0f-0b0b-4d43-8a7a-0b1f6b1f2f10","creationTimestamp":"2026-11-15T19:48:31Z"},"spec":{"orchestrator":"cni","node":"node-a","containerID":"c4","endpoint":"eth0","ipNetworks":["172.16.9.9/32","10.9.9.9/32","172.16.165.136/32"],"profiles":["k8s-pod-network"],"interfaceName":"calic4"}}"#,
            ),
            // A handle without addresses, and a block that contradicts itself and refers to a missing handle.
            (
                "/calico/ipam/v2/handle/k8s-pod-network.gone",
                r#"{"block":{"172.16.165.136/29":1},"deleted":false}"#,
            ),
            (
                "/calico/ipam/v2/assignment/ipv4/block/172.16.0.0-29",
                r#"{"cidr":"172.16.0.0/29","affinity":"host:node-c","allocations":[0,1,2,3,null,null,null,4],"unallocated":[5,6,6],"attributes":[{"handle_id":"k8s-pod-network.c6","secondary":{"node":"node-c","pod":"web","namespace":"shop"}},{"handle_id":"vxlan-tunnel-addr-node-c","secondary":{"node":"node-c","type":"vxlanTunnelAddress"}},{},{"handle_id":"windows-reserved-ipam-handle","secondary":{"note":"windows host rsvd"}},{"releasedAt":"2026-11-15T19:48:31Z"}],"sequenceNumber":9,"sequenceNumberForAllocation":{"0":3},"deleted":false}"#,
            ),
            // And a block that cannot be read at all.
            ("/calico/ipam/v2/assignment/ipv4/block/172.16.0.8-29", "{"),
        ],
    );
    shell
}

#[test]
fn problems_are_counted_listed_and_explained() {
    let shell = troubled();
    golden("check-troubled.txt", &shell.run("ipam check").text());
    golden("show-troubled.txt", &shell.run("ipam show --show-blocks").text());
    golden("check-troubled-explained.txt", &shell.run("ipam check --show-problem-ips").text());
}

#[test]
fn the_report_has_calicos_form() {
    let shell = troubled();
    let file = shell.path("report.json");
    shell.run_with("ipam check -o", &[&file.display().to_string()]).text();
    let report = std::fs::read_to_string(&file).expect("the report");
    let parsed: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    // Revisions depend on the store, the version on the day.
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    let mut report = report.clone();
    for (value, word) in [
        (text(&parsed["version"]), "VERSION"),
        (text(&parsed["clusterInformationRevision"]), "REVISION"),
        (text(&parsed["leakedHandles"][0]["Revision"]), "REVISION"),
    ] {
        report = report.replace(&format!("\"{value}\""), &format!("\"{word}\""));
    }
    golden("report.json", &report);
    let nowhere = shell.run("ipam check -o /nonexistent/report.json").error();
    assert!(nowhere.starts_with("cannot write the report /nonexistent/report.json: "), "{nowhere}");
}

#[test]
fn missing_knowledge_ends_the_check() {
    let shell = embedded_with(&[]);
    let error = shell.run("ipam check").error();
    assert!(error.starts_with("resource does not exist: ClusterInformation(default)"), "{error}");

    let shell = cni();
    put(
        &shell,
        &[("/calico/resources/v3/projectcalico.org/workloadendpoints/default/node--a-cni-c2-eth0", "{")],
    );
    let error = shell.run("ipam check").error();
    assert!(error.starts_with("1 stored workload endpoint cannot be read"), "{error}");

    // Addresses were allocated to services, but no Kubernetes is configured.
    let shell = cni();
    put(
        &shell,
        &[(
            "/calico/ipam/v2/assignment/ipv4/block/172.16.0.0-29",
            r#"{"cidr":"172.16.0.0/29","affinity":"virtual:load-balancer","allocations":[null,null,null,null,null,null,null,null],"unallocated":[0,1,2,3,4,5,6,7],"attributes":[],"sequenceNumber":9,"sequenceNumberForAllocation":{},"deleted":false}"#,
        )],
    );
    let error = shell.run("ipam check").error();
    assert_eq!(error, "KUBECONFIG environment variable or --kubeconfig parameter not set\n");
}

#[test]
fn a_locked_datastore_is_noted_in_the_report() {
    let shell = cni();
    put(&shell, &[LOCKED, (BLOCK_A, "")]);
    let file = shell.path("report.json").display().to_string();
    shell.run_with("ipam check --output", &[&file]).text();
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&file).expect("the report")).expect("JSON");
    assert_eq!(report["datastoreLocked"], true);
    assert_eq!(report["clusterGUID"], "0123456789abcdef");
    assert_eq!(report["leakedHandles"].as_array().map(Vec::len), Some(2));
}

#[test]
fn problems_set_the_exit_code_on_request() {
    let shell = cni();
    let code = |line: &str| shell.run(line).code;
    assert_eq!(code("ipam check --exit-code"), ExitCode::SUCCESS);
    put(&shell, &[(BLOCK_A, "")]);
    let output = shell.run("ipam check --exit-code");
    assert_eq!(output.code, ExitCode::from(1), "{output:?}");
    assert_eq!(output.stderr, "");
    assert_eq!(code("ipam check"), ExitCode::SUCCESS);
    assert_eq!(code("ipam check --exit-code -o /nonexistent/report.json"), ExitCode::from(2));
    assert_eq!(code("ipam check -o /nonexistent/report.json"), ExitCode::from(1));
}

#[test]
fn an_analysis_lists_useless_blocks() {
    const NODE_B: &str = r#"{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"node-b","uid":"5c1dcd0f-0b0b-4d43-8a7a-0b1f6b1f2f10","creationTimestamp":"2026-11-15T19:48:00Z"},"spec":{},"status":{}}"#;
    let shell = cni();
    put(&shell, &[("/calico/resources/v3/projectcalico.org/nodes/node-b", NODE_B)]);
    let found = shell.run("analyze").text();
    let lost = "warning: IPAMBlock 172.16.165.136/29: is kept for node node-a, which does not exist\n    `calicoctl ipam check` \
                shows what can be released\n";
    assert!(found.contains(lost) && !found.contains("172.16.244.248/29"), "{found}");
    put(&shell, &[("/calico/resources/v3/projectcalico.org/ippools/pool", "")]);
    let found = shell.run("analyze").text();
    let orphan = "warning: IPAMBlock 172.16.244.248/29: allocates no addresses: no pool contains it\n    create its pool again, or \
                  release its addresses\n";
    assert!(found.contains(lost) && found.contains(orphan), "{found}");
}
