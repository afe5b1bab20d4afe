//! Runs the optional parts of our manifests: once the API server with Goldmane and the page, and once custom resources
//! of `projectcalico.org/v3` with their webhooks, and Typha. Each variant must then pass every check of an ordinary
//! installation.

use crate::bed::{Bed, items, name};
use crate::checks;
use crate::pods::Pod;
use crate::waiting::until;
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;
use testkit::{Process, kubernetes_program, program};

/// Which of the two variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Components {
    /// The aggregated API server, Goldmane and Whisker.
    ApiServer,
    /// Definitions of `projectcalico.org/v3`, webhooks and Typha.
    V3Definitions,
}

const GOLDMANE: &str = "10.96.0.50";
const FLOWS: &str = "e2e-flows";
const PAGE_PORT: u16 = 8081;

impl Components {
    /// Creates what the manifest expects its user to provide; returns the settings to generate it with.
    pub(crate) fn prepare(self, bed: &Bed) -> Result<Vec<String>> {
        match self {
            Self::ApiServer => {
                bed.apply(&[
                    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "calico-apiserver"}}),
                ])?;
                let server = ["calico-api.calico-apiserver.svc"];
                let authority = secret(
                    bed,
                    "calico-apiserver",
                    "calico-apiserver-certs",
                    ["apiserver.crt", "apiserver.key", "ca.crt"],
                    &server,
                )?;
                let goldmane = ["goldmane.kube-system.svc"];
                secret(bed, "kube-system", "goldmane-tls", ["tls.crt", "tls.key", "ca.crt"], &goldmane)?;
                Ok(vec![
                    "apiServer.enabled=true".to_owned(),
                    format!("apiServer.caBundle={authority}"),
                    "goldmane.enabled=true".to_owned(),
                    format!("goldmane.clusterIP={GOLDMANE}"),
                    "whisker.enabled=true".to_owned(),
                    // Seconds instead of minutes until flows are on the page.
                    "node.env.FELIX_FLOWLOGSFLUSHINTERVAL=2".to_owned(),
                ])
            }
            Self::V3Definitions => {
                let server = ["calico-webhooks.kube-system.svc"];
                let keys = ["tls.crt", "tls.key", "ca.crt"];
                let authority = secret(bed, "kube-system", "calico-webhooks-tls", keys, &server)?;
                Ok(vec![
                    "useV3CRDs=true".to_owned(),
                    format!("webhooks.caBundle={authority}"),
                    "typha.enabled=true".to_owned(),
                ])
            }
        }
    }

    /// Runs all checks of the variant.
    pub(crate) fn run(self, bed: &mut Bed) -> Result<()> {
        match self {
            Self::ApiServer => {
                bed.settled("calico-apiserver")?;
                bed.lead_to_pods()?;
                aggregated(bed).context("check of the API server")?;
                println!("e2e: ✓ kubectl works on projectcalico.org/v3 through the aggregation layer");
                page(bed).context("check of Goldmane and the page")?;
                println!("e2e: ✓ flows of a pod are on the page");
            }
            Self::V3Definitions => {
                bed.lead_to_pods()?;
                admission(bed).context("check of the webhooks")?;
                println!("e2e: ✓ webhooks and admission policies decide about projectcalico.org/v3");
                let count = typha(bed).context("check of Typha")?;
                println!("e2e: ✓ nodes are connected to Typha: {count} connections");
            }
        }
        checks::run(bed)
    }
}

/// Creates a secret with a certificate for a server of these names, its key, and its signer, under these keys; returns
/// the last in base64.
fn secret(bed: &Bed, namespace: &str, name: &str, keys: [&str; 3], names: &[&str]) -> Result<String> {
    let texts = bed.plane.certificate_for(name, names)?;
    let data: serde_json::Map<String, Value> =
        keys.iter().zip(texts).map(|(key, text)| ((*key).to_owned(), json!(text))).collect();
    bed.apply(&[json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": data,
    })])?;
    let stored = bed.plane.get(&["secret", "-n", namespace, name])?;
    let authority = stored["data"][keys[2]].as_str().context("a secret has its data")?;
    Ok(authority.to_owned())
}

fn network_policy(policy: &str, selector: &str) -> String {
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "NetworkPolicy",
        "metadata": {"name": policy, "namespace": "default"},
        "spec": {"selector": selector, "ingress": [{"action": "Allow"}]},
    })
    .to_string()
}

/// Runs `kubectl`, which must be refused with this reason.
fn refused(bed: &Bed, words: &[&str], input: &str, reason: &str) -> Result<()> {
    let output = bed.plane.try_kubectl(words, input)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(
        !output.status.success() && said.contains(reason),
        "kubectl {words:?} was not refused: {output:?}"
    );
    Ok(())
}

fn aggregated(bed: &Bed) -> Result<()> {
    until("projectcalico.org/v3 to be served", || {
        let service = bed.plane.get(&["apiservice", "v3.projectcalico.org"])?;
        ensure!(crate::bed::is_true(&service, "Available"), "{}", service["status"]);
        bed.plane.kubectl(&["get", "networkpolicies.projectcalico.org", "-A"])
    })?;
    bed.plane.kubectl_with_input(&["create", "-f", "-"], &network_policy("default.e2e", "a == 'b'"))?;
    // The same object through both APIs.
    let seen = bed.plane.get(&["networkpolicies.projectcalico.org", "-n", "default", "default.e2e"])?;
    ensure!(seen["spec"]["tier"] == "default", "{seen}");
    let stored = bed.plane.get(&["networkpolicies.crd.projectcalico.org", "-n", "default"])?;
    ensure!(items(&stored).iter().any(|one| name(one) == "default.e2e"), "{stored}");
    refused(bed, &["create", "-f", "-"], &network_policy("default.bad", "a =="), "selector")?;
    let nodes = bed.plane.get(&["ippools.projectcalico.org"])?;
    ensure!(!items(&nodes).is_empty(), "no pool is shown");
    bed.plane
        .kubectl(&["delete", "networkpolicies.projectcalico.org", "-n", "default", "default.e2e"])
        .map(drop)
}

fn admission(bed: &Bed) -> Result<()> {
    let kind = "networkpolicies.projectcalico.org";
    until("webhooks to answer", || {
        bed.plane.kubectl_with_input(&["apply", "-f", "-"], &network_policy("e2e", "a == 'b'"))
    })?;
    let seen = bed.plane.get(&[kind, "-n", "default", "e2e"])?;
    let labels = seen["metadata"]["labels"].as_object();
    let is_labelled =
        labels.into_iter().flatten().any(|(key, value)| key.ends_with("/tier") && value == "default");
    ensure!(is_labelled, "{seen}");
    ensure!(seen["spec"]["types"] == json!(["Ingress"]), "{seen}");
    refused(bed, &["delete", "tiers.projectcalico.org", "default"], "", "cannot be deleted")?;
    // Joe may write policies, but has no rights on any tier.
    let role = |rules: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "e2e-joe"}, "rules": rules})
    };
    let mut rules =
        vec![json!({"apiGroups": ["projectcalico.org"], "resources": ["networkpolicies"], "verbs": ["*"]})];
    bed.apply(&[
        role(json!(rules)),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "e2e-joe"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e2e-joe"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}]}),
    ])?;
    let as_joe = ["create", "--as=joe", "-f", "-"];
    let policy = network_policy("joes", "a == 'b'");
    until("Joe's policy to be refused by the webhook", || refused(bed, &as_joe, &policy, "tier"))?;
    rules.extend([
        json!({"apiGroups": ["projectcalico.org"], "resources": ["tiers"], "resourceNames": ["default"], "verbs": ["get"]}),
        json!({"apiGroups": ["projectcalico.org"], "resources": ["tier.networkpolicies"], "verbs": ["*"]}),
    ]);
    bed.apply(&[role(json!(rules))])?;
    until("Joe's policy to be taken", || bed.plane.kubectl_with_input(&as_joe, &policy))?;
    bed.plane.kubectl(&["delete", kind, "-n", "default", "e2e", "joes"])?;
    bed.plane.kubectl(&["delete", "clusterrole,clusterrolebinding", "e2e-joe"]).map(drop)
}

/// Checks that every node has a connection to Typha.
fn typha(bed: &Bed) -> Result<usize> {
    let mut count = 0;
    for node in &bed.nodes {
        count += until(&format!("{} to be connected", node.name), || {
            let listed = node
                .machine
                .must("ss", &["-H", "-t", "-n", "state", "established", "dport", "=", ":5473"])?;
            let found = listed.lines().count();
            ensure!(found > 0, "no connection to port 5473");
            Ok(found)
        })?;
    }
    Ok(count)
}

/// Checks that a denied and an allowed connection appear on the page, which is opened like users do.
fn page(bed: &mut Bed) -> Result<()> {
    let node = bed.nodes[0].name.clone();
    let pod = |name| Pod { namespace: FLOWS, name, node: node.clone(), is_host: false, host_port: None };
    let pods = [pod("caller"), pod("callee")];
    let targets = bed.pods(&[FLOWS], &pods)?;
    let mut forward = forward(bed)?;
    let outcome = until("flows on the page", || {
        forward.check_running()?;
        bed.measure(&pods, &targets)?;
        let front = ask(bed, "/")?;
        ensure!(front.starts_with("http/1.1 200") && front.contains("<!doctype html"), "the page: {front}");
        let flows = ask(bed, "/api/v1/flows")?;
        ensure!(flows.contains("caller") && flows.contains("callee"), "no flow of these pods yet: {flows}");
        Ok(())
    });
    drop(forward);
    outcome.context("asking the page")?;
    bed.remove(&[FLOWS])
}

/// `kubectl port-forward`, as in the manifest's instructions.
fn forward(bed: &Bed) -> Result<Process> {
    let words = [
        format!("--net=/var/run/netns/{}", bed.plane.namespace().name()),
        kubernetes_program("kubectl")?.display().to_string(),
        "--kubeconfig".to_owned(),
        bed.plane.admin().display().to_string(),
        "-n".to_owned(),
        "kube-system".to_owned(),
        "port-forward".to_owned(),
        "deployment/whisker".to_owned(),
        PAGE_PORT.to_string(),
    ];
    let nsenter = program("nsenter", "install Debian's util-linux")?;
    Process::start(&nsenter, &words, &bed.folder().join("control-plane/port-forward.log"))
}

/// An answer of the page, including the HTTP header.
fn ask(bed: &Bed, path: &str) -> Result<String> {
    bed.plane.namespace().run(|| -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", PAGE_PORT)).context("connecting to the page")?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost:{PAGE_PORT}\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        if answer.is_empty() {
            bail!("an empty answer");
        }
        Ok(String::from_utf8_lossy(&answer).to_lowercase())
    })?
}
