//! `calicoctl get --watch` as a process.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

#[test]
fn a_watch_ends_well_at_an_interrupt() {
    let etcd = testkit::Etcd::start().expect("etcd");
    let mut watch = Command::new(env!("CARGO_BIN_EXE_tortie"))
        .args(["ctl", "get", "ippool", "--watch"])
        .env_clear()
        .envs([("DATASTORE_TYPE", "etcdv3"), ("ETCD_ENDPOINTS", etcd.endpoint().as_str())])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program");
    let mut stdout = BufReader::new(watch.stdout.take().expect("its output"));
    let mut titles = String::new();
    stdout.read_line(&mut titles).expect("the titles");
    assert_eq!(titles, "NAME   CIDR   SELECTOR   \n");
    let interrupt = format!("kill -INT {}", watch.id());
    assert!(Command::new("sh").args(["-c", &interrupt]).status().expect("a shell").success());
    let output = watch.wait_with_output().expect("its end");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("the rest");
    assert_eq!((output.status.code(), rest.as_str(), output.stderr.as_slice()), (Some(0), "", &b""[..]));
}
