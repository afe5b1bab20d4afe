//! An agent in a container: it has a mount namespace of its own and does not see the host's files, or sees others under
//! the same name.

use crate::agent::{Agent, ask, world};
use crate::world::{Call, Pod, address_of, told};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::path::Path;

/// Hides these folders of the host from the agent's container.
fn hide(folders: &[&Path]) -> String {
    folders.iter().map(|folder| format!("mount -t tmpfs none '{}' && ", folder.display())).collect()
}

fn leases(folder: &Path) -> Result<Vec<String>> {
    let found = std::fs::read_dir(folder.join("k8s-pod-network"))?.flatten();
    let names = found.map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.starts_with("10.")).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_and_files_of_the_host_are_not_the_agents() -> Result<()> {
    let (cluster, node) = world().await?;
    let hidden = node.root().join("hidden");
    std::fs::create_dir_all(&hidden)?;
    std::fs::write(hidden.join("nodename"), "node-a")?;
    let agent = Agent::start_apart(&node, &[], &hide(&[Path::new("/usr/lib/cni"), &hidden]))?;

    // Another IPAM plugin: found on the host, its leases on the host.
    let local =
        json!({"ipam": {"type": "host-local", "subnet": "10.99.0.0/24", "dataDir": hidden.join("leases")}});
    let (one, two) = (Pod::new("one")?, Pod::new("two")?);
    let addresses =
        [address_of(&node.add(&one, local.clone())?)?, address_of(&node.add(&two, local.clone())?)?];
    let mut found = leases(&hidden.join("leases"))?;
    found.sort();
    assert_eq!(found, addresses);
    node.del(&one, local.clone())?;
    node.del(&two, local.clone())?;
    assert_eq!(leases(&hidden.join("leases"))?, Vec::<String>::new());

    // A file with the node's name.
    let named = json!({"nodename_file": hidden.join("nodename")});
    node.add(&one, named.clone())?;
    node.del(&one, named)?;

    // An older plugin asks all the same, and gets this as the answer.
    let answer = |changes: Value| -> Result<String> {
        let configuration = node.configuration(changes).to_string();
        ask(
            &node,
            &json!({"oldest": 1, "newest": 1, "program": "plugin", "configuration": configuration, "has_namespace": false,
                "environment": {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "c", "CNI_IFNAME": "eth0", "CNI_PATH": "/x"}})
            .to_string(),
        )
    };
    for changes in [
        local,
        json!({"nodename_file": "/elsewhere"}),
        json!({"dataplane_options": {"type": "grpc", "socket": "unix:///x"}}),
    ] {
        let told = answer(changes)?;
        ensure!(told.starts_with(r#"{"not-mine":"#), "{told}");
    }
    assert_eq!(answer(json!({}))?, r#"{"done":{"stdout":"","exit":0}}"#);
    agent.kill()?;
    node.assert_bare()?;
    cluster.assert_bare()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_removed_from_the_hosts_own_namespace() -> Result<()> {
    let (cluster, node) = world().await?;
    node.host.ip(&["link", "add", "victim0", "type", "bridge"])?;
    let has_victim = || -> Result<bool> { Ok(node.host.links()?.contains(&"victim0".to_owned())) };
    // The path of a namespace that is gone for the plugin leads to the agent's own, which is the host's.
    let folder = node.root().join("containers");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("gone");
    let script = format!(
        "mount -t tmpfs none '{}' && touch '{1}' && mount --bind /proc/self/ns/net '{1}' && ",
        folder.display(),
        path.display()
    );
    let agent = Agent::start_apart(&node, &[], &script)?;
    ensure!(!path.exists(), "the plugin sees what only the agent should");
    let netns = path.display().to_string();
    let del = |netns: &str, changes: Value| -> Result<()> {
        let call = Call { command: "DEL", container: "c1", netns, ifname: "victim0", args: "" };
        let output = node.call(&call, &node.configuration(changes))?;
        ensure!(output.status.success(), "{}", told(&output));
        Ok(())
    };
    del(&netns, json!({}))?;
    ensure!(has_victim()?, "the agent removed a device of the host");
    // The plugin itself is given the host's namespace, as after the reuse of a process id.
    let own = node.host.path();
    del(&own, json!({"agent_socket": "none"}))?;
    del(&own, json!({}))?;
    ensure!(has_victim()?, "the plugin removed a device of the host");
    agent.kill().context("ending the agent")?;
    cluster.assert_bare()
}
