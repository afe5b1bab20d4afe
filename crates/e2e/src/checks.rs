//! Checks of a cluster with our installation: pods reach each other across nodes, services and their names lead to
//! them, policy is enforced and reverted, a port of a node leads to its pod, and nothing restarted meanwhile.

mod images;
mod volumes;

use crate::bed::{Bed, items, name};
use crate::control_plane::PORT;
use crate::documents;
use crate::manifest::{REGISTRY, TAG};
use crate::pods::{Pod, Target};
use crate::waiting::until;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::time::Instant;

const NAMESPACES: [&str; 2] = ["e2e-blue", "e2e-green"];

type Check = (&'static str, fn(&mut Bed, &World) -> Result<String>);

/// The checks in order: later checks depend on the pods of earlier ones.
const CHECKS: [Check; 10] = [
    ("pods reach each other, and nodes", everybody),
    ("services lead to pods", services),
    ("names lead to services", names),
    ("a port of the node leads to its pod", host_port),
    ("a default deny holds, and an allow opens it", policy),
    ("Calico's own policy holds over the namespaces'", global_policy),
    ("images run by their arguments, not as root, and find names", |bed, _| images::run(bed)),
    ("volumes lead pods to Felix, by CSI and by FlexVolume", |bed, _| volumes::run(bed)),
    ("our own tools find the cluster well", tools),
    ("nothing restarted", restarts),
];

/// Checks that take a minute altogether, for a cluster that is checked repeatedly.
const BRIEF: [Check; 5] = [
    ("pods reach each other, and nodes", everybody),
    ("services lead to pods", services),
    ("a default deny holds, and an allow opens it", policy),
    ("Calico's own policy holds over the namespaces'", global_policy),
    ("nothing restarted", restarts),
];

/// The pods that all checks share.
struct World {
    pods: Vec<Pod>,
    targets: Vec<Target>,
}

impl World {
    /// Pods with their own network.
    fn guests(&self) -> Vec<Pod> {
        self.pods.iter().filter(|pod| !pod.is_host).cloned().collect()
    }

    fn target(&self, name: &str) -> Result<&Target> {
        self.targets.iter().find(|target| target.name == name).with_context(|| format!("no pod {name}"))
    }
}

/// Runs all checks.
pub(crate) fn run(bed: &mut Bed) -> Result<()> {
    run_these(bed, &CHECKS)
}

/// Runs the brief checks, with pods that are started for them.
pub(crate) fn run_brief(bed: &mut Bed) -> Result<()> {
    run_these(bed, &BRIEF)
}

fn run_these(bed: &mut Bed, checks: &[Check]) -> Result<()> {
    let start = Instant::now();
    let nodes: Vec<String> = bed.nodes.iter().map(|node| node.name.clone()).collect();
    let mut pods = Vec::new();
    for (namespace, node) in NAMESPACES.into_iter().flat_map(|it| nodes.iter().map(move |node| (it, node))) {
        let names = if *node == nodes[0] { ["a", "b"] } else { ["c", "d"] };
        for name in names {
            let host_port = (namespace == NAMESPACES[0] && name == "a").then_some(30080);
            pods.push(Pod { namespace, name, node: node.clone(), is_host: false, host_port });
        }
    }
    for (name, node) in ["host1", "host2"].into_iter().zip(&nodes) {
        let namespace = NAMESPACES[0];
        pods.push(Pod { namespace, name, node: node.clone(), is_host: true, host_port: None });
    }
    let targets = bed.pods(&NAMESPACES, &pods)?;
    println!("e2e:   {} pods ready ({:.1?})", pods.len(), start.elapsed());
    let world = World { pods, targets };
    for (what, check) in checks {
        let start = Instant::now();
        let said = check(bed, &world).with_context(|| format!("check that {what}"))?;
        println!("e2e: ✓ {what}: {said} ({:.1?})", start.elapsed());
    }
    bed.remove(&NAMESPACES)
}

fn everybody(bed: &mut Bed, world: &World) -> Result<String> {
    let count = bed.expect("without policy", &world.pods, &world.targets, |_, _| true)?;
    Ok(format!("{count} connections"))
}

fn services(bed: &mut Bed, world: &World) -> Result<String> {
    let namespace = NAMESPACES[1];
    let families = bed.plane.families;
    let versions = families.of_services();
    let policy = if versions.len() > 1 { "RequireDualStack" } else { "SingleStack" };
    let service = |name: &str, kind: &str, selector: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
            "spec": {"type": kind, "selector": selector, "ports": [{"port": 8000, "targetPort": 80}],
                "ipFamilies": versions, "ipFamilyPolicy": policy}})
    };
    bed.apply(&[
        service("one", "ClusterIP", json!({"pod": "a"})),
        service("port", "NodePort", json!({"pod": "d"})),
    ])?;
    let mut targets = Vec::new();
    for name in ["one", "port"] {
        bed.endpoints(namespace, name, 1)?;
        let object = bed.plane.get(&["service", "-n", namespace, name])?;
        let addresses = object["spec"]["clusterIPs"].as_array().context("a service has addresses")?;
        for address in addresses.iter().filter_map(Value::as_str) {
            targets.push(Target { name: format!("service {name}"), address: format!("{address}:8000") });
        }
        if let Some(port) = object["spec"]["ports"][0]["nodePort"].as_u64() {
            for number in 1..=bed.nodes.len() {
                for address in families.reached_at(number) {
                    targets.push(Target {
                        name: format!("port {port} of node{number}"),
                        address: format!("{address}:{port}"),
                    });
                }
            }
        }
    }
    let count = bed.expect("services", &world.pods, &targets, |_, _| true)?;
    Ok(format!("{count} connections"))
}

/// Every pod resolves the service of the previous check through the cluster's DNS.
fn names(bed: &mut Bed, world: &World) -> Result<String> {
    let namespace = NAMESPACES[1];
    let name = format!("one.{namespace}.svc.cluster.local");
    let object = bed.plane.get(&["service", "-n", namespace, "one"])?;
    let address = object["spec"]["clusterIP"].as_str().context("a service has an address")?;
    let mut count = 0;
    for pod in &world.pods {
        until(&format!("{} to find {name}", pod.full_name()), || {
            let server = bed.plane.families.name_server();
            let words = ["exec", "-n", pod.namespace, pod.name, "--", "nslookup", &name, &server];
            let output = bed.plane.try_kubectl(&words, "")?;
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(said.contains(address), "{said}{}", String::from_utf8_lossy(&output.stderr));
            Ok(())
        })?;
        count += 1;
    }
    Ok(format!("{count} pods"))
}

fn host_port(bed: &mut Bed, world: &World) -> Result<String> {
    let target =
        |address: &String| Target { name: "node1:30080".to_owned(), address: format!("{address}:30080") };
    let targets: Vec<Target> = bed.plane.families.reached_at(1).iter().map(target).collect();
    // From the other node, and from pods of both.
    let from: Vec<Pod> = world.pods.iter().filter(|pod| pod.name != "host1").cloned().collect();
    let count = bed.expect("the port of the node", &from, &targets, |_, _| true)?;
    Ok(format!("{count} connections"))
}

/// Whether a full name starts with this namespace.
fn is_in(full_name: &str, namespace: &str) -> bool {
    full_name.split('/').next() == Some(namespace)
}

fn policy(bed: &mut Bed, world: &World) -> Result<String> {
    let (blue, green) = (NAMESPACES[0], NAMESPACES[1]);
    let deny = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "deny", "namespace": green}, "spec": {"podSelector": {}, "policyTypes": ["Ingress"]}});
    bed.apply(&[deny])?;
    let guests = world.guests();
    let own = |from: &str, to: &str| from == to;
    let mut count =
        bed.expect("default deny", &guests, &world.targets, |from, to| !is_in(to, green) || own(from, to))?;
    let allow = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "allow", "namespace": green}, "spec": {
            "podSelector": {"matchLabels": {"pod": "c"}},
            "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"ns": blue}}, "podSelector": {"matchLabels": {"pod": "a"}}}],
                "ports": [{"port": 80}]}]}});
    bed.apply(&[allow])?;
    count += bed.expect("an allow", &guests, &world.targets, |from, to| {
        !is_in(to, green) || own(from, to) || (from == format!("{blue}/a") && to == format!("{green}/c"))
    })?;
    let egress = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "egress", "namespace": blue}, "spec": {
            "podSelector": {"matchLabels": {"pod": "b"}}, "policyTypes": ["Egress"],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"pod": "d"}}}]}]}});
    bed.apply(&[egress])?;
    let sender = format!("{blue}/b");
    count += bed.expect("egress", &guests, &world.targets, |from, to| {
        let is_let_in =
            !is_in(to, green) || own(from, to) || (from == format!("{blue}/a") && to == format!("{green}/c"));
        let is_let_out = from != sender || own(from, to) || to == format!("{blue}/d");
        is_let_in && is_let_out
    })?;
    bed.plane.kubectl(&["delete", "networkpolicy", "-n", green, "deny", "allow"])?;
    bed.plane.kubectl(&["delete", "networkpolicy", "-n", blue, "egress"])?;
    count += bed.expect("without policy again", &guests, &world.targets, |_, _| true)?;
    Ok(format!("{count} connections"))
}

fn global_policy(bed: &mut Bed, world: &World) -> Result<String> {
    // The custom resource: the manifests install no aggregated API.
    let served = bed.plane.kubectl(&["api-resources", "-o", "name"])?;
    let group = if served.contains("globalnetworkpolicies.projectcalico.org") {
        "projectcalico.org/v3"
    } else {
        "crd.projectcalico.org/v1"
    };
    ensure!(served.contains("globalnetworkpolicies"), "no kind GlobalNetworkPolicy is served");
    let object = json!({"apiVersion": group, "kind": "GlobalNetworkPolicy", "metadata": {"name": "default.no-blue"},
        "spec": {"order": 10, "selector": format!("projectcalico.org/namespace == '{}'", NAMESPACES[1]),
            "types": ["Ingress"],
            "ingress": [
                {"action": "Deny", "source": {"namespaceSelector": format!("projectcalico.org/name == '{}'", NAMESPACES[0])}},
                {"action": "Allow"}]}});
    bed.apply(&[object])?;
    let guests = world.guests();
    let count = bed.expect("a global deny", &guests, &world.targets, |from, to| {
        !(is_in(from, NAMESPACES[0]) && is_in(to, NAMESPACES[1]))
    })?;
    bed.plane.kubectl(&["delete", "globalnetworkpolicies", "default.no-blue"])?;
    world.target(&format!("{}/a", NAMESPACES[1]))?;
    Ok(format!("{count} connections"))
}

/// `tortie status`, `tortie doctor`, `tortie connectivity test` with its own pods, and `tortie doctor` on a node; the
/// last two with the commands of the guides.
fn tools(bed: &mut Bed, _: &World) -> Result<String> {
    ours(bed, &["status", "--wait"])?;
    let said = ours(bed, &["doctor"])?;
    ensure!(!said.contains("missing:"), "tortie doctor misses a definition: {said}");
    // The control plane's machine is not a node: it represents hosts outside the cluster.
    let outside = std::net::SocketAddr::new(bed.plane.families.api(), PORT).to_string();
    let report = bed.folder().join("connectivity.xml");
    for line in documents::lines("operations.md", "tortie connectivity test")? {
        let line = line
            .replace("registry.example.org/tortie/node:v0.1.0", &format!("{REGISTRY}/node:{TAG}"))
            .replace("connectivity.xml", &report.display().to_string());
        let mut words: Vec<&str> = line.split_whitespace().skip(1).collect();
        words.extend(["--timeout", "4m", "--outside", &outside]);
        let said = ours(bed, &words)?;
        for tried in ["server-2", "service by its name", "port ", "outside: "] {
            ensure!(said.contains(tried), "tortie connectivity test says nothing about {tried:?}: {said}");
        }
    }
    let cases = std::fs::read_to_string(&report).context("reading the report")?.matches("<testcase").count();
    // The other node's kubelet represents a BGP speaker, which not every manifest has.
    let other = bed.plane.families.node(2).swap_remove(0);
    let other = if other.contains(':') { format!("[{other}]:10250") } else { format!("{other}:10250") };
    for line in documents::lines("install.md", "tortie doctor --host")? {
        let line = line.replace("10.0.0.2:179", &other);
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let program = bed.program.display().to_string();
        let output = bed.nodes[0].machine.run(&program, &words)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(
            output.status.success() && said.contains(&other),
            "{line}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(format!("status, connectivity test with {cases} cases, doctor of the cluster and on a node"))
}

/// Runs our program, which must succeed; returns its output.
fn ours(bed: &Bed, words: &[&str]) -> Result<String> {
    let mut command = bed.plane.command(&bed.program)?;
    command.args(words).arg("--kubeconfig").arg(bed.plane.admin());
    let output = testkit::finish(command, "")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "tortie {words:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    Ok(said)
}

fn restarts(bed: &mut Bed, _: &World) -> Result<String> {
    let pods = bed.plane.get(&["pods", "-A"])?;
    let mut containers = 0;
    for pod in items(&pods) {
        for kind in ["containerStatuses", "initContainerStatuses"] {
            for container in pod["status"][kind].as_array().into_iter().flatten() {
                containers += 1;
                ensure!(container["restartCount"] == 0, "{}: {container}", name(pod));
            }
        }
    }
    Ok(format!("{containers} containers"))
}
