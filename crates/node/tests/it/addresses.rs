//! Detection on the real machine, in network namespaces of the test's own. Needs root.

use model::IpVersion;
use node::for_tests::{Facts, Host as _, Method, ThisHost, detect};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A network namespace that is removed with the test.
struct Namespace {
    name: String,
}

impl Namespace {
    fn new(purpose: &str) -> Self {
        let name = format!("tortie-node-{}-{purpose}", std::process::id());
        ip(&["netns", "add", &name]);
        Self { name }
    }

    fn ip(&self, arguments: &[&str]) {
        let mut all = vec!["-n", self.name.as_str()];
        all.extend_from_slice(arguments);
        ip(&all);
    }

    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = PathBuf::from("/var/run/netns").join(&self.name);
        netlink::namespace::Namespace::open(&path).expect("the namespace").run(work).expect("entering")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

fn ip(arguments: &[&str]) {
    let output =
        Command::new("ip").args(arguments).output().expect("this test needs iproute2's `ip`: `make setup`");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn found(namespace: &Namespace, method: &str, family: IpVersion) -> Result<String, String> {
    let method = Method::parse(method).expect("a method");
    namespace.run(|| {
        let host = ThisHost { root: Path::new("/").to_owned() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let interfaces = host.interfaces().expect("interfaces");
        let reached = match &method {
            Method::CanReach(destination) => Some(runtime.block_on(host.reach(destination, family))),
            _ => None,
        };
        let facts = Facts { interfaces: &interfaces, reached, ..Facts::default() };
        detect(&method, family, &facts).map(|net| net.to_string()).map_err(|error| error.to_string())
    })
}

#[test]
fn every_method_works_on_a_real_machine() {
    let namespace = Namespace::new("detect");
    namespace.ip(&["link", "set", "lo", "up"]);
    for (name, peer) in [("eth0", "far0"), ("eth1", "far1"), ("cali1", "far2")] {
        namespace.ip(&["link", "add", name, "type", "veth", "peer", "name", peer]);
        namespace.ip(&["link", "set", name, "up"]);
        namespace.ip(&["link", "set", peer, "up"]);
    }
    namespace.ip(&["addr", "add", "10.97.0.5/24", "dev", "eth0"]);
    namespace.ip(&["addr", "add", "10.97.0.6/24", "dev", "eth0"]);
    namespace.ip(&["addr", "add", "fd97::5/64", "dev", "eth0", "nodad"]);
    namespace.ip(&["addr", "add", "10.96.0.5/32", "dev", "eth1"]);
    namespace.ip(&["addr", "add", "10.95.0.5/24", "dev", "cali1"]);
    namespace.ip(&["route", "add", "192.0.2.0/24", "via", "10.97.0.1", "dev", "eth0"]);
    namespace.ip(&["-6", "route", "add", "2001:db8::/32", "via", "fd97::1", "dev", "eth0"]);
    for (method, family, expected) in [
        ("first-found", IpVersion::V4, Ok("10.96.0.5/32")),
        ("first-found", IpVersion::V6, Ok("fd97::5/64")),
        ("skip-interface=eth1", IpVersion::V4, Ok("10.97.0.5/24")),
        ("interface=eth0", IpVersion::V4, Ok("10.97.0.5/24")),
        ("interface=cali.*", IpVersion::V4, Ok("10.95.0.5/24")),
        ("cidr=10.96.0.0/16", IpVersion::V4, Ok("10.96.0.5/32")),
        ("can-reach=192.0.2.7", IpVersion::V4, Ok("10.97.0.5/24")),
        ("can-reach=2001:db8::7", IpVersion::V6, Ok("fd97::5/64")),
        ("can-reach=203.0.113.7", IpVersion::V4, Err("no route to 203.0.113.7")),
        ("can-reach=192.0.2.7", IpVersion::V6, Err("no IPv6 address")),
        ("interface=eth.*", IpVersion::V4, Err("10.96.0.5/32 on eth1, 10.97.0.5/24 on eth0")),
    ] {
        match (found(&namespace, method, family), expected) {
            (Ok(address), Ok(expected)) => assert_eq!(address, expected, "{method}"),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{method}: {error}"),
            (outcome, expected) => panic!("{method}: {outcome:?} instead of {expected:?}"),
        }
    }
}
