//! `calicoctl flows`: what the tool passes to it. The rest is tested in the crate `flows-cli`.

use crate::harness::Shell;
use std::process::ExitCode;

const FLOW: &str = r#"{"start_time":"2026-01-01T00:00:00Z","end_time":"2026-01-01T00:00:15Z","action":"Allow","reporter":"Dst","source_type":"WorkloadEndpoint","source_namespace":"shop","source_name":"web-*","source_labels":["app=web"],"dest_type":"WorkloadEndpoint","dest_namespace":"shop","dest_name":"db-0","dest_labels":["app=db"],"protocol":"tcp","dest_port":5432,"policies":{"enforced":[{"kind":"Profile","name":"kns.shop","action":"Allow","policy_index":0,"rule_index":0}]},"packets_in":3}"#;

const CLOSED: &str = "\
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec: {selector: app == 'db', types: [Ingress]}
";

#[test]
fn streams_and_variables_are_passed_on() {
    let mut shell = Shell::embedded();
    let line = shell.pipe("flows --input-file - --to-pod shop/db-0", FLOW).text();
    assert_eq!(
        line,
        "2026-01-01T00:00:00Z dst shop/web-* -> shop/db-0:5432 tcp: ALLOWED by profile kns.shop rule 0; 3 packets, 0 B\n"
    );
    assert_eq!(shell.pipe("flows --input-file - --denied", FLOW).text(), "");
    assert!(shell.run("flows").error().starts_with("no source of flows"));
    shell.variables.insert("GOLDMANE_HOST".to_owned(), "localhost:1".to_owned());
    assert!(shell.run("flows").error().contains("cannot connect to localhost:1"));
}

#[test]
fn impact_on_the_datastore_and_on_manifests() {
    let shell = Shell::embedded();
    let policy = shell.file("closed.yaml", CLOSED);
    let output = shell.pipe(&format!("flows impact -f {policy} --exit-code --input-file -"), FLOW);
    assert_eq!(output.code, ExitCode::from(1), "{output:?}");
    assert!(output.stdout.starts_with("1 flow would be denied, 0 allowed"), "{output:?}");
    assert!(output.stdout.contains("NetworkPolicy shop/closed selects it"), "{output:?}");
    let output =
        shell.pipe(&format!("flows impact --offline {policy} -f {policy} --exit-code --input-file -"), FLOW);
    assert_eq!(output.code, ExitCode::SUCCESS, "{output:?}");
    assert!(output.stdout.starts_with("0 flows would be denied, 0 allowed"), "{output:?}");
    let output = shell.pipe("flows impact -f nothing.yaml --exit-code --input-file -", FLOW);
    assert_eq!(output.code, ExitCode::from(2), "{output:?}");
}
