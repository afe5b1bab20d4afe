//! `calicoctl explain` on manifests, on a datastore, and on both.

use crate::harness::Shell;
use testkit::{ApiServer, Etcd};

const PODS: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  template:
    metadata: {labels: {app: web}}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec:
  nodeName: n1
  containers: [{name: db, ports: [{name: sql, containerPort: 5432}]}]
status: {podIP: 10.65.0.9}
";

const POLICY: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 5432}]
";

/// A common mistake in policies: `from` where `to` belongs.
const MISTAKE: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: out, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Egress]
  egress:
  - from: [{podSelector: {matchLabels: {app: db}}}]
";

fn manifests(shell: &Shell) -> String {
    shell.file("manifests/pods.yaml", PODS);
    shell.file("manifests/policies/db.yaml", POLICY);
    shell.path("manifests").display().to_string()
}

#[test]
fn manifests_are_explained_without_a_datastore() {
    let shell = Shell::embedded();
    let folder = manifests(&shell);
    let ask = |words: &str| shell.run(&format!("explain --offline {folder} -n shop {words}"));
    let allowed = ask("--from web --to db:5432");
    assert!(allowed.success, "{allowed:?}");
    assert!(allowed.stdout.starts_with("ALLOWED  pod shop/web ("), "{}", allowed.stdout);
    assert!(
        allowed
            .stdout
            .contains("+ spec.ingress[0]  Allow TCP from namespace shop and app == 'web' to port 5432"),
        "{}",
        allowed.stdout
    );
    assert!(allowed.stderr.contains("Note: addresses are assumed"), "{}", allowed.stderr);
    let denied = ask("--from web --to db --protocol icmp").stdout;
    assert!(denied.starts_with("DENIED  pod shop/web"), "{denied}");
    assert!(denied.contains("protocol is TCP, the packet is ICMP"), "{denied}");
    let json: serde_json::Value =
        serde_json::from_str(&ask("--from web --to db:80 -o json").stdout).expect("JSON");
    assert_eq!(json["verdict"], "deny");
    assert_eq!(json["flows"][0]["stages"][1]["outcome"], "deny");
    let yaml = ask("--from web --to db:5432 -o yaml").stdout;
    assert!(yaml.contains("verdict: allow"), "{yaml}");
}

#[test]
fn from_under_egress_is_reported_and_shown() {
    let shell = Shell::embedded();
    let folder = manifests(&shell);
    shell.file("manifests/out.yaml", MISTAKE);
    let found = shell.run(&format!("explain --offline {folder} --from shop/web --to shop/db:5432"));
    assert!(found.stdout.starts_with("DENIED  "), "{}", found.stdout);
    assert!(
        found.stdout.contains("spec.egress[0].from is not a field of this rule: did you mean `to`?"),
        "{}",
        found.stdout
    );
    let warning = "Warning: NetworkPolicy shop/out: spec.egress[0].from is not a field of this rule: did you mean `to`?";
    assert!(found.stderr.contains(warning), "{}", found.stderr);
}

#[test]
fn changes_of_an_apply_are_shown() {
    let shell = Shell::embedded();
    shell.file("now/pods.yaml", PODS);
    let now = shell.path("now").display().to_string();
    let policy = shell.file("policy.yaml", POLICY);
    let found = shell.run(&format!("explain --offline {now} --with {policy} -n shop --from web --to db:80"));
    assert!(found.stdout.starts_with("would change from allowed to denied\nbefore: "), "{}", found.stdout);
    let found =
        shell.run(&format!("explain --offline {now} --with {policy} -n shop --from web --to db:5432"));
    assert!(found.stdout.starts_with("would stay allowed\n"), "{}", found.stdout);
    let found = shell.run(&format!("explain matrix --offline {now} --with {policy} --port 80"));
    assert!(
        found.stdout.contains("would change:\n  shop/db -> shop/db:80: allow becomes deny\n"),
        "{}",
        found.stdout
    );
}

#[test]
fn the_datastore_is_explained() {
    let shell = Shell::embedded();
    let objects = shell.file(
        "objects.yaml",
        "\
apiVersion: projectcalico.org/v3
kind: Profile
metadata: {name: all}
spec:
  ingress: [{action: Allow}]
  egress: [{action: Allow}]
---
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: n1}
---
apiVersion: projectcalico.org/v3
kind: WorkloadEndpoint
metadata: {namespace: shop, labels: {app: web}}
spec:
  orchestrator: k8s
  node: n1
  pod: web
  endpoint: eth0
  interfaceName: cali1
  ipNetworks: [10.65.0.1/32]
  profiles: [all]
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: no-telnet}
spec:
  selector: app == 'web'
  types: [Ingress]
  ingress:
  - {action: Deny, protocol: TCP, destination: {ports: [23]}}
  - {action: Allow}
",
    );
    assert!(shell.run(&format!("create -f {objects}")).success);
    let text = shell.run("explain --from 203.0.113.7 --to shop/web:23").text();
    assert!(
        text.starts_with(
            "DENIED  outside the cluster (203.0.113.7) -> pod shop/web (10.65.0.1), TCP port 23\n"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "rule ingress[0] (Deny TCP to port 23) of GlobalNetworkPolicy no-telnet (tier default)"
        ),
        "{text}"
    );
    let text = shell.run("explain --from shop/web --to node:n1:80 --default-endpoint-to-host-action accept");
    assert!(text.stderr.contains("node:n1:80 has no known address"), "{text:?}");
    let text = shell.run("explain --from shop/web --to 203.0.113.7:80").text();
    assert!(text.starts_with("ALLOWED  "), "{text}");
}

#[test]
fn expectations_are_tested() {
    let shell = Shell::embedded();
    let folder = manifests(&shell);
    let good = shell.file(
        "good.yaml",
        "namespace: shop\ntests:\n- {name: shop, from: web, to: 'db:5432', expect: allow}\n- {from: 203.0.113.7, to: 'db:5432', expect: deny}\n",
    );
    let report = shell.path("report.xml").display().to_string();
    let found = shell.run(&format!("explain test {good} --offline {folder} --junit {report}"));
    assert!(found.success, "{found:?}");
    assert!(found.stdout.ends_with("2 tests, 0 failed\n"), "{}", found.stdout);
    let xml = std::fs::read_to_string(&report).expect("the report");
    assert!(xml.contains("tests=\"2\" failures=\"0\""), "{xml}");
    let bad = shell.file("bad.yaml", "tests:\n- {from: shop/web, to: 'shop/db:80', expect: allow}\n");
    let found = shell.run(&format!("explain test {bad} --offline {folder}"));
    assert!(found.stdout.contains("FAILED  shop/web -> shop/db:80 (allow)"), "{}", found.stdout);
    assert!(found.error().ends_with("1 of 1 expectation is not met\n"));
    shell.file("manifests/out.yaml", MISTAKE.replace("app: web", "app: other"));
    assert!(shell.run(&format!("explain test {good} --offline {folder}")).success);
    let strict = shell.run(&format!("explain test {good} --offline {folder} --strict"));
    assert!(strict.error().ends_with("1 mistake in what was read\n"));
}

#[test]
fn mistakes_are_reported_in_a_sentence() {
    let shell = Shell::embedded();
    let folder = manifests(&shell);
    let expectations = shell.file("typo.yaml", "tests:\n- {from: a, to: b, expects: allow}\n");
    let number = shell.file("number.yaml", "tests:\n- {from: a, to: b, expect: allow, port: 70000}\n");
    for (line, message) in [
        (
            format!("explain --offline {folder} --from shop/wep --to shop/db:80"),
            "pod, service or node 'shop/wep' not found: did you mean `shop/web`?",
        ),
        (format!("explain --offline {folder} --from shop/web --to shop/db"), "which port?"),
        (
            format!("explain --offline {folder} --from shop/web --to shop/db:1 --protocol smoke"),
            "'smoke' is not a protocol",
        ),
        (
            format!("explain --offline {folder} --from shop/web --to shop/db:1 -o xml"),
            "unrecognized output format 'xml'",
        ),
        (format!("explain --offline {folder} --from shop/web"), "--to"),
        ("explain --offline /nonexistent --from a --to b:1".to_owned(), "no such file or directory"),
        (format!("explain test {expectations} --offline {folder}"), "typo.yaml:2:20"),
        (format!("explain test {expectations} --offline {folder}"), "did you mean `expect`?"),
        (format!("explain test {number} --offline {folder}"), "number.yaml: invalid value"),
    ] {
        let error = shell.run(&line).error();
        assert!(error.contains(message), "{line}: {error}");
    }
}

const IN_KUBERNETES: &str = r#"
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "test-web1", "namespace": "default", "labels": {"app": "test1"}},
   "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "c"}]}},
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "test-web2", "namespace": "default", "labels": {"app": "test2"},
    "annotations": {"cni.projectcalico.org/podIP": "192.168.1.6/32", "cni.projectcalico.org/podIPs": "192.168.1.6/32"}},
   "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "c"}]}},
  {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
   "spec": {"selector": {"app": "test1"}, "ports": [{"port": 8080, "targetPort": 80}]}},
  {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "denyall", "namespace": "default"},
   "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}},
  {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "to-test1", "namespace": "default"},
   "spec": {"podSelector": {"matchLabels": {"app": "test1"}}, "policyTypes": ["Ingress"],
    "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "test2"}}}], "ports": [{"port": 80}]}]}}
]}"#;

/// What users experience when they write their first policies, on a real kube-apiserver: everything is denied, then one
/// port is opened, first with a mistake and then without.
#[test]
fn a_cluster_of_kubernetes_is_explained() {
    let etcd = Etcd::start().expect("starting etcd");
    let api_server = ApiServer::start(&etcd.endpoint()).expect("starting kube-apiserver");
    let shell = Shell::kubernetes(&api_server, "explain-kubernetes");
    api_server.kubectl_with_input(&["create", "-f", "-"], IN_KUBERNETES).expect("creating the objects");

    let found = shell.run("explain --from test-web2 --to test-web1:80");
    assert!(found.stdout.starts_with("DENIED  pod default/test-web2 (192.168.1.6)"), "{found:?}");
    assert!(found.stdout.contains("Kubernetes NetworkPolicy default/denyall"), "{}", found.stdout);
    let policy = |word: &str| {
        MISTAKE
            .replace("namespace: shop", "namespace: default")
            .replace("app: web", "app: test2")
            .replace("app: db", "app: test1")
            .replace("- from:", &format!("- {word}:"))
    };
    let wrong = shell.file("wrong.yaml", policy("from"));
    let found = shell.run(&format!("explain --with {wrong} --from test-web2 --to test-web1:80"));
    assert!(found.stdout.starts_with("would stay denied\n"), "{found:?}");
    assert!(found.stderr.contains("did you mean `to`?"), "{found:?}");
    let right = shell.file("right.yaml", policy("to"));
    for (to, first) in [
        ("test-web1:80", "would change from denied to allowed\n"),
        ("web:8080", "would change from denied to allowed\n"),
        ("test-web1:81", "would stay denied\n"),
    ] {
        let found = shell.run(&format!("explain --with {right} --from test-web2 --to {to}"));
        assert!(found.stdout.starts_with(first), "{to}: {found:?}");
    }
}

#[test]
fn two_words_are_a_question() {
    let shell = Shell::embedded();
    let folder = manifests(&shell);
    let found = shell.run(&format!("explain --offline {folder} shop/web shop/db:5432"));
    assert!(found.stdout.starts_with("ALLOWED  pod shop/web ("), "{found:?}");
    let both = shell.run(&format!("explain --offline {folder} --from shop/web shop/web shop/db:5432"));
    assert!(!both.success, "{both:?}");
    let one = shell.run(&format!("explain --offline {folder} shop/web"));
    assert!(!one.success, "{one:?}");
}

#[test]
fn the_matrix_is_written_as_a_page() {
    let shell = Shell::embedded();
    shell.file("now/pods.yaml", PODS);
    let now = shell.path("now").display().to_string();
    let policy = shell.file("policy.yaml", POLICY);
    let page = shell.path("matrix.html");
    let words = format!("explain matrix --offline {now} --with {policy} --html {}", page.display());
    let found = shell.run(&words);
    assert!(found.success, "{found:?}");
    let html = std::fs::read_to_string(&page).expect("the page");
    assert!(html.contains("Kubernetes NetworkPolicy shop/db") && html.contains(&policy), "{html}");
    let unwritable = shell.run(&format!("explain matrix --offline {now} --html {now}/no/such/folder.html"));
    assert!(!unwritable.success && unwritable.stderr.contains("cannot write"), "{unwritable:?}");
    // A port that no pod declares and no policy names was not tested, and the answer reports that.
    let same = shell.run(&format!("explain matrix --offline {now} --with {now}"));
    let ports = "nothing would change for the 4 connections tested on ports 80, 5432\n";
    assert!(same.stdout.ends_with(ports), "{}", same.stdout);
    shell.file("one/pod.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: only}}");
    let one = shell.path("one").display().to_string();
    let same = shell.run(&format!("explain matrix --offline {one} --with {one}"));
    assert!(same.stdout.ends_with("for the 1 connection tested on port 80\n"), "{}", same.stdout);
}

#[test]
fn an_analysis_names_file_and_line() {
    let shell = Shell::embedded();
    shell.file("manifests/pods.yaml", PODS);
    let policy = "\
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  selector: app == 'db'
  types: [Ingress]
  ingress:
  - action: Allow
    source: {nets: [10.0.0.0/8]}
  - action: Deny
    source: {nets: [10.1.0.0/16]}
";
    let file = shell.file("manifests/db.yaml", policy);
    let folder = shell.path("manifests").display().to_string();
    let found = shell.run(&format!("analyze --offline {folder}"));
    let expected = format!(
        "{file}:10: warning: NetworkPolicy shop/db spec.ingress[1]: never reached: rule ingress[0] (Allow from 10.0.0.0/8) matches \
         everything that it matches\n    move it before ingress[0], or remove it\n"
    );
    assert!(found.success && found.stdout.contains(&expected), "{}", found.stdout);
    let strict = shell.run(&format!("analyze --offline {folder} --exit-code -o json"));
    assert!(!strict.success, "{strict:?}");
    let json: serde_json::Value = serde_json::from_str(&strict.stdout).expect("JSON");
    assert_eq!(json["findings"][0]["check"], "never-reached");
    assert_eq!(json["findings"][0]["place"], format!("{file}:10"));
}

#[test]
fn an_analysis_of_the_datastore_includes_pools() {
    let shell = Shell::embedded();
    let objects = shell.file(
        "objects.yaml",
        "\
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: n1}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: elsewhere}
spec: {cidr: 10.65.0.0/24, nodeSelector: \"rack == 'z'\"}
",
    );
    assert!(shell.run(&format!("apply -f {objects}")).success);
    let found = shell.run("analyze");
    assert!(
        found.stdout.contains(
            "warning: IPPool elsewhere spec.nodeSelector: no node may use it: none is selected by rack == 'z'"
        ),
        "{found:?}"
    );
}
