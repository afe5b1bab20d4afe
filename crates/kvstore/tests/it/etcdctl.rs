//! Debian's etcdctl on our server and on real etcd: the same commands, the same output, apart from what names the
//! server.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};
use testkit::{Etcd, Folder, program};

use crate::support::Server;

struct Ctl {
    endpoint: String,
}

impl Ctl {
    fn command(&self) -> Result<Command> {
        let mut command = Command::new(program("etcdctl", "install Debian's etcd-client")?);
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={}", self.endpoint));
        Ok(command)
    }

    /// Standard output and error without what differs from run to run.
    fn run(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut child = self
            .command()?
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("no standard input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // Lines of the client's own log carry times and addresses.
        let errors: Vec<&str> = errors.lines().filter(|line| !line.starts_with('{')).collect();
        let text = format!(
            "$ {}\n{}{}[{}]\n",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stdout),
            errors.join("\n"),
            output.status.code().unwrap_or(-1)
        );
        Ok(text)
    }
}

/// Commands whose output must be the same to the letter.
const SAME: &[(&[&str], &str)] = &[
    (&["put", "a", "1"], ""),
    (&["put", "a", "2", "--prev-kv"], ""),
    (&["put", "ab", "3"], ""),
    (&["put", "b", "4"], ""),
    (&["put", "a", "--ignore-value"], ""),
    (&["put", "none", "--ignore-value"], ""),
    (&["get", "a"], ""),
    (&["get", "a", "--prefix"], ""),
    (&["get", "a", "c", "--order=DESCEND", "--sort-by=MODIFY", "--limit=2"], ""),
    (&["get", "a", "--rev=2"], ""),
    (&["get", "a", "--rev=99"], ""),
    (&["get", "a", "--from-key", "--keys-only"], ""),
    (&["get", "", "--prefix", "--count-only", "-w", "fields"], ""),
    (&["get", "a", "-w", "fields"], ""),
    (&["txn"], "mod(\"a\") > \"0\"\n\nput c 5\nget c\n\nput d 6\n\n"),
    (&["txn"], "value(\"a\") = \"nothing\"\n\nput e 5\n\ndel b\nget a\n\n"),
    (&["txn"], "\nput x 1\nput x 2\n\n\n"),
    (&["del", "ab", "--prev-kv"], ""),
    (&["del", "nothing"], ""),
    (&["lease", "grant", "notanumber"], ""),
    (&["lease", "timetolive", "1234"], ""),
    (&["lease", "revoke", "1234"], ""),
    (&["put", "leased", "x", "--lease=1234"], ""),
    (&["compact", "5"], ""),
    (&["compact", "5"], ""),
    (&["compact", "500"], ""),
    (&["get", "a", "--rev=3"], ""),
    (&["get", "", "--prefix"], ""),
    (&["alarm", "list"], ""),
    (&["alarm", "disarm"], ""),
    (&["user", "list"], ""),
    (&["role", "list"], ""),
    (&["role", "get", "x"], ""),
    (&["user", "get", "x"], ""),
    (&["auth", "enable"], ""),
    (&["del", "", "--prefix"], ""),
];

/// Masks numbers that name a server or count entries of etcd's own log.
fn neutral(text: &str) -> String {
    let own = ["\"ClusterID\"", "\"MemberID\"", "\"RaftTerm\""];
    text.lines().filter(|line| !own.iter().any(|name| line.starts_with(name))).collect::<Vec<_>>().join("\n")
}

#[test]
fn etcdctl_sees_no_difference() -> Result<()> {
    let etcd = Etcd::start()?;
    let server = Server::start(&[])?;
    let (theirs, ours) = (Ctl { endpoint: etcd.endpoint() }, Ctl { endpoint: server.endpoint() });
    for (arguments, input) in SAME {
        assert_eq!(neutral(&ours.run(arguments, input)?), neutral(&theirs.run(arguments, input)?));
    }
    // The same history has the same hash.
    let hash = |ctl: &Ctl| {
        ctl.run(&["endpoint", "hashkv"], "").map(|text| text.rsplit(", ").next().map(str::to_owned))
    };
    assert_eq!(hash(&ours)?, hash(&theirs)?);
    Ok(())
}

#[test]
fn etcdctl_leases_status_watch_and_snapshot() -> Result<()> {
    let server = Server::start(&[])?;
    let ctl = Ctl { endpoint: server.endpoint() };
    let granted = ctl.run(&["lease", "grant", "600"], "")?;
    let id = granted.lines().nth(1).and_then(|line| line.split(' ').nth(1)).map(str::to_owned);
    let id = id.filter(|id| id.len() == 16).with_context(|| granted.clone())?;
    assert!(granted.contains("granted with TTL(600s)"), "{granted}");
    assert!(ctl.run(&["put", "leased", "x", &format!("--lease={id}")], "")?.contains("OK"));
    let left = ctl.run(&["lease", "timetolive", &id, "--keys"], "")?;
    assert!(left.contains("attached keys([leased])") && left.contains("granted with TTL(600s)"), "{left}");
    assert!(ctl.run(&["lease", "list"], "")?.contains(&id));
    assert!(ctl.run(&["lease", "keep-alive", "--once", &id], "")?.contains("keepalived with TTL(600)"));
    assert!(ctl.run(&["lease", "revoke", &id], "")?.contains("revoked"));
    assert!(!ctl.run(&["get", "leased"], "")?.contains('x'));

    assert!(ctl.run(&["endpoint", "health"], "")?.contains("is healthy"));
    let status = ctl.run(&["endpoint", "status", "-w", "json"], "")?;
    assert!(status.contains("\"version\":\"3.5."), "{status}");
    let members = ctl.run(&["member", "list"], "")?;
    assert!(members.contains("started, default") && members.contains(&server.endpoint()), "{members}");
    assert!(ctl.run(&["check", "perf", "--help"], "")?.contains("[0]"));
    assert!(ctl.run(&["defrag"], "")?.contains("Finished defragmenting"));

    for number in 0..3 {
        ctl.run(&["put", "watched", &number.to_string()], "")?;
    }
    let mut child = ctl.command()?.args(["watch", "watched", "--rev=1"]).stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    let mut next = || lines.next().context("the watch ended")?.map_err(anyhow::Error::from);
    for value in ["0", "1", "2"] {
        assert_eq!([next()?, next()?, next()?], ["PUT", "watched", value]);
    }
    ctl.run(&["del", "watched"], "")?;
    assert_eq!([next()?, next()?], ["DELETE", "watched"]);
    child.kill()?;
    child.wait()?;

    ctl.run(&["put", "kept", "in the snapshot"], "")?;
    let folder = Folder::new("etcdctl-snapshot")?;
    let file = folder.path().join("snapshot.db").display().to_string();
    let saved = ctl.run(&["snapshot", "save", &file], "")?;
    assert!(saved.contains("Snapshot saved"), "{saved}");
    let restored = Server::start(&[&format!("--restore={file}")])?;
    let text = Ctl { endpoint: restored.endpoint() }.run(&["get", "kept", "-w", "fields"], "")?;
    assert!(text.contains("in the snapshot"), "{text}");
    Ok(())
}

#[test]
fn etcdctl_speaks_tls_with_client_certificates_and_unix_sockets() -> Result<()> {
    let folder = Folder::new("tls")?;
    let authority = testkit::Authority::new(folder.path())?;
    let pair = authority.sign("server", "localhost", &[])?;
    let client = authority.sign("client", "root", &[])?;
    let port = testkit::free_port()?;
    let socket = folder.path().join("own.sock");
    let flags = [
        format!("--listen-client-urls=https://127.0.0.1:{port},unix://{}", socket.display()),
        format!("--cert-file={}", pair.certificate.display()),
        format!("--key-file={}", pair.key.display()),
        format!("--trusted-ca-file={}", authority.certificate.display()),
        "--client-cert-auth".to_owned(),
    ];
    let server = Server::start_on(&flags)?;
    let secure = Ctl { endpoint: format!("https://127.0.0.1:{port}") };
    let ca = format!("--cacert={}", authority.certificate.display());
    let with = [
        ca.clone(),
        format!("--cert={}", client.certificate.display()),
        format!("--key={}", client.key.display()),
    ];
    let with: Vec<&str> = with.iter().map(String::as_str).collect();
    assert!(secure.run(&[&with[..], &["put", "secure", "yes"]].concat(), "")?.contains("OK"));
    let refused =
        secure.run(&[&ca, "--command-timeout=2s", "--dial-timeout=1s", "put", "secure", "no"], "")?;
    assert!(refused.contains("Error"), "{refused}");
    for path in [socket, kvstore_engine::socket_path(&server.dir())] {
        let local = Ctl { endpoint: format!("unix://{}", path.display()) };
        assert!(local.run(&["get", "secure"], "")?.contains("yes"), "{}", path.display());
    }

    // Half of a pair is useless and changes nothing.
    let old = fs::read(&pair.certificate)?;
    fs::write(&pair.certificate, "half a certificate")?;
    assert!(secure.run(&[&with[..], &["get", "secure"]].concat(), "")?.contains("yes"));
    fs::write(&pair.certificate, old)?;
    // Another authority takes over: all files are replaced while the server runs.
    let renewed = testkit::Authority::new(folder.path())?;
    renewed.sign("server", "localhost", &[])?;
    renewed.sign("client", "root", &[])?;
    let text = secure.run(&[&with[..], &["get", "secure"]].concat(), "")?;
    assert!(text.contains("yes"), "with renewed certificates: {text}");
    Ok(())
}
