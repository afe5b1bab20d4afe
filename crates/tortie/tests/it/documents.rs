//! The commands of the guides, run as they stand there: every block that begins with `sh run`, in order, on a real API server.
//! No kubelets: that workloads are up is written into their status.

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

/// A place to run commands in: our program and kubectl on the path, the repository's `deploy` beside.
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

/// What controllers and kubelets would do, until it is dropped: every workload is up.
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
    let kubectl = kubernetes_program("kubectl").unwrap();
    let run = move |arguments: &[&str]| {
        Command::new(&kubectl).arg("--kubeconfig").arg(&kubeconfig).args(arguments).output().ok()
    };
    let up = |kind: &str, generation: i64| match kind {
        "daemonset" => format!(
            r#"{{"status":{{"observedGeneration":{generation},"desiredNumberScheduled":0,"currentNumberScheduled":0,"numberMisscheduled":0,"numberReady":0,"updatedNumberScheduled":0,"numberAvailable":0}}}}"#
        ),
        _ => format!(
            r#"{{"status":{{"observedGeneration":{generation},"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}}}"#
        ),
    };
    let thread = std::thread::spawn(move || {
        while !inside.load(Ordering::Relaxed) {
            for (kind, name) in [("daemonset", "calico-node"), ("deployment", "calico-kube-controllers")] {
                let Some(output) = run(&["get", kind, name, "-n", "kube-system", "-o", "json"]) else {
                    continue;
                };
                let Ok(object) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
                    continue;
                };
                let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
                if object["status"]["observedGeneration"].as_i64().unwrap_or_default() < generation {
                    let patch = up(kind, generation);
                    run(&[
                        "patch",
                        kind,
                        name,
                        "-n",
                        "kube-system",
                        "--subresource=status",
                        "--type=merge",
                        "-p",
                        &patch,
                    ]);
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    });
    Controllers { stop, thread: Some(thread) }
}

#[test]
fn the_commands_of_the_guides_work() {
    let place = Place::new();
    let _controllers = controllers(place.api_server.kubeconfig());
    for block in blocks("install.md") {
        place.sh(&block);
    }
    for page in ["upgrade.md", "operations.md"] {
        place.sh("tortie install --like calico-vxlan");
        for block in blocks(page) {
            place.sh(&block);
        }
        place.sh("tortie uninstall --yes");
    }
    // Somebody else's: no record of ours, images of Calico's.
    place.sh("tortie manifests --like calico --registry quay.io/calico --tag v3.30.0 > theirs.yaml; kubectl apply --server-side --force-conflicts -f theirs.yaml");
    for block in blocks("migrate.md") {
        place.sh(&block);
    }
    place.sh("tortie migrate from-calico --all && tortie migrate from-calico --all --back");
    // What somebody else installed is not ours to remove.
    place.sh("! tortie uninstall --yes; kubectl delete --ignore-not-found -f theirs.yaml; tortie uninstall --delete-data --yes");
}

/// What a test cannot run as it stands (it is about a host, or images of a registry) is at least what the program takes: each
/// command line, with `--help` behind it, which is answered only if everything before it is known.
#[test]
fn other_commands_of_the_guides_are_known() {
    let mut count = 0;
    for page in
        ["install.md", "migrate.md", "operations.md", "hosts.md", "upgrade.md", "whisker.md", "flows.md"]
    {
        let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
        let blocks = text.split("\n```").skip(1).step_by(2).filter(|block| !block.starts_with("sh run"));
        for line in blocks.flat_map(|block| block.lines().skip(1)) {
            let line = line.trim_start_matches("$ ").split(" #").next().unwrap_or_default();
            let line = line.split(['|', '>', '<']).next().unwrap_or_default();
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
