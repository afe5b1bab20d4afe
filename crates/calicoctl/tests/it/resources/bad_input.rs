//! Mistakes of users, and failures of the machine.

use crate::harness::Shell;
use std::time::{Duration, Instant};
use testkit::Folder;

const POOL: &str =
    "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: a\nspec:\n  cidr: 10.0.0.0/16\n";

#[test]
fn files_that_hold_nothing() {
    let shell = Shell::embedded();
    let empty = shell.file("empty.yaml", "");
    let comments = shell.file("comments.yaml", "# nothing\n---\n# here\n");
    for path in [&empty, &comments] {
        for command in ["apply", "create", "replace", "delete", "validate", "diff", "get"] {
            let error = shell.run(&format!("{command} -f {path}")).error();
            assert_eq!(error, format!("no resources specified in file {path}\n"), "{command}");
        }
        for command in ["apply", "create", "replace", "delete", "validate", "diff"] {
            let text = shell.run(&format!("{command} --skip-empty -f {path}")).text();
            assert_eq!(text, "No resources specified\n", "{command}");
        }
    }
    std::fs::create_dir(shell.path("nothing")).expect("a folder");
    let directory = shell.path("nothing").display().to_string();
    let error = shell.run(&format!("apply -f {directory}")).error();
    assert_eq!(error, format!("no resources specified in directory {directory}\n"));
    assert_eq!(shell.run(&format!("apply --skip-empty -f {directory}")).text(), "No resources specified\n");
    assert!(shell.run("apply").error().starts_with("no resources specified"));
}

#[test]
fn files_that_are_wrong() {
    let shell = Shell::embedded();
    let cases: [(&str, Vec<u8>, &[&str]); 10] = [
        ("kind.yaml", POOL.replace("IPPool", "IPool").into(), &["unknown resource type (IPool)", "did you mean `IPPool`?", "kind.yaml:2:7"]),
        (
            "version.yaml",
            POOL.replace("projectcalico.org/v3", "v1").into(),
            &["unknown resource type (IPPool) and/or version (v1)", "version.yaml:1:13"],
        ),
        (
            "field.yaml",
            format!("{POOL}  natOutgoin: true\n").into(),
            &[
                "field in document is not recognized or is in the wrong location: natOutgoin\n",
                "did you mean `natOutgoing`?",
                "field.yaml:7:3",
            ],
        ),
        ("twice.yaml", format!("{POOL}  cidr: 10.1.0.0/16\n").into(), &["twice.yaml:7:3"]),
        ("syntax.yaml", b"a: [b\n".to_vec(), &["syntax.yaml:"]),
        ("type.yaml", format!("{POOL}  natOutgoing: maybe\n").into(), &["type.yaml:7:"]),
        ("utf8.yaml", b"apiVersion: \xff\xfe\n".to_vec(), &["utf8.yaml:1:"]),
        ("deep.yaml", "[".repeat(100_000).into(), &["deep.yaml:1:"]),
        ("block.yaml", b"apiVersion: projectcalico.org/v3\nkind: BlockAffinity\nmetadata:\n  name: x\nspec:\n  cidr: 10.0.0.0/26\n  node: a\n  state: confirmed\n  deleted: false\n".to_vec(), &["unknown resource type (BlockAffinity)"]),
        ("feed.yaml", b"apiVersion: projectcalico.org/v3\nkind: KubernetesService\nmetadata:\n  name: x\n".to_vec(), &["unknown resource type (KubernetesService)"]),
    ];
    for (name, text, parts) in cases {
        let path = shell.file(name, text);
        let error = shell.run(&format!("apply -f {path}")).error();
        for part in parts {
            assert!(error.contains(part), "{name}: {part}: {error}");
        }
    }
    assert_eq!(shell.run("get ippool -o name").text(), "");
}

#[test]
fn mistakes_of_all_files_are_reported_together_and_nothing_is_written() {
    let shell = Shell::embedded();
    shell.file("d/1.yaml", POOL);
    shell.file("d/2.yaml", POOL.replace("cidr", "cidrr"));
    shell.file("d/3.yaml", POOL.replace("metadata", "metadatas"));
    let directory = shell.path("d").display().to_string();
    let error = shell.run(&format!("apply -f {directory}")).error();
    assert!(error.contains("2.yaml:6:3") && error.contains("3.yaml:3:1"), "{error}");
    assert_eq!(shell.run("get ippool -o name").text(), "");
}

#[test]
fn mistakes_of_every_sort_are_shown_together_once() {
    let shell = Shell::embedded();
    let text = format!("{POOL}  natOutgoin: true\n  nodeSelector: all(\n---\n{POOL}  blockSize: 99\n");
    let path = shell.file("both.yaml", text);
    for command in ["validate", "apply", "create", "diff"] {
        let error = shell.run(&format!("{command} -f {path}")).error();
        for part in ["unknown field `natOutgoin`", "invalid selector", "99"] {
            assert_eq!(error.matches(part).count(), 1, "{command}: {part}: {error}");
        }
        assert!(error.contains("both.yaml:8:"), "{error}");
        assert!(error.contains("3 mistakes in"), "{error}");
    }
    // For a delete, naming the object is enough.
    let error = shell.run(&format!("delete -f {path}")).error();
    assert!(error.contains("natOutgoin") && !error.contains("invalid selector"), "{error}");
}

#[test]
fn fields_in_another_case_are_read_with_a_warning() {
    let shell = Shell::embedded();
    let output = shell.pipe("apply -f -", format!("{POOL}  ipipmode: Always\n"));
    assert!(output.success, "{output:?}");
    assert_eq!(output.stdout, "Successfully applied 1 'IPPool' resource(s)\n");
    for part in ["warning: field `ipipmode` is read as `ipipMode`", "stdin:7:3", "1 warning in stdin"] {
        assert!(output.stderr.contains(part), "{part}: {output:?}");
    }
    let stored = shell.run("get ippool a -o yaml").text();
    assert!(stored.contains("  ipipMode: Always\n") && !stored.contains("ipipmode"), "{stored}");
    let error = shell.pipe("apply -f -", format!("{POOL}  ipipmode: Always\n  ipipMode: Never\n")).error();
    assert!(error.contains("field `ipipMode` is given twice"), "{error}");
}

#[test]
fn many_failures_have_a_line_each() {
    let shell = Shell::embedded();
    let two = format!("{POOL}---\n{}", POOL.replace("name: a", "name: b").replace("10.0", "10.1"));
    shell.pipe("create -f -", &two).text();
    assert_eq!(
        shell.pipe("create -f -", &two).error(),
        "failed to create any 'IPPool' resources:\n- resource already exists: IPPool(a)\n- resource already exists: IPPool(b)\n"
    );
}

#[test]
fn objects_of_kubernetes_are_for_kubectl() {
    let shell = Shell::embedded();
    let error = shell.pipe("validate -f -", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n").error();
    assert!(error.contains("Pods are for kubectl"), "{error}");
}

#[test]
fn a_document_of_ten_megabytes_is_refused_and_many_small_ones_are_not() {
    let shell = Shell::embedded();
    let note = "x".repeat(11 * 1024 * 1024);
    let big = POOL.replace("name: a", &format!("name: a\n  annotations: {{note: {note}}}"));
    let error = shell.run(&format!("validate -f {}", shell.file("big.yaml", big))).error();
    assert!(error.contains("big.yaml:1:1"), "{}", &error[..error.len().min(500)]);
    assert!(error.len() < 2_000, "the message is as long as the file");
    let long = "# a comment of some length, to fill the file up with\n".repeat(2_000);
    let many = format!("{POOL}{long}---\n").repeat(120);
    let text = shell.run(&format!("validate -f {}", shell.file("many.yaml", many))).text();
    assert_eq!(text, "Successfully validated 120 'IPPool' resource(s)\n");
}

#[test]
fn paths_that_cannot_be_read() {
    let shell = Shell::embedded();
    let file = shell.file("file.yaml", POOL);
    let missing = shell.path("missing.yaml").display().to_string();
    let error = shell.run(&format!("apply -f {missing}")).error();
    assert_eq!(error, format!("failed to execute command: open {missing}: no such file or directory\n"));
    let inside = format!("{file}/inside.yaml");
    let error = shell.run(&format!("apply -f {inside}")).error();
    assert_eq!(error, format!("failed to execute command: open {inside}: not a directory\n"));
    std::fs::create_dir(shell.path("links")).expect("a folder");
    std::os::unix::fs::symlink(shell.path("nowhere"), shell.path("links/gone.yaml")).expect("a link");
    let error = shell.run(&format!("apply -f {}", shell.path("links").display())).error();
    assert!(error.contains("gone.yaml: no such file or directory"), "{error}");
    let error = shell.run("get ippool -o go-template-file=/nonexistent").error();
    assert_eq!(error, "open /nonexistent: no such file or directory\n");
    let error = shell.run("get ippool -c /nonexistent").error();
    assert!(error.contains("/nonexistent"), "{error}");
}

#[test]
fn namespaces_that_do_not_fit_are_reported_per_document() {
    let shell = Shell::embedded();
    let set = "apiVersion: projectcalico.org/v3\nkind: NetworkSet\nmetadata:\n  name: s\n  namespace: one\n";
    let text = shell.pipe("apply -n one -f -", set).text();
    assert_eq!(text, "Successfully applied 1 'NetworkSet' resource(s)\n");
    let error = shell.pipe("apply -n two -f -", set).error();
    assert_eq!(
        error,
        "failed to apply 'NetworkSet' resource: [resource namespace does not match client namespace. one != two]\n"
    );
    let both = format!("{set}---\n{POOL}");
    let output = shell.pipe("apply -n one -f -", both);
    assert_eq!(output.stdout, "Partial success: applied the first 1 out of 2 resources:\n");
    assert_eq!(output.stderr, "hit error: [IPPool is not namespaced]\n");
}

#[test]
fn an_unreachable_datastore_is_reported_in_time() {
    // Nothing listens on the first port; the second accepts connections and never answers.
    let refused = testkit::free_port().expect("a port");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let silent_port = silent.local_addr().expect("an address").port();
    for port in [refused, silent_port] {
        let endpoint = format!("http://127.0.0.1:{port}");
        let folder = Folder::new("calicoctl").expect("a folder");
        let shell = Shell::with(&[("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", &endpoint)], folder);
        for line in ["get ippool", "delete ippool x"] {
            let started = Instant::now();
            let error = shell.run(line).error();
            assert!(started.elapsed() < Duration::from_secs(5), "{line} took {:?}", started.elapsed());
            for part in ["cannot reach the datastore", &endpoint, "ETCD_ENDPOINTS", "the environment"] {
                assert!(error.contains(part), "{line}: {part}: {error}");
            }
        }
    }
    let endpoint = format!("https://127.0.0.1:{refused}");
    let folder = Folder::new("calicoctl").expect("a folder");
    let shell = Shell::with(&[("DATASTORE_TYPE", "kubernetes"), ("K8S_API_ENDPOINT", &endpoint)], folder);
    let started = Instant::now();
    let error = shell.run("get ippool").error();
    assert!(started.elapsed() < Duration::from_secs(5), "took {:?}", started.elapsed());
    assert!(error.contains(&endpoint) && error.contains("K8S_API_ENDPOINT"), "{error}");
}

#[test]
fn secrets_are_never_shown() {
    const SECRET: &str = "hunter2-do-not-print";
    let port = testkit::free_port().expect("a port");
    let endpoint = format!("http://127.0.0.1:{port}");
    let folder = Folder::new("calicoctl").expect("a folder");
    let etcd = [
        ("DATASTORE_TYPE", "etcdv3"),
        ("ETCD_ENDPOINTS", &endpoint),
        ("ETCD_USERNAME", "someone"),
        ("ETCD_PASSWORD", SECRET),
        ("K8S_API_TOKEN", SECRET),
    ];
    let shell = Shell::with(&etcd, folder);
    for line in [
        "get ippool --log-level debug",
        "-l trace get ippool",
        "apply --log-level trace -f -",
        "get ippool -l debug",
    ] {
        let output = shell.pipe(line, POOL);
        assert!(!output.success);
        assert!(!output.stdout.contains(SECRET) && !output.stderr.contains(SECRET), "{line}: {output:?}");
    }
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {{server: 'https://127.0.0.1:{port}'}}\nusers:\n- name: u\n  user: {{token: {SECRET}}}\ncontexts:\n- name: x\n  context: {{cluster: c, user: u}}\ncurrent-context: x\n"
    );
    let path = shell.file("kubeconfig", kubeconfig);
    let folder = Folder::new("calicoctl").expect("a folder");
    let shell = Shell::with(&[("DATASTORE_TYPE", "kubernetes"), ("KUBECONFIG", &path)], folder);
    for level in ["debug", "trace"] {
        let output = shell.run(&format!("-l {level} get ippool"));
        assert!(!output.success);
        assert!(!output.stdout.contains(SECRET) && !output.stderr.contains(SECRET), "{level}: {output:?}");
    }
    let error = shell.run("get ippool --log-level loud").error();
    assert_eq!(error, "unknown log level: loud, expected one of: panic, fatal, error, warn, info, debug\n");
}
