//! A network namespace for one test, removed with it, and its state as `nft` shows it.

use netlink::namespace::Namespace;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace.
pub(crate) struct Host {
    name: String,
}

impl Host {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        for program in ["ip", "nft", "ipset", "conntrack", "iptables-nft-restore", "iptables-legacy-restore"]
        {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let found = std::env::split_paths(&path).any(|place| place.join(program).exists());
            assert!(
                found,
                "{program} is missing: install iproute2, nftables, ipset, conntrack and iptables, and put /usr/sbin on PATH"
            );
        }
        let name = format!("tortie-dp-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let output = Command::new("ip").args(["netns", "add", &name]).output().expect("ip runs");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "these tests create network namespaces and need root: {words}");
        let host = Self { name };
        host.shell("ip link set lo up");
        host
    }

    /// Its name, which is unique on this machine.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Runs code in the namespace.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = PathBuf::from(format!("/var/run/netns/{}", self.name));
        Namespace::open(&path).expect("the namespace").run(work).expect("the namespace can be entered")
    }

    /// Runs a shell script in the namespace, with this input.
    pub(crate) fn try_shell(&self, script: &str, input: &str) -> Result<String, String> {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.name, "sh", "-ec", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ip runs");
        let stdin = child.stdin.take();
        let output = std::thread::scope(|scope| {
            scope.spawn(move || {
                use std::io::Write as _;
                let _ = stdin.map(|mut stdin| stdin.write_all(input.as_bytes()));
            });
            child.wait_with_output().expect("the shell ends")
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // The shell's own exit code for a missing program: never an answer to the test.
        assert_ne!(output.status.code(), Some(127), "`{script}`: {}", text(&output.stderr));
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Runs a shell script that must succeed.
    pub(crate) fn shell(&self, script: &str) -> String {
        self.try_shell(script, "").unwrap_or_else(|error| panic!("`{script}`: {error}"))
    }

    /// Passes input to a shell script that must succeed.
    pub(crate) fn feed(&self, script: &str, input: &str) {
        self.try_shell(script, input).unwrap_or_else(|error| panic!("`{script}`: {error}"));
    }

    /// The whole ruleset as `nft` shows it, without counters.
    pub(crate) fn ruleset(&self) -> Ruleset {
        let printed = self.shell("nft -j -s list ruleset");
        let parsed: Value = serde_json::from_str(&printed).expect("nft prints JSON");
        let mut ruleset = Ruleset::default();
        for object in parsed["nftables"].as_array().expect("a list") {
            let (kind, mut value) = object
                .as_object()
                .expect("an object")
                .iter()
                .next()
                .map(|(k, v)| (k.clone(), v.clone()))
                .expect("one");
            let place = |name: &Value| {
                format!(
                    "{} {} {}",
                    value["family"].as_str().unwrap_or(""),
                    value["table"].as_str().unwrap_or(""),
                    name.as_str().unwrap_or("")
                )
            };
            match kind.as_str() {
                "rule" => {
                    let chain = place(&value["chain"]);
                    let comment = value["comment"].as_str().unwrap_or("").to_owned();
                    ruleset.rules.entry(chain).or_default().push((comment, value["expr"].take()));
                }
                "chain" => {
                    let name = place(&value["name"]);
                    value["handle"].take();
                    ruleset.rules.entry(name.clone()).or_default();
                    ruleset.chains.insert(name, value);
                }
                "set" | "map" => {
                    let name = place(&value["name"]);
                    value["handle"].take();
                    if let Some(elements) = value["elem"].as_array_mut() {
                        elements.sort_by_key(Value::to_string);
                    }
                    ruleset.sets.insert(name, value);
                }
                _ => {}
            }
        }
        ruleset
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).output();
    }
}

/// The listing of `nft`, by family, table and name.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ruleset {
    pub(crate) chains: BTreeMap<String, Value>,
    pub(crate) rules: BTreeMap<String, Vec<(String, Value)>>,
    pub(crate) sets: BTreeMap<String, Value>,
}

impl Ruleset {
    /// The comments of a chain's rules.
    pub(crate) fn comments(&self, chain: &str) -> Vec<&str> {
        self.rules
            .get(chain)
            .unwrap_or_else(|| panic!("no chain {chain}"))
            .iter()
            .map(|(comment, _)| comment.as_str())
            .collect()
    }
}
