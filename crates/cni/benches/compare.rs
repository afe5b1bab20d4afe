//! Attaches pods with Calico's plugin and detaches them with ours, and the other way round, on one host and one etcd.
//! Not a measurement; runs only on request.
//!
//! ```text
//! TORTIE_PEER_CNI=/path/to/calico TORTIE_PEER_CALICOCTL=/path/to/calicoctl cargo bench -p cni --bench compare -- compare
//! ```
//!
//! The peer is one program that is both `calico` and `calico-ipam`, depending on the name it is called by. Both plugins
//! attach pods of the same shapes; their answers, what they store and the pods themselves must be equal except for
//! identities. Calico's `calicoctl ipam show` must count the addresses, and at the end nothing is left. Everything runs
//! in network and mount namespaces of its own, because Calico's plugin locks and logs at fixed places.

#[path = "../tests/it/world.rs"]
#[expect(dead_code, reason = "the world of the tests has more than this needs")]
mod world;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use world::{Cluster, Node, Pod, add_node, answer, pool, port_of, told};

/// Set in the process that has namespaces of its own.
const INSIDE: &str = "TORTIE_COMPARE_INSIDE";

fn main() -> ExitCode {
    let mut output = std::io::stdout();
    if std::env::var_os("CNI_COMMAND").is_some() {
        let name = std::env::args().next().unwrap_or_default();
        let program = if name.ends_with("calico-ipam") { cni::Program::Ipam } else { cni::Program::Plugin };
        return ExitCode::from(cni::run_in_process(program));
    }
    let outcome = if std::env::var_os(INSIDE).is_some() {
        compare()
    } else if std::env::args().any(|word| word == "compare") {
        enter()
    } else {
        let _ =
            writeln!(output, "nothing is measured here; the word `compare` compares with TORTIE_PEER_CNI");
        Ok(())
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts this program again in namespaces where it cannot disturb other processes.
fn enter() -> Result<()> {
    let script = "mount -t tmpfs tmpfs /run && mkdir -p /run/netns && mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /var/log \
                  && mkdir /var/lib/calico && echo node-a > /var/lib/calico/nodename && ip link set lo up && exec \"$@\"";
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--fork", "--kill-child", "sh", "-ec", script, "sh"])
        .arg(std::env::current_exe()?)
        .env(INSIDE, "1")
        .status()
        .context("`unshare` (package util-linux)")?;
    ensure!(status.success(), "the comparison ended with {status}; it makes namespaces and needs root");
    Ok(())
}

/// One of the two programs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Ours,
    Theirs,
}

/// A host where both programs are installed, each in its own folder.
struct Bed {
    node: Node,
    cluster: Cluster,
}

impl Bed {
    async fn new(peer: &Path) -> Result<Self> {
        let cluster =
            Cluster::start(&[pool("pool", "10.10.0.0/16", 26), pool("pool-v6", "fd00:10::/64", 122)]).await?;
        add_node(&cluster.client, "node-a").await?;
        let settings = json!({"datastore_type": "etcdv3", "etcd_endpoints": cluster.etcd.endpoint(), "nodename": "node-a",
            "agent_socket": "none", "ipam": {"assign_ipv4": "true", "assign_ipv6": "true"}});
        let node = Node::with_plugin("node-a", settings, &std::env::current_exe()?)?;
        node.forward(port_of(&cluster.etcd.endpoint())?)?;
        let theirs = node.root().join("theirs");
        std::fs::create_dir_all(&theirs)?;
        for link in ["calico", "calico-ipam"] {
            symlink(peer, theirs.join(link))?;
        }
        Ok(Self { node, cluster })
    }

    fn folder(&self, who: Who) -> PathBuf {
        self.node.root().join(if who == Who::Ours { "bin" } else { "theirs" })
    }

    /// A call of one of the plugins.
    fn call(&self, who: Who, command: &str, pod: &Pod, previous: Option<&Value>) -> Result<Value> {
        let folder = self.folder(who);
        let mut changes = json!({});
        if let Some(previous) = previous {
            changes["prevResult"] = previous.clone();
        }
        let configuration = self.node.configuration(changes);
        let mut program = self.node.command(&folder.join("calico"), &pod.call(command));
        program.env("CNI_PATH", &folder);
        program
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let mut child = self.node.host.namespace.run(move || program.spawn())??;
        child.stdin.take().context("no standard input")?.write_all(configuration.to_string().as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{command} by {who:?}: {}", told(&output));
        // Calico's plugin answers "OK" to a CHECK.
        if command == "ADD" { answer(&output) } else { Ok(Value::Null) }
    }

    /// The state of an attachment as seen in the pod and on its host.
    fn shown(&self, pod: &Pod) -> Result<String> {
        let interface = pod.netns.ip(&["-o", "link", "show", "eth0"])?;
        let mut shown = String::new();
        for arguments in [
            &["-o", "addr", "show", "dev", "eth0"][..],
            &["route"],
            &["-6", "route"],
            &["neigh", "show", "nud", "permanent"],
        ] {
            shown.push_str(&pod.netns.ip(arguments)?);
        }
        shown.push_str(interface.split_once("mtu").map_or("", |(_, rest)| rest));
        Ok(shown)
    }

    /// What is stored about a container.
    fn stored(&self, container: &str) -> Result<BTreeMap<String, String>> {
        let all = self.cluster.dump()?;
        Ok(all.into_iter().filter(|(key, _)| key.contains(container)).collect())
    }
}

/// The text, with everything that is specific to one attachment masked.
fn masked(text: &str, container: &str) -> String {
    let text = text.replace(container, "CONTAINER");
    let is_mac = |word: &str| word.len() == 17 && word.split(':').count() == 6;
    let mut out = String::new();
    for word in text.split_inclusive(|sign: char| " \"/,@\\\n".contains(sign)) {
        let (plain, end) = word.split_at(
            word.len()
                - word
                    .chars()
                    .next_back()
                    .map_or(0, |last| if " \"/,@\\\n".contains(last) { last.len_utf8() } else { 0 }),
        );
        let is_address = plain.parse::<std::net::IpAddr>().is_ok();
        let is_uid = plain.len() == 36 && plain.matches('-').count() == 4;
        let is_time = plain.len() == 20 && plain.ends_with('Z');
        let is_interface = plain.starts_with("cali") && plain.len() == 15 || plain.starts_with("if");
        let is_gateway = plain == "169.254.1.1";
        // Our plugin spares the kernel a search for duplicates that cannot exist; both plugins switch the search off on
        // the device.
        if plain == "nodad" {
            continue;
        }
        let is_namespace = plain.starts_with("cni-") && plain.ends_with("-pod");
        let what = if plain.starts_with("fe80:") {
            "LINK-LOCAL"
        } else if is_address && !is_gateway {
            "ADDRESS"
        } else if is_mac(plain) {
            "MAC"
        } else if is_uid {
            "UID"
        } else if is_time {
            "TIME"
        } else if is_interface {
            "INTERFACE"
        } else if is_namespace {
            "NAMESPACE"
        } else {
            plain
        };
        out.push_str(what);
        out.push_str(end);
    }
    out
}

fn compare() -> Result<()> {
    let peer =
        std::env::var_os("TORTIE_PEER_CNI").context("TORTIE_PEER_CNI does not name Calico's plugin")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let bed = runtime.block_on(Bed::new(&std::path::absolute(peer)?))?;
    let mut seen: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (adds, deletes) in [(Who::Theirs, Who::Ours), (Who::Ours, Who::Theirs)] {
        let tag = if adds == Who::Ours { "ours" } else { "them" };
        let mut pods = Vec::new();
        for number in 0..3 {
            let container = format!("{tag}{number}0123456789abcdef");
            let pod = Pod::new(&container)?;
            let result = bed.call(adds, "ADD", &pod, None)?;
            seen.entry("answers").or_default().push(masked(&result.to_string(), &container));
            seen.entry("pods").or_default().push(masked(&bed.shown(&pod)?, &container));
            let stored: Vec<String> =
                bed.stored(&container)?.into_iter().map(|(key, value)| format!("{key} {value}")).collect();
            seen.entry("stored").or_default().push(masked(&stored.join("\n"), &container));
            // Each plugin checks what the other one created.
            bed.call(deletes, "CHECK", &pod, Some(&result))?;
            pods.push((pod, result));
        }
        check(&bed, pods.len())?;
        for (pod, result) in &pods {
            bed.call(deletes, "DEL", pod, Some(result))?;
            // A second time, as runtimes do.
            bed.call(adds, "DEL", pod, Some(result))?;
        }
        bed.node.assert_bare()?;
        bed.cluster.assert_bare()?;
        check(&bed, 0)?;
    }
    let mut different = 0;
    for (what, texts) in &seen {
        let differing: Vec<&String> = texts.iter().filter(|text| *text != &texts[0]).collect();
        let _ = writeln!(
            std::io::stdout(),
            "{what}: {} compared, {} differ from the first",
            texts.len(),
            differing.len()
        );
        if let Some(other) = differing.first() {
            let _ = writeln!(std::io::stdout(), "  theirs: {}\n  ours:   {other}", texts[0]);
        }
        different += differing.len();
    }
    ensure!(different == 0, "{different} differ");
    Ok(())
}

/// Calico's own count of addresses in use. (Its check needs a Kubernetes API.)
fn check(bed: &Bed, in_use: usize) -> Result<()> {
    let program = std::env::var_os("TORTIE_PEER_CALICOCTL")
        .context("TORTIE_PEER_CALICOCTL does not name Calico's calicoctl")?;
    let output = Command::new(program)
        .args(["--allow-version-mismatch", "ipam", "show"])
        .env("DATASTORE_TYPE", "etcdv3")
        .env("ETCD_ENDPOINTS", bed.cluster.etcd.endpoint())
        .output()?;
    let text = told(&output);
    let line = text.lines().find(|line| line.contains("10.10.0.0/16")).with_context(|| text.clone())?;
    let count = line.split('|').nth(4).and_then(|cell| cell.split_whitespace().next()).unwrap_or_default();
    ensure!(count == in_use.to_string(), "{in_use} addresses are in use: {text}");
    Ok(())
}
