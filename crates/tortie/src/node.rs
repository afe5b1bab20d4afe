//! What the node's commands need of other components: which of them this program has, and the CNI agent as one of the
//! node's services.

use anyhow::{Result, anyhow, bail};
use cni::agent::{AgentState, alone, bind, serve};
use cni::config::NetConf;
use cni::{HostPaths, Store};
use node::cli::{NodeCommand, OldCommand, Surroundings};
use node::services::Service;
use node::shutdown_signal::Shutdown;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The components that this program can run as processes of the node.
const COMPONENTS: [&str; 1] = ["felix"];

/// The pauses while the datastore cannot be opened.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Runs a command of the node.
pub(crate) fn run(command: NodeCommand) -> Result<ExitCode> {
    let surroundings = Surroundings {
        calico_version: calicoctl::version_gate::CALICO_VERSION,
        version: &calicoctl::version::client_version(),
        components: &COMPONENTS,
        services: Box::new(|context| vec![cni_agent(context)]),
    };
    node::cli::run(command, surroundings).map_err(|error| anyhow!(error))
}

/// Runs what the flags of older manifests ask for.
pub(crate) fn run_old(flags: &[String]) -> Result<ExitCode> {
    match node::cli::parse_old(flags)? {
        OldCommand::Node(command) => run(command),
        OldCommand::Help => crate::print(&node::cli::old_help()),
        OldCommand::Component(name, _) => bail!("{name} is not part of this version yet"),
    }
}

/// The socket by which plugins hand their calls to this process. It answers from the beginning, if only that it is not
/// ready yet: a plugin that waits is better off than one that opens its own connection.
fn cni_agent(context: &node::Context) -> Service {
    let context = context.clone();
    Service::new("cni-agent", |shutdown| {
        alone(move || async move {
            let paths = HostPaths::below(&context.root);
            let listener = bind(&paths.agent_socket)?;
            let state = AgentState::starting("the datastore");
            let opening = open(&context, paths, state.clone(), shutdown.clone());
            tokio::select! {
                outcome = serve(listener, state) => outcome,
                outcome = opening => outcome,
                () = shutdown.requested() => Ok(()),
            }
        })
    })
}

/// Opens the datastore for the agent, as often as it takes, and then waits for the end.
async fn open(
    context: &node::Context,
    paths: HostPaths,
    state: AgentState,
    shutdown: Shutdown,
) -> std::io::Result<()> {
    let node_name = context.node_name().map_err(std::io::Error::other)?;
    let mut variables = crate::variables();
    // A plugin's own environment does not have this setting of the node: what a pod's addresses come from is the network
    // configuration's business, and may change while the node runs.
    for name in ["USE_POD_CIDR", "CALICO_USE_POD_CIDR"] {
        variables.remove(name);
    }
    let mut pause = SHORTEST_PAUSE;
    while !shutdown.is_requested() {
        match Store::open(&NetConf::default(), &variables).await {
            Ok(store) => {
                let store = Arc::new(store.warmed(&node_name));
                state.set_ready(cni::Context::new(store, paths, true));
                break;
            }
            Err(error) => {
                tracing::error!(%error, "the CNI agent cannot open the datastore; trying again");
                shutdown.sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    shutdown.requested().await;
    Ok(())
}
