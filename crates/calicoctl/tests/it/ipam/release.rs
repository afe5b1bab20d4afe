//! `ipam release`: one address, and what reports agree on.

use super::{BLOCK_A, LOCKED, cni, cni_in_etcd, embedded_with, get, put};
use crate::harness::Shell;
use std::process::ExitCode;

const WEP_C2: &str = "/calico/resources/v3/projectcalico.org/workloadendpoints/default/node--a-cni-c2-eth0";
const HANDLE_C1: &str = "/calico/ipam/v2/handle/k8s-pod-network.c1";

/// Releases an address that an endpoint still has, and returns the warning.
fn released(shell: &Shell, address: &str) -> String {
    let output = shell.run(&format!("ipam release --ip={address}"));
    assert!(output.success, "{output:?}");
    assert_eq!(output.stdout, format!("Successfully released IP address {address}\n"));
    assert!(output.stderr.contains("is still in use by"), "{output:?}");
    output.stderr
}

#[test]
fn one_address_is_released_like_calico() {
    // The block as Calico's plugin left it after releasing the same address.
    const AFTER: &str = r#"{"cidr":"172.16.165.136/29","affinity":"host:node-a","affinity_claim_time":"2026-11-15T19:48:31Z","allocations":[null,0,null,null,null,null,null,null],"unallocated":[2,3,4,5,6,7,0],"attributes":[{"handle_id":"k8s-pod-network.c2","secondary":{"node":"node-a","timestamp":"2026-11-15 19:48:31.767430253 +0000 UTC"}}],"sequenceNumber":1794772111581687082,"sequenceNumberForAllocation":{"1":1794772111581687080},"deleted":false}"#;
    let shell = cni();
    let warning = released(&shell, "172.16.165.136");
    assert_eq!(
        warning,
        "Warning: 172.16.165.136 is still in use by workload endpoint default/node--a-cni-c1-eth0, and may be given to another \
         workload: recreate workload endpoint default/node--a-cni-c1-eth0, or keep the address back with an IPReservation\n"
    );
    assert_eq!(get(&shell, BLOCK_A).as_deref(), Some(AFTER));
    assert_eq!(get(&shell, HANDLE_C1), None, "a handle without addresses is gone");
    let (etcd, in_etcd) = cni_in_etcd();
    released(&in_etcd, "172.16.165.136");
    let output = etcd.etcdctl(&["get", "--print-value-only", BLOCK_A]).expect("etcdctl");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), AFTER);
    for shell in [shell, in_etcd] {
        assert_eq!(
            shell.run("ipam release --ip=172.16.165.136").error(),
            "IP address 172.16.165.136 is not assigned\n"
        );
        assert_eq!(shell.run("ipam release --ip=10.0.0.1").error(), "IP address 10.0.0.1 is not assigned\n");
        assert_eq!(
            shell.run("ipam release --ip=10.0.0").error(),
            "Error executing command: invalid IP address specified: 10.0.0\n"
        );
        assert_eq!(shell.run("ipam release").error(), "nothing to release: give --ip or --from-report\n");
    }
}

#[test]
fn with_a_cooldown_a_released_address_rests() {
    let shell = cni();
    shell.run("ipam configure --ip-cooldown-seconds=3600").text();
    released(&shell, "172.16.165.136");
    assert!(get(&shell, BLOCK_A).expect("the block").contains(r#"{"releasedAt":"2"#));
    assert_eq!(shell.run("ipam show --ip=172.16.165.136").error(), "address 172.16.165.136 is in cooldown\n");
    let check = shell.run("ipam check --show-problem-ips").text();
    for line in [
        "Found 0 IPs that are allocated in IPAM but not actually in use.",
        "  172.16.165.136 in use by Workload(default/node--a-cni-c1-eth0) was released and is in cooldown.\n    because it \
         was released while in use; recreate the workload before it is given away\n",
        "Found 1 in-use IPs that were released and are in cooldown.",
        "Check complete; found 1 problem.",
    ] {
        assert!(check.contains(line), "{line}: {check}");
    }
    let strict = shell.run("ipam check --exit-code");
    assert_eq!(strict.code, ExitCode::from(1), "{strict:?}");
    assert_eq!(
        shell.run("ipam release --ip=172.16.165.136").error(),
        "IP address 172.16.165.136 is not assigned\n"
    );
}

#[test]
fn unselected_and_ownerless_blocks_are_given_up_with_their_last_address() {
    let shell = cni();
    let block = get(&shell, BLOCK_A).expect("the block");
    // The block has lost its owner; it is deleted with the second address.
    put(&shell, &[(BLOCK_A, &block.replace(r#""affinity":"host:node-a""#, r#""affinity":null"#))]);
    released(&shell, "172.16.165.136");
    assert!(get(&shell, BLOCK_A).is_some());
    released(&shell, "172.16.165.137");
    assert_eq!(get(&shell, BLOCK_A), None);
    // The pool no longer selects node-b: with its last address the block is taken away from it.
    put(
        &shell,
        &[
            (
                "/calico/resources/v3/projectcalico.org/nodes/node-b",
                r#"{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"node-b","uid":"5c1dcd0f-0b0b-4d43-8a7a-0b1f6b1f2f10","creationTimestamp":"2026-11-15T19:48:00Z","labels":{"rack":"2"}},"spec":{},"status":{}}"#,
            ),
            (
                "/calico/resources/v3/projectcalico.org/ippools/pool",
                r#"{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"pool","uid":"1c1dcd0f-0b0b-4d43-8a7a-0b1f6b1f2f10","creationTimestamp":"2026-11-15T19:48:00Z"},"spec":{"cidr":"172.16.0.0/16","ipipMode":"Never","vxlanMode":"Never","blockSize":29,"nodeSelector":"rack == '1'","allowedUses":["Workload","Tunnel"]}}"#,
            ),
        ],
    );
    released(&shell, "172.16.244.248");
    assert_eq!(get(&shell, "/calico/ipam/v2/assignment/ipv4/block/172.16.244.248-29"), None);
    assert_eq!(get(&shell, "/calico/ipam/v2/host/node-b/ipv4/block/172.16.244.248-29"), None);
}

/// Two pods are gone, one handle is empty; two reports of that, made while the datastore was locked.
fn reported() -> (Shell, [String; 2]) {
    let shell = cni();
    put(
        &shell,
        &[
            LOCKED,
            (WEP_C2, ""),
            ("/calico/resources/v3/projectcalico.org/workloadendpoints/default/node--b-cni-c3-eth0", ""),
            (
                "/calico/ipam/v2/handle/k8s-pod-network.gone",
                r#"{"block":{"172.16.165.136/29":1},"deleted":false}"#,
            ),
        ],
    );
    let files = ["one.json", "two.json"].map(|name| shell.path(name).display().to_string());
    for file in &files {
        shell.run_with("ipam check -o", &[file]).text();
    }
    (shell, files)
}

fn edit(file: &str, change: impl FnOnce(&mut serde_json::Value)) {
    let mut report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(file).expect("the report")).expect("JSON");
    change(&mut report);
    std::fs::write(file, report.to_string()).expect("writing the report");
}

#[test]
fn leaks_in_all_reports_are_released() {
    let (shell, [one, two]) = reported();
    // The second report was made when c3 was in use again.
    edit(&two, |report| report["allocations"]["172.16.244.248"][0]["inUse"] = true.into());
    let output = shell.run_with("ipam release --from-report", &[&one, "--from-report", &two]).text();
    assert_eq!(
        output,
        "Releasing 1 old IPs...\nReleased 1 IPs successfully\nDeleting 1 handles...\n\
         Key: '.' = Deleted OK; 'x' = skip, handle missing/changed.\n.\nReleased 1 handles; 0 skipped; 0 errors.\n\
         You may now unlock the data store.\n"
    );
    assert_eq!(shell.run("ipam show --ip=172.16.165.137").text(), "172.16.165.137 is not assigned\n");
    assert!(shell.run("ipam show --ip=172.16.244.248").text().contains("is in use"));
    assert!(shell.run("ipam check").text().ends_with("Check complete; found 1 problem.\n"));
    // The same report again: the address was released since, so its sequence number no longer matches.
    let again = shell.run_with("ipam release --from-report", &[&two]).text();
    assert!(
        again.contains("An error occurred while releasing some IPs: update conflict: 172.16.165.137"),
        "{again}"
    );
    assert!(again.contains("\nx\nReleased 0 handles; 1 skipped; 0 errors.\n"), "{again}");
}

#[test]
fn an_address_that_was_given_out_again_stays() {
    let (shell, [one, _]) = reported();
    let block = get(&shell, BLOCK_A).expect("the block");
    put(&shell, &[(BLOCK_A, &block.replace("k8s-pod-network.c2", "k8s-pod-network.new"))]);
    let output = shell.run_with("ipam release --from-report", &[&one]).text();
    assert!(
        output.contains("An error occurred while releasing some IPs: update conflict: 172.16.165.137"),
        "{output}"
    );
    assert!(output.contains("Released 1 IPs successfully"), "the other block is not concerned: {output}");
    assert!(shell.run("ipam show --ip=172.16.165.137").text().contains("k8s-pod-network.new"));
}

#[test]
fn reports_of_other_clusters_versions_and_times_are_refused() {
    let (shell, [one, two]) = reported();
    let release = |flags: &[&str]| shell.run_with("ipam release --from-report", flags);
    edit(&one, |report| report["clusterGUID"] = "another".into());
    let error = release(&[&one, "--force"]).error();
    assert!(error.ends_with("mismatched cluster GUID. Refusing to release\n"), "{error}");
    edit(&one, |report| {
        report["clusterGUID"] = "0123456789abcdef".into();
        report["version"] = "v3.0.0".into();
    });
    let error = release(&[&one]).error();
    assert!(
        error
            .ends_with("was produced using a different version (v3.0.0) of calicoctl. Refusing to release\n"),
        "{error}"
    );
    edit(&two, |report| report["clusterInformationRevision"] = "1".into());
    let error = release(&[&two, "--force"]).error();
    assert!(error.starts_with("the provided reports are all stale"), "{error}");
    // One current report suffices, and force overrides the version.
    let output = release(&[&one, "--from-report", &two, "--force"]).text();
    assert!(
        output.starts_with("WARNING: Report was produced using a different version of calicoctl."),
        "{output}"
    );
    assert!(output.contains("Released 2 IPs successfully"), "{output}");
    for (file, text) in [("bad.json", "{"), ("number.json", "7")] {
        let file = shell.file(file, text);
        let error = release(&[&file]).error();
        assert!(error.contains("is not a report of `calicoctl ipam check -o`"), "{error}");
    }
    assert!(release(&["/nonexistent"]).error().starts_with("open /nonexistent: "));
}

#[test]
fn a_datastore_that_is_not_locked_needs_force() {
    let shell = cni();
    let file = shell.path("report.json").display().to_string();
    shell.run_with("ipam check -o", &[&file]).text();
    assert_eq!(
        shell.run_with("ipam release --from-report", &[&file]).error(),
        "data store is not locked. Either lock the data store, or re-run with --force\n"
    );
    assert_eq!(
        shell.run_with("ipam release --force --from-report", &[&file]).text(),
        "WARNING: Data store is not locked. Ignoring due to --force option\n\
         Report didn't contain any leaked IPs to clean up.\nReport didn't contain any handles to clean up.\n\
         You may now unlock the data store.\n"
    );
}

/// A block of eight addresses, all under one handle.
fn full(cidr: &str) -> String {
    format!(
        r#"{{"cidr":"{cidr}","affinity":"host:node-a","allocations":[0,0,0,0,0,0,0,0],"unallocated":[],"attributes":[{{"handle_id":"all"}}],"sequenceNumber":9,"sequenceNumberForAllocation":{{}},"deleted":false}}"#
    )
}

#[test]
fn releases_at_the_same_time_lose_nothing() {
    let (etcd, shell) = cni_in_etcd();
    for (key, value) in [
        ("/calico/ipam/v2/assignment/ipv4/block/172.16.0.0-29", full("172.16.0.0/29").as_str()),
        ("/calico/ipam/v2/handle/all", r#"{"block":{"172.16.0.0/29":8},"deleted":false}"#),
    ] {
        assert!(etcd.etcdctl(&["put", key, value]).expect("etcdctl").status.success());
    }
    let shell = &shell;
    std::thread::scope(|scope| {
        for place in 0..8 {
            scope.spawn(move || shell.run(&format!("ipam release --ip=172.16.0.{place}")).text());
        }
    });
    let show = shell.run("ipam show --show-blocks").text();
    assert!(show.contains("| Block    | 172.16.0.0/29     |         8 |     0 (0%) |"), "{show}");
    let handle = etcd.etcdctl(&["get", "/calico/ipam/v2/handle/all"]).expect("etcdctl");
    assert!(handle.stdout.is_empty(), "the handle holds nothing and is gone: {handle:?}");
}

#[test]
fn addresses_of_ipv6_and_of_blocks_without_a_pool() {
    let block = "/calico/ipam/v2/assignment/ipv6/block/fd00::8-125";
    let handle = "/calico/ipam/v2/handle/all";
    let shell = embedded_with(&[
        (block, &full("fd00::8/125")),
        (handle, r#"{"block":{"fd00::8/125":8},"deleted":false}"#),
    ]);
    assert_eq!(shell.run("ipam release --ip=fd00::f").text(), "Successfully released IP address fd00::f\n");
    assert!(get(&shell, block).expect("the block").contains(r#""unallocated":[7]"#));
    assert_eq!(get(&shell, handle).as_deref(), Some(r#"{"block":{"fd00::8/125":7},"deleted":false}"#));
    assert_eq!(shell.run("ipam release --ip=fd00::10").error(), "IP address fd00::10 is not assigned\n");
}

#[test]
fn an_address_of_a_block_that_cannot_be_read_is_not_called_free() {
    // First without a pool, then with a pool whose blocks have this size.
    for shell in [embedded_with(&[]), cni()] {
        put(&shell, &[("/calico/ipam/v2/assignment/ipv4/block/172.16.0.0-29", "{")]);
        for command in ["show", "release"] {
            let error = shell.run(&format!("ipam {command} --ip=172.16.0.1")).error();
            assert!(error.contains("172.16.0.0") && !error.contains("not assigned"), "{error}");
        }
    }
    let (shell, [one, _]) = reported();
    put(&shell, &[("/calico/ipam/v2/assignment/ipv4/block/172.16.244.248-29", "{")]);
    let output = shell.run_with("ipam release --from-report", &[&one]).text();
    assert!(
        output.contains(
            "An error occurred while releasing some IPs: the block of 172.16.244.248 cannot be read"
        ),
        "{output}"
    );
    assert!(
        output.contains("Released 1 IPs successfully\n") && !output.contains("already been cleaned up"),
        "{output}"
    );
}
