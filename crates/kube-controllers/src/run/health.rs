//! Checks every few seconds whether both sides can be reached and everything needed may be read, and reports it in the
//! status file and on the health pages.
//!
//! A missing permission that a controller cannot work without makes the process unready. One that only the migration of
//! policy names, virtual machines or load balancers need is reported, but the process is ready: roles of older releases
//! lack it.

use super::Base;
use crate::informer::Informers;
use api::ClusterInformationSpec;
use daemon::Shutdown;
use follow::Refusals;
use std::sync::Arc;
use std::time::Duration;

/// How long an answer may take; longer if the last one was late.
const SHORTEST_PATIENCE: Duration = Duration::from_secs(4);
const LONGEST_PATIENCE: Duration = Duration::from_secs(16);

/// The pauses between checks, when both sides are well and when not.
const PAUSE: Duration = Duration::from_secs(10);
const SHORT_PAUSE: Duration = Duration::from_secs(2);

/// Checks until the shutdown.
pub(super) async fn run(base: Arc<Base>, followed: Followed, shutdown: Shutdown) {
    for part in ["CalicoDatastore", "KubeAPIServer"] {
        base.status.set(part, false, "initialized to false");
    }
    let mut patience = SHORTEST_PATIENCE;
    loop {
        ask_datastore(&base, patience).await;
        ask_api_server(&base, patience).await;
        let troubles = followed.informers.troubles();
        base.parts.informers.report(troubles.is_empty(), troubles.join("; "));
        let (ready, reason) = verdict(&followed.refusals());
        base.status.set("Informers", ready, reason);
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

/// The informers and feeds whose permissions are checked.
#[derive(Clone, Default)]
pub(super) struct Followed {
    pub(super) informers: Informers,
    /// The feed of Calico's data that controllers cannot work without.
    pub(super) needed: Option<Refusals>,
    /// The feed of Calico's data that only the migration of policy names needs.
    pub(super) lesser: Option<Refusals>,
}

impl Followed {
    /// The missing permissions, and for each whether a controller cannot work without it.
    fn refusals(&self) -> Vec<(String, bool)> {
        let of = |feed: &Option<Refusals>| feed.as_ref().map(Refusals::list).unwrap_or_default();
        let mut all = self.informers.refusals();
        all.extend(of(&self.needed).into_iter().map(|refusal| (refusal.message, refusal.holds_back)));
        all.extend(of(&self.lesser).into_iter().map(|refusal| (refusal.message, false)));
        all
    }
}

/// Whether the controllers can work without the missing permissions, and the list of these.
fn verdict(refusals: &[(String, bool)]) -> (bool, String) {
    let is_ready = refusals.iter().all(|(_, is_needed)| !is_needed);
    // Permissions that stop the work come first.
    let mut ordered: Vec<&(String, bool)> = refusals.iter().collect();
    ordered.sort_by_key(|(_, is_needed)| !is_needed);
    (is_ready, ordered.into_iter().map(|(message, _)| message.as_str()).collect::<Vec<_>>().join("; "))
}

async fn ask_datastore(base: &Base, patience: Duration) {
    let informations = base.client.resource::<ClusterInformationSpec>();
    let error = match tokio::time::timeout(patience, informations.get("", api::words::GLOBAL_NAME)).await {
        Ok(Ok(_)) => None,
        // It was removed: create it again, as at the start.
        Ok(Err(error)) if error.is_does_not_exist() => base
            .client
            .ensure_initialized("", api::words::KUBERNETES)
            .await
            .err()
            .map(|error| error.to_string()),
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

#[cfg(test)]
mod tests {
    use super::verdict;

    #[test]
    fn only_what_is_needed_makes_the_process_unready() {
        let refusal = |text: &str, is_needed: bool| (text.to_owned(), is_needed);
        for (refusals, expected) in [
            (vec![], (true, "")),
            (vec![refusal("machines", false)], (true, "machines")),
            (vec![refusal("machines", false), refusal("blocks", true)], (false, "blocks; machines")),
        ] {
            let (ready, reason) = verdict(&refusals);
            assert_eq!((ready, reason.as_str()), expected);
        }
    }
}
