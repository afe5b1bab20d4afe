//! Pods that serve and connect, created and removed by a check, and the matrix of who reaches whom: one shell per
//! client pod, all connections at once.

use crate::bed::{Bed, items, name};
use crate::images::BUSYBOX;
use crate::waiting::{PATIENCE, until};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Client, target and address, and whether an answer arrived.
pub(crate) type Matrix = BTreeMap<(String, String, String), bool>;

/// A target of connections.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// Host and port, separated by the last colon; the host may be an IPv6 address.
    pub(crate) address: String,
}

/// Pods of one check, by `namespace/name`.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) namespace: &'static str,
    pub(crate) name: &'static str,
    pub(crate) node: String,
    /// Whether it has the node's own network.
    pub(crate) is_host: bool,
    /// A port of the node that leads to it.
    pub(crate) host_port: Option<u16>,
}

impl Pod {
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The object. It answers on its port with its own name.
    pub(crate) fn manifest(&self) -> Value {
        let port = if self.is_host { 18080 } else { 80 };
        let script = format!("echo {} >/tmp/index.html; exec httpd -f -p {port} -h /tmp", self.full_name());
        let mut ports = json!([{"containerPort": port}]);
        if let Some(host_port) = self.host_port {
            ports[0]["hostPort"] = json!(host_port);
        }
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": self.name, "namespace": self.namespace, "labels": {"pod": self.name}},
            "spec": {
                "nodeName": self.node,
                "hostNetwork": self.is_host,
                "terminationGracePeriodSeconds": 0,
                "enableServiceLinks": false,
                "automountServiceAccountToken": false,
                "containers": [{
                    "name": "it", "image": BUSYBOX, "imagePullPolicy": "Never", "ports": ports,
                    "command": ["sh", "-c", script],
                    // The kubelet's own packets must pass, whatever the policy.
                    "readinessProbe": {"httpGet": {"path": "/", "port": port}, "periodSeconds": 1},
                }],
            },
        })
    }
}

impl Bed {
    /// Applies objects.
    pub(crate) fn apply(&self, objects: &[Value]) -> Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.plane.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &list.to_string()).map(drop)
    }

    /// Creates namespaces and pods, and waits until they are ready. Returns their addresses.
    pub(crate) fn pods(&mut self, namespaces: &[&str], pods: &[Pod]) -> Result<Vec<Target>> {
        let mut objects: Vec<Value> = namespaces
            .iter()
            .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"ns": name}}}))
            .collect();
        objects.extend(pods.iter().map(Pod::manifest));
        self.apply(&objects)?;
        let mut targets = Vec::new();
        for namespace in namespaces {
            self.settled(namespace)?;
            for pod in items(&self.plane.get(&["pods", "-n", namespace])?) {
                let is_host = pod["spec"]["hostNetwork"] == true;
                let addresses = pod["status"]["podIPs"].as_array().context("a ready pod has addresses")?;
                let addresses: Vec<&str> = addresses.iter().filter_map(|one| one["ip"].as_str()).collect();
                let wanted = self.plane.families.of_services();
                ensure!(
                    is_host || addresses.len() == wanted.len(),
                    "{} has {addresses:?}, and should have {wanted:?}",
                    name(pod)
                );
                let port = if is_host { 18080 } else { 80 };
                // A node may have addresses of versions that its pods do not have.
                for address in addresses.iter().filter(|it| wanted.contains(&version(it))) {
                    targets.push(Target {
                        name: format!("{namespace}/{}", name(pod)),
                        address: format!("{address}:{port}"),
                    });
                }
            }
        }
        Ok(targets)
    }

    /// Removes namespaces with their contents.
    pub(crate) fn remove(&self, namespaces: &[&str]) -> Result<()> {
        let mut words = vec!["delete", "namespace", "--wait=true", "--timeout=100s"];
        words.extend_from_slice(namespaces);
        self.plane.kubectl(&words).map(drop)
    }

    /// Connects from every pod to every target, at once.
    pub(crate) fn measure(&self, from: &[Pod], to: &[Target]) -> Result<Matrix> {
        let ask = |pod: &Pod| -> Result<Matrix> {
            let script: String = to
                .iter()
                .enumerate()
                .map(|(index, target)| {
                    // Not wget: Debian's static one crashes in its own resolver.
                    let (host, port) = target.address.rsplit_once(':').unwrap_or((&target.address, "80"));
                    format!(
                        "(printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 4 nc -w 2 {host} {port} | grep -q '200 OK' && echo {index}) & "
                    )
                })
                .collect();
            let script = format!("{script} wait");
            let output = self
                .plane
                .try_kubectl(&["exec", "-n", pod.namespace, pod.name, "--", "sh", "-c", &script], "")?;
            ensure!(
                output.status.success(),
                "asking from {}: {}",
                pod.full_name(),
                String::from_utf8_lossy(&output.stderr).trim()
            );
            let answered = String::from_utf8_lossy(&output.stdout).into_owned();
            let answered: Vec<&str> = answered.split_whitespace().collect();
            Ok(to
                .iter()
                .enumerate()
                .map(|(index, target)| {
                    let key = (pod.full_name(), target.name.clone(), target.address.clone());
                    (key, answered.contains(&index.to_string().as_str()))
                })
                .collect())
        };
        let parts: Vec<Result<Matrix>> = std::thread::scope(|scope| {
            let threads: Vec<_> = from.iter().map(|pod| scope.spawn(move || ask(pod))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let mut matrix = Matrix::new();
        for part in parts {
            matrix.extend(part?);
        }
        Ok(matrix)
    }

    /// Repeats the connections until exactly the expected ones succeed; returns their number.
    pub(crate) fn expect(
        &self,
        what: &str,
        from: &[Pod],
        to: &[Target],
        expected: impl Fn(&str, &str) -> bool,
    ) -> Result<usize> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let matrix = self.measure(from, to)?;
            let wrong: Vec<String> = matrix
                .iter()
                .filter(|((from, to, _), answered)| expected(from, to) != **answered)
                .map(|((from, to, address), answered)| {
                    let verb = if *answered { "reached" } else { "did not reach" };
                    format!("{from} {verb} {to} ({address})")
                })
                .collect();
            if wrong.is_empty() {
                return Ok(matrix.len());
            }
            ensure!(Instant::now() < deadline, "{what}: {}", wrong.join(", "));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until a service has the wanted number of endpoints of each IP version.
    pub(crate) fn endpoints(&self, namespace: &str, service: &str, wanted: usize) -> Result<()> {
        until(&format!("endpoints of {namespace}/{service}"), || -> Result<()> {
            let label = format!("kubernetes.io/service-name={service}");
            let slices = self.plane.get(&["endpointslices", "-n", namespace, "-l", &label])?;
            let found: usize =
                items(&slices).iter().map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len)).sum();
            let wanted = wanted * self.plane.families.of_services().len();
            ensure!(found == wanted, "{found} of {wanted}");
            Ok(())
        })
    }
}

/// Kubernetes' name of an address' IP version.
fn version(address: &str) -> &'static str {
    if address.contains(':') { "IPv6" } else { "IPv4" }
}
