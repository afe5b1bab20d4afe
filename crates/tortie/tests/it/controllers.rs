//! `kube-controllers` as a separate process: by both of its names, its probes, leader election, and its end.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{ApiServer, Etcd, Folder, Signal, free_port};

/// Running controllers; killed when dropped.
struct Controllers {
    child: Child,
    port: u16,
    folder: Folder,
}

impl Controllers {
    fn start(words: &[&str], store: &Etcd, api_server: &ApiServer) -> Self {
        let (folder, port) = (Folder::new("controllers").unwrap(), free_port().unwrap());
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_tortie"))
            .args(words)
            .args(["--leader-elect", "--health-port", &port.to_string(), "--status-file"])
            .arg(folder.path().join("status.json"))
            .env_clear()
            .env("DATASTORE_TYPE", "etcdv3")
            .env("ETCD_ENDPOINTS", store.endpoint())
            .env("KUBECONFIG", api_server.kubeconfig())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, port, folder }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn is_ready(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port))?;
            stream.write_all(b"GET /readiness HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 20"))
    }

    fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        testkit::eventually(what, holds).unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }

    /// Sends a signal that asks it to end; returns its exit code.
    fn end(&mut self, signal: Signal) -> Option<i32> {
        testkit::signal(self.child.id(), signal).unwrap();
        let mut code = None;
        let deadline = Instant::now() + Duration::from_secs(60);
        while code.is_none() {
            assert!(Instant::now() < deadline, "it does not end\n{}", self.log());
            code = self.child.try_wait().unwrap().map(|status| status.code());
            std::thread::sleep(Duration::from_millis(50));
        }
        code.flatten()
    }
}

impl Drop for Controllers {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn probe(status: &Path, question: &str) -> bool {
    let words = ["kube-controllers", "kube-controllers-health", question, "-f"];
    let output = Command::new(env!("CARGO_BIN_EXE_tortie")).args(words).arg(status).output().unwrap();
    output.status.success()
}

#[test]
fn the_second_takes_over_from_the_leader_and_both_end_on_request() {
    let etcd = Etcd::start().unwrap();
    let api_server = ApiServer::start(&etcd.endpoint()).unwrap();
    let store = Etcd::start().unwrap();
    let has_profile = |namespace: &str| {
        let key = format!("/calico/resources/v3/projectcalico.org/profiles/kns.{namespace}");
        let output = store.etcdctl(&["get", &key]).unwrap();
        String::from_utf8_lossy(&output.stdout).contains(&format!("\"name\":\"kns.{namespace}\""))
    };
    let mut first = Controllers::start(&["kube-controllers"], &store, &api_server);
    first.until("it is ready and follows namespaces", || first.is_ready() && has_profile("default"));
    let status = first.folder.path().join("status.json");
    assert!(probe(&status, "-r") && probe(&status, "-l"), "{:?}", std::fs::read_to_string(&status));

    // The second waits for its turn, and gets it at once when the first ends.
    let mut second = Controllers::start(&["component", "kube-controllers"], &store, &api_server);
    second.until("it waits", || second.log().contains("another instance leads"));
    assert_eq!(first.end(Signal::TERM), Some(0), "{}", first.log());
    api_server.kubectl(&["create", "namespace", "shop"]).unwrap();
    second.until("it follows namespaces", || has_profile("shop"));
    assert_eq!(second.end(Signal::INT), Some(0), "{}", second.log());
}

#[test]
fn mistakes_are_reported() {
    for (words, expected) in [
        (&["kube-controllers", "--no-such-flag"] as &[&str], "unexpected argument '--no-such-flag'"),
        (&["kube-controllers", "--health-port", "many"], "invalid value 'many'"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_tortie")).args(words).env_clear().output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(expected), "{words:?}: {told}");
    }
    assert!(!probe(Path::new("/nonexistent/status.json"), "-r"));
}
