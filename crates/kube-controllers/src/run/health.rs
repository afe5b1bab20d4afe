//! Whether both sides can be reached, asked every few seconds and told in the status file and on the health pages.

use super::Base;
use crate::informer::Informers;
use crate::shutdown::Shutdown;
use api::ClusterInformationSpec;
use std::sync::Arc;
use std::time::Duration;

/// How long an answer may take; longer when it did not come before.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(4);
const LONGEST_PATIENCE: Duration = Duration::from_secs(16);

/// How often is asked, when all is well and when it is not.
const PAUSE: Duration = Duration::from_secs(10);
const SHORT_PAUSE: Duration = Duration::from_secs(2);

/// Asks until the end is asked for.
pub(super) async fn run(base: Arc<Base>, informers: Informers, shutdown: Shutdown) {
    for part in ["CalicoDatastore", "KubeAPIServer"] {
        base.status.set(part, false, "initialized to false");
    }
    let mut patience = SHORTEST_PATIENCE;
    loop {
        ask_datastore(&base, patience).await;
        ask_api_server(&base, patience).await;
        let troubles = informers.troubles();
        base.parts.informers.report(troubles.is_empty(), troubles.join("; "));
        let pause = if base.status.is_ready() {
            patience = SHORTEST_PATIENCE;
            PAUSE
        } else {
            patience = (patience * 2).min(LONGEST_PATIENCE);
            SHORT_PAUSE
        };
        if !shutdown.sleep(pause).await {
            return;
        }
    }
}

async fn ask_datastore(base: &Base, patience: Duration) {
    let informations = base.client.resource::<ClusterInformationSpec>();
    let error = match tokio::time::timeout(patience, informations.get("", "default")).await {
        Ok(Ok(_)) => None,
        // Somebody removed it: make it again, as at the start.
        Ok(Err(error)) if error.is_does_not_exist() => {
            base.client.ensure_initialized("", "k8s").await.err().map(|error| error.to_string())
        }
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("no answer within {} s", patience.as_secs())),
    };
    let reason =
        error.as_ref().map(|error| format!("Error verifying datastore: {error}")).unwrap_or_default();
    if error.is_some() {
        tracing::error!(reason, "the datastore cannot be used");
    }
    base.status.set("CalicoDatastore", error.is_none(), reason);
    base.parts.datastore.report(error.is_none(), error.unwrap_or_default());
}

async fn ask_api_server(base: &Base, patience: Duration) {
    let error = base.cluster.healthz(patience).await.err().map(|error| error.to_string());
    let reason = error.as_ref().map(|error| format!("Error reaching apiserver: {error}")).unwrap_or_default();
    if error.is_some() {
        tracing::error!(reason, "the API server cannot be used");
    }
    base.status.set("KubeAPIServer", error.is_none(), reason);
    base.parts.api_server.report(error.is_none(), error.unwrap_or_default());
}
