//! `ipam check --fix`: what is repaired, what is left alone, and that it asks first.

use super::{BLOCK_A, LOCKED, cni, get, golden, put};
use crate::harness::{Buffer, Shell, environment};
use calicoctl::Surroundings;
use client::{Client, ClientConfig, DatastoreType};
use model::{Key, Value};
use std::ffi::OsString;
use std::io::{self, Read};
use std::process::ExitCode;

/// Records that contradict each other in every way that can be repaired.
fn contradictory() -> Shell {
    let shell = cni();
    let block = get(&shell, BLOCK_A).expect("the block");
    put(
        &shell,
        &[
            LOCKED,
            // One handle holds no address, another counts too many, a third is missing.
            (
                "/calico/ipam/v2/handle/k8s-pod-network.gone",
                r#"{"block":{"172.16.165.136/29":1},"deleted":false}"#,
            ),
            (
                "/calico/ipam/v2/handle/k8s-pod-network.c1",
                r#"{"block":{"172.16.165.136/29":3},"deleted":false}"#,
            ),
            ("/calico/ipam/v2/handle/k8s-pod-network.c3", ""),
            // A claim without a block, a claim on another node's block, and a block without its claim.
            (
                "/calico/ipam/v2/host/node-a/ipv4/block/172.16.0.0-29",
                r#"{"state":"pending","deleted":false}"#,
            ),
            (
                "/calico/ipam/v2/host/node-b/ipv4/block/172.16.165.136-29",
                r#"{"state":"confirmed","deleted":false}"#,
            ),
            ("/calico/ipam/v2/host/node-a/ipv4/block/172.16.165.136-29", ""),
            // A block without an owner, and one whose queue of free addresses is wrong.
            (
                "/calico/ipam/v2/assignment/ipv4/block/172.16.9.0-29",
                r#"{"cidr":"172.16.9.0/29","affinity":null,"allocations":[null,null,null,null,null,null,null,null],"unallocated":[0,1,2,3,4,5,6,7],"attributes":[],"sequenceNumber":9,"sequenceNumberForAllocation":{},"deleted":false}"#,
            ),
            (BLOCK_A, &block.replace("[2,3,4,5,6,7]", "[4,3,3,0]")),
        ],
    );
    shell
}

/// The part of the output that reports repairs.
fn repairs(output: &str) -> &str {
    output.split_once("problems.\n").map_or("", |(_, rest)| rest)
}

#[test]
fn contradictions_are_repaired_and_do_not_return() {
    let shell = contradictory();
    let output = shell.run("ipam check --fix --yes").text();
    golden("fix.txt", repairs(&output));
    assert_eq!(
        get(&shell, "/calico/ipam/v2/handle/k8s-pod-network.c1").as_deref(),
        Some(r#"{"block":{"172.16.165.136/29":1},"deleted":false}"#)
    );
    let block = get(&shell, BLOCK_A).expect("the block");
    assert!(
        block.contains(r#""unallocated":[4,3,2,5,6,7]"#) && block.contains("1794772111581687082"),
        "{block}"
    );
    assert_eq!(get(&shell, "/calico/ipam/v2/assignment/ipv4/block/172.16.9.0-29"), None);
    let again = shell.run("ipam check --fix").text();
    assert_eq!(
        repairs(&again),
        "\nBlocks, claims and handles agree with each other; there is nothing to repair.\n"
    );
    assert!(again.contains("found 0 problems"), "{again}");
    assert!(shell.run("ipam show --ip=172.16.165.137").text().contains("is in use"));
}

#[test]
fn nothing_is_changed_without_consent() {
    let shell = contradictory();
    for answer in ["", "n\n", "no\n", "what?\n", "\n"] {
        let output = shell.pipe("ipam check --fix", answer).text();
        assert!(output.ends_with("Carry them out? [y/N] Nothing was changed.\n"), "{answer:?}: {output}");
    }
    assert!(get(&shell, "/calico/ipam/v2/handle/k8s-pod-network.gone").is_some());
    let output = shell.pipe("ipam check --fix", "Yes\n").text();
    assert!(output.contains("[y/N] Made 8 of 8 repairs; 0 skipped; 0 failed.\n"), "{output}");
}

#[test]
fn an_unlocked_datastore_is_read_twice() {
    let shell = contradictory();
    put(&shell, &[(LOCKED.0, &LOCKED.1.replace("false", "true"))]);
    let output = shell.run("ipam check --fix --yes --settle=1");
    assert!(output.success, "{output:?}");
    assert_eq!(
        output.stderr,
        "The datastore is not locked: looking again in 1 s, so that allocations under way are left alone.\n"
    );
    assert!(output.stdout.ends_with("Made 8 of 8 repairs; 0 skipped; 0 failed.\n"), "{}", output.stdout);
}

#[test]
fn entries_that_change_meanwhile_are_left_alone() {
    let shell = contradictory();
    // Another client is about to allocate an address: the empty handle is written while the question waits.
    let stdin = AnswerAfter { path: shell.path("data").display().to_string(), answer: b"y\n".to_vec() };
    let stdout = Buffer::default();
    let surroundings = Surroundings {
        stdin: Box::new(stdin),
        stdout: Box::new(stdout.clone()),
        stderr: Box::new(io::sink()),
        environment: environment(&shell.variables),
        colours: false,
        progress: false,
        width: None,
    };
    let arguments: Vec<OsString> = ["calicoctl", "ipam", "check", "--fix"].map(OsString::from).to_vec();
    assert_eq!(calicoctl::run(&arguments, surroundings), ExitCode::SUCCESS);
    let output = stdout.text();
    assert!(
        output.contains("  skipped, since it changed meanwhile: delete handle k8s-pod-network.gone"),
        "{output}"
    );
    assert!(output.ends_with("Made 7 of 8 repairs; 1 skipped; 0 failed.\n"), "{output}");
    assert!(get(&shell, "/calico/ipam/v2/handle/k8s-pod-network.gone").is_some());
}

/// An input that is read after the first reading of the records, and changes a record before it answers.
struct AnswerAfter {
    path: String,
    answer: Vec<u8>,
}

impl Read for AnswerAfter {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.path.is_empty() {
            let path = std::mem::take(&mut self.path);
            std::thread::spawn(move || write_handle(path)).join().expect("the other writer");
        }
        let count = self.answer.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.answer[..count]);
        self.answer.drain(..count);
        Ok(count)
    }
}

/// Writes one handle in a store that the command has open, as another client in this process.
fn write_handle(embedded_path: String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let config = ClientConfig {
            datastore_type: DatastoreType::Embedded,
            etcd: Default::default(),
            kubernetes: Default::default(),
            embedded_path,
        };
        let client = Client::open(&config).await.expect("opening");
        let key = Key::IpamHandle { handle_id: "k8s-pod-network.gone".into() };
        let mut entry = client.backend().get(&key, None).await.expect("the handle");
        if let Value::IpamHandle(handle) = &mut entry.value {
            handle.block.insert("172.16.244.248/29".to_owned(), 1);
        }
        client.backend().update(&entry).await.expect("writing");
    });
}
