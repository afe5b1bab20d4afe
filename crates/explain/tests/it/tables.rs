//! Clusters, queries and the exact text of the answers, in `tests/data/*.txt`:
//!
//! ```text
//! <manifests>
//! === <from> -> <to> [protocol]
//! <the answer>
//! === problems
//! <what was wrong with the manifests>
//! ```
//!
//! `UPDATE_EXPECT=1 cargo test -p explain` rewrites the answers; review the difference.

use crate::yaml;
use explain::{
    Addresses, Cluster, Expectations, MatrixOptions, PoolRoom, Protocol, Query, analyze, evaluate, matrices,
    matrix, test_file, to_junit,
};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn cluster(manifests: &str) -> Cluster {
    let mut cluster = Cluster::new();
    for document in yaml::documents(manifests) {
        cluster.add_manifest(document).unwrap_or_else(|error| panic!("{error}"));
    }
    cluster.complete();
    cluster
}

fn answer(cluster: &Cluster, question: &str) -> String {
    match question {
        "problems" => cluster.problems().iter().fold(String::new(), |out, problem| out + problem + "\n"),
        "notes" => cluster.notes().iter().fold(String::new(), |out, note| out + note + "\n"),
        "analyze" => analyze(cluster, None).to_text(|_| None),
        "matrix" => matrix(cluster, &MatrixOptions::default()).expect("a matrix").to_text(),
        _ => {
            let (from, to) = question.split_once(" -> ").expect("from -> to");
            let mut words = to.split(' ');
            let query = Query {
                from: from.to_owned(),
                to: words.next().expect("to").to_owned(),
                protocol: words.next().map(|name| Protocol::from_text(name).expect("a protocol")),
                ..Query::default()
            };
            match evaluate(cluster, &query) {
                Ok(explanation) => explanation.to_text(words.next() == Some("-v")),
                Err(error) => format!("error: {error}\n"),
            }
        }
    }
}

fn check(path: &Path) {
    let text = std::fs::read_to_string(path).expect("a fixture");
    let mut sections = text.split("\n=== ");
    let manifests = sections.next().expect("manifests");
    let cluster = cluster(manifests);
    let mut found = manifests.to_owned();
    for section in sections {
        let question = section.lines().next().expect("a question").trim();
        write!(found, "\n=== {question}\n{}", answer(&cluster, question)).expect("text");
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &found).expect("the fixture written");
    } else {
        assert_eq!(text, found, "{} differs", path.display());
    }
}

#[test]
fn explanations_are_as_written() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut fixtures: Vec<_> =
        std::fs::read_dir(folder).expect("fixtures").map(|entry| entry.expect("an entry").path()).collect();
    fixtures.sort();
    assert!(fixtures.len() >= 4, "{fixtures:?}");
    for fixture in fixtures {
        check(&fixture);
    }
}

const SMALL: &str = "
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {app: a}}
---
apiVersion: v1
kind: Pod
metadata: {name: b, labels: {app: b}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: only-80}
spec:
  podSelector: {matchLabels: {app: b}}
  ingress:
  - ports: [{port: 80}]
";

fn expectations(text: &str) -> Result<Expectations, explain::ExpectationError> {
    Expectations::read("tests.yaml", text).map(|mut found| found.remove(0))
}

#[test]
fn expectations_are_tested_pair_by_pair() {
    let cluster = cluster(SMALL);
    let text = "
tests:
- name: web & <port>
  from: [a, 203.0.113.7]
  to: ['b:80', 'b:443']
  expect: allow
- from: a
  to: b
  protocol: icmp
  expect: deny
- from: nobody
  to: 'b:80'
  expect: deny
";
    let report = test_file(&cluster, &expectations(text).expect("expectations"));
    let passed: Vec<bool> = report.cases.iter().map(|case| case.passed).collect();
    assert_eq!(passed, [true, false, true, false, true, false], "{}", report.to_text());
    assert_eq!(report.failures(), 3);
    assert!(report.to_text().ends_with("\n6 tests, 3 failed\n"));
    let junit = to_junit(&report, "policy.yaml");
    assert!(
        junit.contains("<testsuite name=\"policy.yaml\" tests=\"6\" failures=\"3\" errors=\"0\">"),
        "{junit}"
    );
    assert!(junit.contains("name=\"web &amp; &lt;port&gt;: a -&gt; b:443\""), "{junit}");
    assert!(
        junit.contains("<failure message=\"expected deny, found no answer\">pod, service or node"),
        "{junit}"
    );
}

#[test]
fn mistakes_in_expectations_are_errors() {
    for (text, expected) in [
        ("tests: [{from: a, to: b, expects: allow}]", "did you mean `expect`?"),
        ("tests:\n- {from: a, to: b, expects: allow}", "tests.yaml:2:20"),
        ("testz: [{from: a, to: b, expect: allow}]", "did you mean `tests`?"),
        ("tests: [{from: a, to: b, expect: perhaps}]", "allowed: allow, deny"),
        ("tests: [{from: a, to: b, expect: alow}]", "allowed: allow, deny"),
        ("tests: [{from: a, expect: allow}]", "missing field `to`"),
        ("tests: [{from: a, to: b, expect: allow, port: http}]", "expected a whole number"),
        ("tests: [{from: a, to: b, expect: allow, port: 70000}]", "70000"),
        ("tests: [{from: a, to: {b: c}, expect: allow}]", "tests.yaml: "),
        ("tests: [{from: a, to: b, expect: deny, protocol: smoke}]", "'smoke' is not a protocol"),
        ("namespace: shop", "missing field `tests`"),
        ("tests: [", "not valid YAML"),
        ("tests: []", "contains no tests"),
        ("tests: [{from: [], to: b, expect: deny}]", "contains no tests"),
    ] {
        let error = expectations(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn ends_and_protocols_are_parsed_leniently() {
    let text = "tests:\n- {from: a, to: [b, 'c:80'], Protocol: 6, expect: Allow}\n- {from: [a], to: b, protocol: UDP, expect: deny}\n";
    let found = expectations(text).expect("expectations");
    let [one, other] = found.tests.as_slice() else { panic!("{found:?}") };
    assert_eq!((one.to.len(), one.protocol, one.expect), (2, Some(Protocol(6)), explain::Verdict::Allow));
    assert_eq!(
        (other.from.len(), other.protocol, other.expect),
        (1, Some(Protocol(17)), explain::Verdict::Deny)
    );
    let documents =
        Expectations::read("two.yaml", &format!("{text}---\n---\n{text}")).expect("two documents");
    assert_eq!(documents.len(), 2);
    assert!(Expectations::read("none.yaml", "").expect("nothing").is_empty());
    let loud = expectations("tests: [{from: a, to: b, expect: ALLOW}]").expect("expectations");
    assert_eq!(loud.tests[0].expect, explain::Verdict::Allow);
}

#[test]
fn an_overlay_shows_what_would_change() {
    let mut stored = cluster(SMALL);
    let query = Query { from: "a".into(), to: "b:443".into(), ..Query::default() };
    assert_eq!(evaluate(&stored, &query).expect("an answer").verdict, explain::Verdict::Deny);
    let mut wanted = Cluster::new();
    let policy = SMALL.split("---").last().expect("the policy").replace("port: 80", "port: 443");
    wanted.add_manifest(yaml::documents(&policy).remove(0)).expect("a policy");
    stored.overlay(&wanted);
    stored.complete();
    let explanation = evaluate(&stored, &query).expect("an answer");
    assert_eq!(explanation.verdict, explain::Verdict::Allow, "{}", explanation.to_text(true));
}

#[test]
fn a_policy_for_a_port_that_no_pod_declares_still_shows_what_it_changes() {
    let db = "
apiVersion: v1
kind: Pod
metadata: {name: db, labels: {app: db}}
spec: {containers: [{name: db, ports: [{containerPort: 5432}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed}
spec: {podSelector: {}}
";
    let opened = |port: u16| {
        format!(
            "{db}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{name: opened}}
spec:
  podSelector: {{matchLabels: {{app: db}}}}
  ingress: [{{ports: [{{port: {port}}}]}}]
"
        )
    };
    for port in [5432, 9187] {
        let (before, after) =
            matrices(&cluster(db), &cluster(&opened(port)), &MatrixOptions::default()).expect("matrices");
        let expected: Vec<String> = ["db", "web"]
            .map(|name| format!("default/{name} -> default/db:{port}: deny becomes allow"))
            .into();
        assert_eq!(after.changes_from(&before), expected);
        assert!(after.ports().contains(&5432), "{:?}", after.ports());
        let html = after.to_page(Some(&before)).to_html();
        assert!(html.contains("class=\"allowed opened\"") && html.contains("What would change"), "{html}");
    }
}

#[test]
fn all_declared_ports_are_tested_and_omitted_ports_are_listed() {
    let ports =
        |first: u16, count: u16| (first..first + count).map(|port| port.to_string()).collect::<Vec<_>>();
    let declared = ports(9000, 2).iter().map(|port| format!("{{containerPort: {port}}}")).collect::<Vec<_>>();
    let manifests = format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: db, labels: {{app: db}}}}
spec: {{containers: [{{name: db, ports: [{}]}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: web, labels: {{app: web}}}}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {{name: many}}
spec:
  selector: app == 'db'
  ingress:
  - {{action: Allow, protocol: TCP, destination: {{ports: [{}, '7000:7999']}}}}
---
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {{name: out}}
spec:
  selector: app == 'web'
  types: [Egress]
  egress:
  - {{action: Allow, protocol: TCP, destination: {{selector: app == 'web', ports: [8443]}}}}
  - {{action: Allow, protocol: TCP, destination: {{nets: [192.0.2.0/24], ports: [25]}}}}
",
        declared.join(", "),
        ports(6000, 15).join(", "),
    );
    let found = matrix(&cluster(&manifests), &MatrixOptions::default()).expect("a matrix");
    let of = |name: &str| -> Vec<u16> {
        let port = |receiver: &String| receiver.strip_prefix(name)?.strip_prefix(':')?.parse().ok();
        found.receivers.iter().filter_map(port).collect()
    };
    assert_eq!(of("default/db"), (6000..6014).chain([9000, 9001]).collect::<Vec<u16>>());
    assert_eq!(of("default/web"), [8443]);
    assert_eq!(found.not_asked, [6014, 7000]);
    assert!(found.to_text().ends_with("2 more ports were not tested: 6014, 7000\n"), "{}", found.to_text());
    assert!(found.to_page(None).to_html().contains("2 more ports were not tested: 6014, 7000"));
    let asked = MatrixOptions { port: Some(80), ..MatrixOptions::default() };
    assert!(matrix(&cluster(&manifests), &asked).expect("a matrix").not_asked.is_empty());
}

#[test]
fn pools_are_judged_by_their_free_addresses() {
    let pool = "
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: small}
spec: {cidr: 10.0.0.0/28, blockSize: 28}
---
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: n1}
";
    let room = |reserved, available| Addresses {
        pools: [("small".to_owned(), PoolRoom { capacity: 16, reserved, available })].into(),
        orphans: vec!["10.9.0.0/28".parse().expect("a network")],
        blocks: vec![
            ("10.0.0.0/28".parse().expect("a network"), Some("n1".to_owned())),
            ("10.0.0.16/28".parse().expect("a network"), Some("gone".to_owned())),
        ],
    };
    let checks = |room: &Addresses| -> Vec<&'static str> {
        analyze(&cluster(pool), Some(room)).findings.iter().map(|finding| finding.check).collect()
    };
    assert_eq!(checks(&room(0, 3)), ["block-without-node", "block-without-pool"]);
    assert_eq!(checks(&room(0, 0)), ["block-without-node", "block-without-pool", "pool-full"]);
    assert_eq!(checks(&room(16, 0)), ["block-without-node", "block-without-pool", "pool-reserved"]);
}
