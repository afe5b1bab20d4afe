//! Starts the agent: its socket answers at once, if only that it is not ready yet, because a plugin that waits is
//! better off than one that opens its own connection. Opening the datastore is retried until it succeeds.

use super::server::{AgentState, bind, serve};
use crate::config::NetConf;
use crate::context::Context;
use crate::host::HostPaths;
use crate::request::Environment;
use crate::store::Store;
use daemon::Backoff;
use std::io;
use std::sync::Arc;

/// Serves the plugins of a node until it is dropped. `variables` configure the datastore.
///
/// # Errors
/// When the socket cannot be created, or fails.
pub async fn run(paths: HostPaths, node: &str, mut variables: Environment) -> io::Result<()> {
    // A plugin's own environment does not have this setting of the node: where a pod's addresses come from is up to the
    // network configuration, and may change while the node runs.
    for name in ["USE_POD_CIDR", "CALICO_USE_POD_CIDR"] {
        variables.remove(name);
    }
    let listener = bind(&paths.agent_socket)?;
    let state = AgentState::starting("the datastore");
    let opening = async {
        let store = open(&variables).await.warmed(node);
        state.set_ready(Context::new(Arc::new(store), paths, true));
    };
    tokio::join!(serve(listener, state.clone()), opening).0
}

async fn open(variables: &Environment) -> Store {
    let mut backoff = Backoff::SERVER;
    loop {
        match Store::open(&NetConf::default(), variables).await {
            Ok(store) => return store,
            Err(error) => {
                tracing::error!(%error, "the CNI agent cannot open the datastore; trying again");
                tokio::time::sleep(backoff.pause()).await;
            }
        }
    }
}
