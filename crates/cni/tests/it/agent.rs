//! Through the agent: the same work, warm; and an agent that is starting, gone, killed during a call, or of another
//! version.

use crate::world::{Cluster, Node, Pod, add_node, address_of, answer, pool, reach, refusal, told};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running agent; killed when dropped.
pub(crate) struct Agent {
    child: Child,
}

impl Agent {
    pub(crate) fn start(node: &Node, variables: &[(&str, &str)]) -> Result<Self> {
        Self::run(node, variables, Command::new(node.root().join("bin/calico")))
    }

    /// Starts it in a mount namespace of its own, after these shell commands.
    pub(crate) fn start_apart(node: &Node, variables: &[(&str, &str)], script: &str) -> Result<Self> {
        let mut command = Command::new("/usr/bin/unshare");
        command
            .args(["--mount", "--propagation", "private", "/bin/sh", "-c"])
            .arg(format!("{script} exec '{}'", node.root().join("bin/calico").display()));
        Self::run(node, variables, command)
    }

    fn run(node: &Node, variables: &[(&str, &str)], mut command: Command) -> Result<Self> {
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("AGENT_SOCKET", socket(node))
            .env("TORTIE_HOST_ROOT", node.root())
            .env("NODENAME", &node.name)
            .env("DATASTORE_TYPE", "etcdv3")
            .env("ETCD_ENDPOINTS", node.settings["etcd_endpoints"].as_str().unwrap_or_default())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(node.root().join("agent.log"))?);
        let child = node.host.namespace.run(move || command.spawn())??;
        let agent = Self { child };
        let deadline = Instant::now() + Duration::from_secs(120);
        while std::os::unix::net::UnixStream::connect(socket(node)).is_err() {
            ensure!(Instant::now() < deadline, "the agent does not listen: {}", log(node));
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(agent)
    }

    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn socket(node: &Node) -> PathBuf {
    node.root().join("var/run/calico/cni-agent.sock")
}

pub(crate) async fn world() -> Result<(Cluster, Node)> {
    let cluster = Cluster::start(&[pool("pool", "10.10.0.0/16", 26)]).await?;
    add_node(&cluster.client, "node-a").await?;
    let node = Node::on_etcd("node-a", &cluster.etcd)?;
    Ok((cluster, node))
}

/// The agent's own log.
fn log(node: &Node) -> String {
    std::fs::read_to_string(node.root().join("agent.log")).unwrap_or_default()
}

/// Sends a question to the agent as a plugin does; returns the answer.
pub(crate) fn ask(node: &Node, question: &str) -> Result<String> {
    let mut stream = std::os::unix::net::UnixStream::connect(socket(node))?;
    stream.write_all(&u32::try_from(question.len())?.to_be_bytes())?;
    stream.write_all(question.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(answer.get(4..).unwrap_or_default()).into_owned())
}

/// Whether the plugin's log shows that it did the work itself.
fn worked_itself(output: &std::process::Output) -> bool {
    told(output).contains("working without the agent") || told(output).contains("does not do this")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_does_the_work_without_credentials_of_the_plugin() -> Result<()> {
    let (cluster, mut node) = world().await?;
    let agent = Agent::start(&node, &[])?;
    assert_eq!(std::fs::metadata(socket(&node))?.permissions().mode() & 0o777, 0o600);
    // Same store by name; a plugin that did the work itself would need an endpoint that answers.
    let pods: Vec<Pod> = (0..64).map(|number| Pod::new(&format!("c{number}"))).collect::<Result<_>>()?;
    let plugin = node.root().join("bin/calico");
    let configuration = node.configuration(json!({}));
    let started: Vec<Child> = pods
        .iter()
        .map(|pod| node.start(&plugin, &pod.call("ADD"), &configuration))
        .collect::<Result<_>>()?;
    let mut addresses = std::collections::BTreeSet::new();
    for child in started {
        let output = child.wait_with_output()?;
        addresses.insert(address_of(&answer(&output)?)?);
        ensure!(!worked_itself(&output), "{} {}", told(&output), log(&node));
    }
    assert_eq!(addresses.len(), 64);
    let second = pods[1].netns.ip(&["-4", "addr", "show", "eth0"])?;
    let second =
        second.split("inet ").nth(1).and_then(|rest| rest.split('/').next()).context("no address")?;
    reach(&pods[0].netns, &pods[1].netns, second)?;
    // The agent passes errors on unchanged.
    let lost = Pod::new("lost")?;
    let mut call = lost.call("ADD");
    call.netns = "/var/run/netns/cni-none";
    let (code, _) = refusal(&node.call(&call, &configuration)?)?;
    assert_eq!(code, 8);
    // The agent does not serve another datastore: the plugin tries itself, and cannot reach that one.
    node.settings = json!({"datastore_type": "etcdv3", "etcd_endpoints": "http://127.0.0.1:1"});
    let output = node.call(&lost.call("ADD"), &node.configuration(json!({})))?;
    ensure!(refusal(&output).is_ok() && worked_itself(&output), "{}", told(&output));
    let started: Vec<Child> = pods
        .iter()
        .map(|pod| node.start(&plugin, &pod.call("DEL"), &configuration))
        .collect::<Result<_>>()?;
    for child in started {
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "{}", told(&output));
    }
    agent.kill()?;
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_waits_for_a_starting_agent_up_to_a_limit() -> Result<()> {
    let (cluster, mut node) = world().await?;
    node.variables.insert("TORTIE_CNI_AGENT_TIMEOUT".into(), "1".into());
    // It listens but is waiting for something itself.
    let agent = Agent::start(&node, &[("AGENT_NEVER_READY", "1")])?;
    let pod = Pod::new("c1")?;
    let output = node.call(&pod.call("ADD"), &node.configuration(json!({})))?;
    answer(&output)?;
    ensure!(told(&output).contains("it is waiting for the datastore"), "{}", told(&output));
    agent.kill()?;
    // Its socket exists but nothing listens.
    let output = node.call(&pod.call("DEL"), &node.configuration(json!({})))?;
    ensure!(output.status.success() && worked_itself(&output), "{}", told(&output));
    cluster.assert_bare()?;
    // No agent and no reachable datastore: ADD reports what it waited for, DEL is kept for the agent.
    let nowhere = json!({"etcd_endpoints": "http://127.0.0.1:1"});
    let output = node.call(&pod.call("ADD"), &node.configuration(nowhere))?;
    let (_, _) = refusal(&output)?;
    ensure!(
        String::from_utf8_lossy(&output.stdout).contains("did not answer within 1 s"),
        "{}",
        told(&output)
    );
    // An agent that starts in the meantime is found.
    node.variables.insert("TORTIE_CNI_AGENT_TIMEOUT".into(), "60".into());
    let plugin = node.root().join("bin/calico");
    let waiting = node.start(&plugin, &pod.call("ADD"), &node.configuration(json!({})))?;
    let agent = Agent::start(&node, &[])?;
    let output = waiting.wait_with_output()?;
    answer(&output)?;
    ensure!(!worked_itself(&output), "{} {}", told(&output), log(&node));
    node.del(&pod, json!({}))?;
    agent.kill()?;
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_killed_during_a_call_leaves_nothing() -> Result<()> {
    let (cluster, mut node) = world().await?;
    node.variables.insert("TORTIE_CNI_AGENT_TIMEOUT".into(), "1".into());
    for step in cni::for_tests::STEPS {
        let agent = Agent::start(&node, &[("TORTIE_CNI_DIE_AT", step)])?;
        let pod = Pod::new(&step.replace('-', ""))?;
        // The plugin sees the connection break and does the work itself.
        let output = node.call(&pod.call("ADD"), &node.configuration(json!({})))?;
        let result = answer(&output)?;
        ensure!(worked_itself(&output), "{step}: {}", told(&output));
        ensure!(pod.netns.ip(&["addr", "show", "eth0"])?.contains(&address_of(&result)?), "{step}");
        node.del(&pod, json!({}))?;
        agent.kill()?;
        node.assert_bare()?;
        cluster.assert_bare()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_carries_out_due_releases() -> Result<()> {
    let (mut cluster, node) = world().await?;
    let pod = Pod::new("c1")?;
    node.add(&pod, json!({}))?;
    cluster.etcd.kill();
    node.del(&pod, json!({}))?;
    cluster.etcd.restart()?;
    let agent = Agent::start(&node, &[])?;
    let pending = node.root().join("var/lib/calico/cni-pending");
    testkit::eventually("nothing is due", || Ok(std::fs::read_dir(&pending)?.next().is_none()))?;
    agent.kill()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_without_overlap() -> Result<()> {
    let (_cluster, node) = world().await?;
    let agent = Agent::start(&node, &[])?;
    let ask = |question: &str| ask(&node, question);
    assert_eq!(
        ask(r#"{"oldest":7,"newest":9,"something":"new"}"#)?,
        r#"{"other-version":{"oldest":1,"newest":1}}"#
    );
    assert!(ask("nonsense")?.starts_with(r#"{"not-mine":"#));
    // A frame that is too long ends the connection, but not the agent.
    let mut stream = std::os::unix::net::UnixStream::connect(socket(&node))?;
    stream.write_all(&[0xff; 4])?;
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest)?;
    assert!(rest.is_empty());
    assert!(ask("{}")?.starts_with(r#"{"not-mine":"#));
    agent.kill()
}
