//! Every kind in every format: readable transcripts, one file per kind, under `tests/golden`. Refresh them with
//! `UPDATE_EXPECT=1` and review the difference.
//!
//! The same transcripts must come from the embedded store and a real etcd, and, for kinds that are custom resources
//! there, from a real kube-apiserver. Identities and revisions are masked.

use crate::harness::Shell;
use calicoctl::for_tests::{KINDS, KindEntry};
use std::fmt::Write as _;
use std::path::PathBuf;
use testkit::{ApiServer, Etcd, Folder};

/// Kinds that users cannot write anywhere.
const READ_ONLY: &[&str] = &["ClusterInformation"];

/// Kinds that Kubernetes derives from its own objects, so that they cannot be created there.
const NATIVE: &[&str] = &["Node", "Profile", "WorkloadEndpoint"];

/// Kinds that have objects in a running cluster without a user creating them.
const INITIALISED: &[&str] = &["ClusterInformation"];

#[test]
fn every_kind_in_every_format_on_the_embedded_store() {
    let mut differences = Vec::new();
    for entry in KINDS {
        let shell = Shell::embedded();
        compare(entry, &transcript(&shell, entry), true, &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_kind_in_every_format_on_etcd() {
    let etcd = Etcd::start().expect("etcd");
    let mut differences = Vec::new();
    for entry in KINDS {
        let wiped = etcd.etcdctl(&["del", "--prefix", "/calico"]).expect("etcdctl");
        assert!(wiped.status.success());
        let folder = Folder::new("calicoctl").expect("a folder");
        let shell =
            Shell::with(&[("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", &etcd.endpoint())], folder);
        compare(entry, &transcript(&shell, entry), false, &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_custom_resource_in_every_format_on_kubernetes() {
    let etcd = Etcd::start().expect("etcd");
    let api_server = ApiServer::start(&etcd.endpoint()).expect("kube-apiserver");
    for definition in api::crds::all() {
        api_server
            .kubectl_with_input(&["apply", "--server-side", "-f", "-"], &definition.to_string())
            .expect("a CRD");
    }
    let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    assert!(api_server.kubectl(&wait).expect("kubectl").status.success());
    for namespace in ["default", "shop"] {
        // `default` may exist already.
        let _ = api_server.kubectl(&["create", "namespace", namespace]).expect("kubectl");
    }
    let kubeconfig = api_server.kubeconfig().display().to_string();
    let mut differences = Vec::new();
    let skipped =
        |entry: &&KindEntry| NATIVE.iter().chain(INITIALISED).any(|kind| *kind == entry.kind.as_str());
    for entry in KINDS.iter().filter(|entry| !skipped(entry)) {
        let folder = Folder::new("calicoctl").expect("a folder");
        let shell = Shell::with(&[("DATASTORE_TYPE", "kubernetes"), ("KUBECONFIG", &kubeconfig)], folder);
        let found = transcript(&shell, entry);
        // The API server words missing objects differently.
        let found = without_reasons(&found);
        compare(entry, &found, false, &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    native_kinds(&api_server);
}

/// Kinds that Kubernetes derives from its own objects: read, labelled and patched, never created.
fn native_kinds(api_server: &ApiServer) {
    let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","annotations":{"projectcalico.org/IPv4Address":"10.9.0.1/24"}}}"#;
    api_server.kubectl_with_input(&["create", "-f", "-"], node).expect("a node");
    let kubeconfig = api_server.kubeconfig().display().to_string();
    let folder = Folder::new("calicoctl").expect("a folder");
    let shell = Shell::with(&[("DATASTORE_TYPE", "kubernetes"), ("KUBECONFIG", &kubeconfig)], folder);
    assert_eq!(
        shell.run("get nodes -o wide").text(),
        "NAME   ASN       IPV4          IPV6   \nn1     (63400)   10.9.0.1/24          \n\n"
    );
    let patch = r#"{"spec":{"bgp":{"routeReflectorClusterID":"224.0.0.1"}}}"#;
    assert_eq!(
        shell.run_with("patch node n1 -p", &[patch]).text(),
        "Successfully patched 1 'Node' resource\n"
    );
    assert!(shell.run("get node n1 -o yaml").text().contains("    routeReflectorClusterID: 224.0.0.1\n"));
    assert_eq!(shell.run("label node n1 rack=7").text(), "Successfully set label rack on node n1\n");
    // Calico's labels of a node are kept separate from those that Kubernetes manages.
    assert!(shell.run("get node n1 -o yaml").text().contains("\n    rack: \"7\"\n"));
    assert!(shell.run("get profiles -o name").text().contains("profile/kns.shop\n"));
    assert_eq!(shell.run("get wep -A").text(), "NAMESPACE   WORKLOAD   NODE   NETWORKS   INTERFACE   \n\n");
    let profile = golden("input/profile.yaml").display().to_string();
    let error = shell.run_with("create -f", &[&profile]).error();
    assert!(error.starts_with("failed to create 'Profile' resource: [operation"), "{error}");
}

/// A session with one kind.
fn transcript(shell: &Shell, entry: &KindEntry) -> String {
    let word = entry.names[0];
    let mut text = String::new();
    let mut step = |line: &str, more: &[&str], shown: &str| {
        let output = shell.run_with(line, more);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "$ calicoctl {shown}");
        text.push_str(&masked(&output.stdout));
        if !output.stdout.ends_with('\n') && !output.stdout.is_empty() {
            text.push('\n');
        }
        for line in masked(&output.stderr).lines() {
            let _ = writeln!(text, "! {line}");
        }
        if !output.success {
            text.push_str("(exit code 1)\n");
        }
    };
    let mut names = Vec::new();
    if READ_ONLY.contains(&entry.kind.as_str()) {
        // Any write initializes the datastore, which creates this object.
        let tier = golden("input/tier.yaml").display().to_string();
        assert!(shell.run_with("apply -f", &[&tier]).success);
        names.push("default".to_owned());
    } else {
        let path = golden(&format!("input/{word}.yaml"));
        let input =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut in_metadata = false;
        for line in input.lines() {
            in_metadata = line == "metadata:" || in_metadata && line.starts_with(' ');
            if let Some(name) = line.strip_prefix("  name: ").filter(|_| in_metadata) {
                names.push(name.to_owned());
            }
        }
        let path = path.display().to_string();
        step("apply -f", &[&path], &format!("apply -f {word}.yaml"));
        step("apply -f", &[&path], &format!("apply -f {word}.yaml"));
    }
    let scopes: &[&str] = if entry.kind.is_namespaced() { &["", "-n shop", "-A"] } else { &[""] };
    for scope in scopes {
        for format in ["", "-o wide"] {
            let line = format!("get {word} {scope} {format}");
            let shown = line.split_whitespace().collect::<Vec<_>>().join(" ");
            step(&line, &[], &shown);
        }
    }
    let all = if entry.kind.is_namespaced() { " -A" } else { "" };
    let columns = entry.columns().join(",");
    for format in [
        "name".to_owned(),
        format!("custom-columns={columns}"),
        "custom-columns=NOSUCH".to_owned(),
        "yaml".to_owned(),
        "json".to_owned(),
        "go-template={{range .}}{{range .Items}}{{.Kind}} {{.ObjectMeta.Name}} {{end}}{{end}}".to_owned(),
    ] {
        step(&format!("get {word}{all} -o"), &[&format], &format!("get {word}{all} -o '{format}'"));
    }
    let name = names.last().cloned().unwrap_or_default();
    let inside = if entry.kind.is_namespaced() && word != "workloadendpoint" { " -n shop" } else { "" };
    for format in ["wide", "yaml --export", "json --export"] {
        let line = format!("get {word} {name}{inside} -o {format}");
        step(&line, &[], &line);
    }
    let line = format!("get {word} no-such-name");
    step(&line, &[], &line);
    let line = format!("delete {word} {name}{inside}");
    step(&line, &[], &line);
    step(&line, &[], &line);
    text
}

/// The text without parts that differ from run to run or from store to store.
fn masked(text: &str) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start().trim_start_matches('"');
        // Kubernetes counts generations; other stores do not.
        if trimmed.starts_with("generation\":") || trimmed.starts_with("generation:") {
            continue;
        }
        let mut line = line.replace(env!("CARGO_MANIFEST_DIR"), "");
        for field in ["uid", "creationTimestamp", "resourceVersion", "clusterGUID"] {
            line = mask_field(&line, field);
        }
        out.push_str(&mask_guid(&line));
    }
    out
}

/// Replaces the value of a field in a line of YAML or JSON.
fn mask_field(line: &str, field: &str) -> String {
    let trimmed = line.trim_start();
    let indent = &line[..line.len() - trimmed.len()];
    let yaml = format!("{field}: ");
    if trimmed.starts_with(&yaml) {
        return format!("{indent}{yaml}MASKED\n");
    }
    let json = format!("\"{field}\": ");
    if let Some(rest) = trimmed.strip_prefix(&json) {
        let comma = if rest.trim_end().ends_with(',') { "," } else { "" };
        return format!("{indent}{json}\"MASKED\"{comma}\n");
    }
    line.to_owned()
}

/// Replaces words of 32 hexadecimal digits: the identity of a cluster.
fn mask_guid(line: &str) -> String {
    let is_guid = |word: &str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words =
        line.split(' ').map(|word| if is_guid(word) { "MASKED-32-HEXADECIMAL-DIGITS----" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The text without the reasons that stores give for missing objects.
fn without_reasons(text: &str) -> String {
    let mut out = String::new();
    for line in text.split_inclusive('\n') {
        match line.split_once(" with error: ") {
            Some((start, _)) if line.contains("resource does not exist") => {
                let _ = writeln!(out, "{start}");
            }
            _ => out.push_str(line),
        }
    }
    out
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn compare(entry: &KindEntry, found: &str, may_update: bool, differences: &mut Vec<String>) {
    let path = golden(&format!("{}.txt", entry.names[0]));
    if may_update && std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, found).expect("the golden file");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    if expected != found {
        let diff = similar::TextDiff::from_lines(expected.as_str(), found);
        let text = diff.unified_diff().header(&path.display().to_string(), "found").to_string();
        differences.push(text);
    }
}
