//! `get --watch`, on servers that stop and restart.

use crate::harness::{Buffer, Shell, environment};
use calicoctl::Surroundings;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::{ApiServer, Etcd, Folder};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

fn policy(name: &str, label: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata:\n  name: {name}\n  labels: {{app: {label}}}\nspec:\n  nets: [10.0.0.0/8]\n"
    )
}

/// A reader that can be closed on request.
#[derive(Clone, Default)]
struct Pipe {
    buffer: Buffer,
    is_closed: Arc<AtomicBool>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.buffer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A watch in its own thread.
struct Watching {
    pipe: Pipe,
    errors: Buffer,
    thread: Option<std::thread::JoinHandle<ExitCode>>,
}

impl Watching {
    fn start(shell: &Shell, line: &str) -> Self {
        let arguments: Vec<OsString> =
            std::iter::once("calicoctl").chain(line.split(' ')).map(OsString::from).collect();
        let (pipe, errors) = (Pipe::default(), Buffer::default());
        let surroundings = Surroundings {
            stdin: Box::new(io::empty()),
            stdout: Box::new(pipe.clone()),
            stderr: Box::new(errors.clone()),
            environment: environment(&shell.variables),
            colours: false,
            progress: false,
            width: None,
        };
        let thread = std::thread::spawn(move || calicoctl::run(&arguments, surroundings));
        Self { pipe, errors, thread: Some(thread) }
    }

    fn wait_for(&self, what: &str) {
        let begin = Instant::now();
        while !self.pipe.buffer.text().contains(what) {
            let running = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
            assert!(
                running && begin.elapsed() < PATIENCE,
                "no {what:?} (running: {running}) in {:?} {:?}",
                self.pipe.buffer.text(),
                self.errors.text()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Closes the pipe; `change` makes the watch write once more.
    fn end(mut self, change: impl FnOnce()) -> String {
        self.pipe.is_closed.store(true, Ordering::SeqCst);
        change();
        let code = self.thread.take().expect("a thread").join().expect("the watch");
        assert_eq!(code, ExitCode::SUCCESS, "{}", self.errors.text());
        self.pipe.buffer.text()
    }
}

fn on_etcd(etcd: &Etcd) -> Shell {
    let folder = Folder::new("watch").expect("a folder");
    Shell::with(&[("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", &etcd.endpoint())], folder)
}

#[test]
fn rows_follow_changes_and_an_outage_repeats_none() {
    let mut etcd = Etcd::start().expect("etcd");
    let shell = on_etcd(&etcd);
    shell.pipe("apply -f -", policy("first", "web")).text();
    let watching = Watching::start(&shell, "get gnetset --watch -o wide");
    watching.wait_for("first   10.0.0.0/8   \n");
    shell.pipe("apply -f -", policy("second", "web")).text();
    watching.wait_for("second   10.0.0.0/8   \n");
    etcd.kill();
    etcd.restart().expect("etcd again");
    // While the watch reconnects, an object changes.
    shell.pipe("apply -f -", policy("third", "web")).text();
    watching.wait_for("third");
    shell.run("delete gnetset first").text();
    let twice = |text: &str| text.matches("first ").count() == 2;
    let begin = Instant::now();
    while !twice(&watching.pipe.buffer.text()) {
        assert!(begin.elapsed() < PATIENCE, "{}", watching.pipe.buffer.text());
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = watching.end(|| drop(shell.pipe("apply -f -", policy("fourth", "web")).text()));
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    // A deleted object is shown once more, with its last state; nothing else appears twice.
    assert_eq!(names, ["NAME", "first", "second", "third", "first"], "{text}");
}

#[test]
fn every_format_and_selection_can_be_watched() {
    let etcd = Etcd::start().expect("etcd");
    let shell = on_etcd(&etcd);
    shell.pipe("apply -f -", policy("there", "web")).text();
    shell.pipe("apply -f -", policy("other", "db")).text();
    let lines = [
        ("get gnetset -w -o name -l app=web", "globalnetworkset/there\n", "globalnetworkset/new\n"),
        ("get gnetset -w -o json -l app=web", "\"name\": \"there\"", "\"name\": \"new\""),
        ("get gnetset -w -o yaml -l app=web", "  name: there\n", "---\napiVersion"),
        ("get gnetset --watch-only -l app=web", "NAME   \n", "new    \n"),
        ("get gnetset there -w", "there   \n", "there   \nthere   \n"),
        ("get gnetset -w -l app=web -o jsonpath={.metadata.name};", "there;", "new;"),
    ];
    let watching: Vec<_> = lines.iter().map(|(line, _, _)| Watching::start(&shell, line)).collect();
    for (watching, (_, before, _)) in watching.iter().zip(&lines) {
        watching.wait_for(before);
    }
    shell.pipe("apply -f -", policy("new", "web")).text();
    // Of two watched objects, one leaves the selection, and one that is watched by name changes.
    shell.run("label gnetset there app=db --overwrite").text();
    for (watching, (_, _, after)) in watching.iter().zip(&lines) {
        watching.wait_for(after);
    }
    for (watching, (line, _, _)) in watching.into_iter().zip(&lines) {
        let text = watching.end(|| {
            shell.pipe("apply -f -", policy("last", "web")).text();
            shell.run("label gnetset there more=1 --overwrite").text();
            shell.run("label gnetset last more=1 --overwrite").text();
        });
        assert!(!text.contains("other"), "{line}: {text}");
    }
}

#[test]
fn custom_resources_are_watched_on_kubernetes() {
    let etcd = Etcd::start().expect("etcd");
    let api_server = ApiServer::start(&etcd.endpoint()).expect("kube-apiserver");
    let shell = Shell::kubernetes(&api_server, "watch");
    shell.pipe("apply -f -", policy("first", "web")).text();
    let watching = Watching::start(&shell, "get gnetset -w");
    watching.wait_for("first   \n");
    shell.pipe("apply -f -", policy("second", "web")).text();
    watching.wait_for("second   \n");
    let text = watching.end(|| drop(shell.run("delete gnetset first").text()));
    assert_eq!(text.matches("first").count(), 1, "{text}");
}

#[test]
fn unsupported_watches_are_refused() {
    let shell = Shell::embedded();
    let error = shell.run("get ippool -w").error();
    assert!(error.contains("tortie datastore"), "{error}");
    let etcd = Etcd::start().expect("etcd");
    let shell = on_etcd(&etcd);
    let error = shell.run("get ippool nosuch -w").error();
    assert!(error.starts_with("resource does not exist: IPPool(nosuch)"), "{error}");
    let error = shell.run("get ippool a b -w").error();
    assert!(error.contains("name one"), "{error}");
}
