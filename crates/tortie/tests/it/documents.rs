//! Runs the commands of the guides unchanged: every block that begins with `sh run`, in order, on a real API server.
//! There are no kubelets: the status of workloads is written directly. A command that is not run here is run by another
//! test that takes it from the page, or has a reason.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::{ApiServer, Etcd, Folder, kubernetes_program};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders up").to_owned()
}

/// The blocks of a page that are run.
fn blocks(page: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs").join(page))
        .unwrap_or_else(|error| panic!("{page}: {error}"));
    let mut blocks = Vec::new();
    for part in text.split("\n```sh run\n").skip(1) {
        blocks.push(part.split("\n```").next().unwrap_or_default().to_owned());
    }
    assert!(!blocks.is_empty(), "{page} has nothing to run");
    blocks
}

/// A place to run commands in: with our program and kubectl on the path, and the repository's `deploy` folder.
struct Place {
    folder: Folder,
    api_server: ApiServer,
    _etcd: Etcd,
}

impl Place {
    fn new() -> Self {
        let etcd = Etcd::start().unwrap();
        let api_server = ApiServer::start(&etcd.endpoint()).unwrap();
        let folder = Folder::new("documents").unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let link = |name: &str, to: &Path| std::os::unix::fs::symlink(to, bin.join(name)).unwrap();
        link("tortie", Path::new(env!("CARGO_BIN_EXE_tortie")));
        link("kubectl", &kubernetes_program("kubectl").unwrap());
        std::os::unix::fs::symlink(root().join("deploy"), folder.path().join("deploy")).unwrap();
        Self { folder, api_server, _etcd: etcd }
    }

    fn sh(&self, script: &str) {
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("sh")
            .args(["-e", "-c", script])
            .current_dir(self.folder.path())
            .env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()))
            .env("HOME", self.folder.path())
            .env("KUBECONFIG", self.api_server.kubeconfig())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}\n{said}");
    }
}

/// Does the work of controllers and kubelets until it is dropped: every workload is ready, and a node has its pod.
struct Controllers {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn controllers(kubeconfig: PathBuf) -> Controllers {
    let stop = Arc::new(AtomicBool::new(false));
    let inside = Arc::clone(&stop);
    let hands = Hands { kubectl: kubernetes_program("kubectl").unwrap(), kubeconfig };
    let thread = std::thread::spawn(move || {
        let mut number = 0;
        while !inside.load(Ordering::Relaxed) {
            // Whatever does not exist yet, or has changed, is handled in the next round.
            for (kind, name) in [("daemonset", "calico-node"), ("deployment", "calico-kube-controllers")] {
                let _ = hands.report(kind, name);
            }
            number += 1;
            let _ = hands.run_pod(number);
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    });
    Controllers { stop, thread: Some(thread) }
}

/// kubectl with the rights for the work of controllers.
struct Hands {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
}

impl Hands {
    fn run(&self, words: &[&str], input: &str) -> Option<Vec<u8>> {
        let mut command = Command::new(&self.kubectl);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(words);
        let output = testkit::finish(command, input).ok()?;
        output.status.success().then_some(output.stdout)
    }

    fn get(&self, words: &[&str]) -> Option<Value> {
        let words = [&["get", "-n", "kube-system", "-o", "json"], words].concat();
        serde_json::from_slice(&self.run(&words, "")?).ok()
    }

    fn write_status(&self, kind: &str, name: &str, status: &Value) -> Option<()> {
        let patch = json!({"status": status}).to_string();
        let place = ["-n", "kube-system", "--subresource=status", "--type=merge", "-p", &patch];
        self.run(&[&["patch", kind, name], &place[..]].concat(), "").map(drop)
    }

    /// Reports a workload as ready as soon as it has changed.
    fn report(&self, kind: &str, name: &str) -> Option<()> {
        let object = self.get(&[kind, name])?;
        let generation = object["metadata"]["generation"].as_i64()?;
        if object["status"]["observedGeneration"].as_i64().unwrap_or_default() >= generation {
            return None;
        }
        let status = match kind {
            "daemonset" => {
                json!({"observedGeneration": generation, "desiredNumberScheduled": 0, "currentNumberScheduled": 0,
                "numberMisscheduled": 0, "numberReady": 0, "updatedNumberScheduled": 0, "numberAvailable": 0})
            }
            _ => json!({"observedGeneration": generation, "replicas": 1, "updatedReplicas": 1,
                "readyReplicas": 1, "availableReplicas": 1}),
        };
        self.write_status(kind, name, &status)
    }

    /// Runs the daemon set's pod on the node of the guide, if that node exists: created from the template, and ready.
    fn run_pod(&self, number: usize) -> Option<()> {
        self.get(&["node", NODE])?;
        let set = self.get(&["daemonset", "calico-node"])?;
        let pods = self.get(&["pods", "-l", "k8s-app=calico-node"])?;
        match pods["items"].as_array()?.first() {
            None => {
                let mut spec = set["spec"]["template"]["spec"].clone();
                spec["nodeName"] = json!(NODE);
                let name = format!("calico-node-{number}");
                let metadata =
                    json!({"name": name, "namespace": "kube-system", "labels": {"k8s-app": "calico-node"}});
                let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
                self.run(&["create", "-f", "-"], &pod.to_string()).map(drop)
            }
            Some(pod) if pod["status"]["conditions"].is_null() => {
                let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
                self.write_status("pod", pod["metadata"]["name"].as_str()?, &status)
            }
            Some(_) => None,
        }
    }
}

/// The node at the beginning of the guide to a swap.
const NODE: &str = "worker-1";

/// The definitions that the Prometheus operator would have installed, just complete enough for the objects to be
/// accepted.
fn monitoring_kinds() -> String {
    let definition = |kind: &str, plural: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
            "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
    };
    let all = [definition("PodMonitor", "podmonitors"), definition("PrometheusRule", "prometheusrules")];
    all.map(|one| one.to_string()).join("\n---\n")
}

#[test]
fn the_commands_of_the_guides_work() {
    let place = Place::new();
    let _controllers = controllers(place.api_server.kubeconfig());
    for block in blocks("install.md") {
        place.sh(&block);
    }
    let kinds = place.folder.path().join("kinds.yaml");
    std::fs::write(kinds, monitoring_kinds()).unwrap();
    place.sh(
        "kubectl apply -f kinds.yaml && kubectl wait --for=condition=Established -f kinds.yaml --timeout=60s",
    );
    place.sh("kubectl create namespace calico-monitoring");
    for page in ["upgrade.md", "operations.md"] {
        place.sh("tortie install --like calico-vxlan");
        for block in blocks(page) {
            place.sh(&block);
        }
        place.sh("tortie uninstall --yes");
    }
    // Installed by other means: no record of ours, Calico's images.
    place.sh("tortie manifests --like calico --registry quay.io/calico --tag v3.30.0 > calico.yaml; kubectl apply --server-side --force-conflicts -f calico.yaml");
    place.sh(&format!(
        "printf 'apiVersion: v1\nkind: Node\nmetadata: {{name: {NODE}}}\n' | kubectl create -f -"
    ));
    place.sh("for second in $(seq 60); do kubectl -n kube-system wait --for=condition=Ready pod -l k8s-app=calico-node --timeout=1s && break; sleep 1; done");
    for block in blocks("migrate.md") {
        place.sh(&block);
    }
    // An installation by other means must not be removed by us.
    place.sh("! tortie uninstall --yes; kubectl delete --ignore-not-found -f calico.yaml; tortie uninstall --delete-data --yes");
}

/// Commands that another test takes from the page and runs: the page, the beginning of the command, and the file with
/// the test, which is part of `make e2e`.
const ELSEWHERE: [(&str, &str, &str); 4] = [
    ("install.md", "tortie doctor --host", "crates/e2e/src/checks.rs"),
    ("install.md", "helm install", "crates/e2e/src/chart.rs"),
    ("install.md", "ctr -n k8s.io images import", "crates/e2e/src/node.rs"),
    ("operations.md", "tortie connectivity test", "crates/e2e/src/checks.rs"),
];

/// Commands that no test takes from the page, with the reason.
const NOT_RUN: [(&str, &str, &str); 9] = [
    (
        "install.md",
        "make image",
        "a release takes a quarter of an hour to build; make e2e writes the same archive of another build",
    ),
    ("install.md", "kind load", "there is no Docker for kind"),
    ("install.md", "cp tortie-images.tar", "there is no k3s"),
    ("install.md", "skopeo copy", "there is no registry"),
    ("hosts.md", "make deb", "a release takes a quarter of an hour to build; xtask has tests of the package"),
    ("hosts.md", "dpkg -i", "scripts/fresh.sh deb does this in a root of its own"),
    ("hosts.md", "cp /etc/calico/", "only a host that runs systemd has all of this"),
    ("hosts.md", "systemctl", "only a host that runs systemd has all of this"),
    ("hosts.md", "calicoctl apply", "only a host that runs systemd has all of this"),
];

/// The lines of a page's blocks that are not `sh run`, without comments, and without documents that follow a command.
fn other_lines(text: &str) -> Vec<String> {
    let blocks = text.split("\n```").skip(1).step_by(2).filter(|block| !block.starts_with("sh run"));
    let mut lines = Vec::new();
    for block in blocks {
        let mut end: Option<&str> = None;
        for line in block.lines().skip(1) {
            match end {
                Some(word) if line == word => end = None,
                Some(_) => {}
                None => {
                    lines.push(line.split(" #").next().unwrap_or_default().trim().to_owned());
                    end = line.split_once("<<'").and_then(|(_, rest)| rest.split('\'').next());
                }
            }
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[test]
fn every_command_of_the_guides_is_run_or_has_a_reason() {
    let mut seen = Vec::new();
    for page in ["install.md", "migrate.md", "upgrade.md", "operations.md", "hosts.md"] {
        let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
        for line in other_lines(&text) {
            let known = ELSEWHERE.iter().chain(&NOT_RUN);
            let known = known.filter(|(of, beginning, _)| *of == page && line.starts_with(beginning));
            let found: Vec<_> = known.collect();
            assert_eq!(found.len(), 1, "{page}: neither run nor excused: {line}");
            seen.push((page, found[0].1));
        }
    }
    for (page, beginning, file) in ELSEWHERE {
        assert!(seen.contains(&(page, beginning)), "{page} has no {beginning:?} any more");
        let source = std::fs::read_to_string(root().join(file)).unwrap();
        assert!(
            source.contains(&format!("documents::lines({page:?}, {beginning:?})")),
            "{file}: {beginning}"
        );
    }
    for (page, beginning, _) in NOT_RUN {
        assert!(seen.contains(&(page, beginning)), "{page} has no {beginning:?} any more");
    }
}

/// The command lines of a page that are not run unchanged: those in other blocks, sentences and tables.
fn mentioned(text: &str) -> Vec<String> {
    let mut lines = other_lines(text);
    let prose = text.split("\n```").step_by(2);
    lines.extend(prose.flat_map(|part| part.split('`').skip(1).step_by(2)).map(str::to_owned));
    lines
}

/// Commands that a test cannot run unchanged (they concern a host, or images of a registry) must at least parse: each
/// command line is run with `--help` appended, which succeeds only if everything before it is valid.
#[test]
fn other_commands_of_the_guides_are_known() {
    let mut count = 0;
    for page in
        ["install.md", "migrate.md", "operations.md", "hosts.md", "upgrade.md", "whisker.md", "flows.md"]
    {
        let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
        for line in mentioned(&text) {
            let line = line.trim_start_matches("$ ").split(['|', '>', '<']).next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().skip_while(|word| word.contains('=')).collect();
            let (Some(&program), Some(rest)) = (words.first(), words.get(1..)) else { continue };
            let command = match program {
                "tortie" => &[][..],
                "calicoctl" => &["ctl"],
                _ => continue,
            };
            let output = Command::new(env!("CARGO_BIN_EXE_tortie"))
                .args(command)
                .args(rest)
                .arg("--help")
                .stdin(Stdio::null())
                .output()
                .unwrap();
            assert!(output.status.success(), "{page}: {line}: {}", String::from_utf8_lossy(&output.stderr));
            count += 1;
        }
    }
    assert!(count >= 10, "{count} commands were found");
}
