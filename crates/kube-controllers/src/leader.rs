//! Who may work, when several of us run: the holder of a Lease (`coordination.k8s.io/v1`).
//!
//! Off unless asked for: usually there is one. [`lease`] has the decisions; this file reads and writes. A holder that cannot
//! renew stops before anybody else may begin. A lease is written and given back only in the version that was seen, so that
//! nobody else's is touched.

mod lease;
#[cfg(test)]
mod tests;

pub(crate) use lease::{Decision, LeaseSpec, Observed, Tenure, Timing, decide};

use daemon::Shutdown;
use kube_access::cluster::{Cluster, ClusterError, Collection};
use lease::{given_back, held};
use serde::Deserialize;
use serde_json::json;
use std::time::{Duration, Instant};

/// How long giving the lease back may take: it ends by itself otherwise.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

const LEASES: Collection = Collection { prefix: "/apis/coordination.k8s.io/v1", plural: "leases" };

/// Which lease, and who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderSettings {
    /// The namespace of the lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Our name, unlike that of any other.
    pub identity: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Lease {
    metadata: LeaseMeta,
    spec: LeaseSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct LeaseMeta {
    #[serde(rename = "resourceVersion")]
    revision: String,
}

/// What came of an attempt to get the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// It is ours.
    Ours,
    /// Another holds it.
    Theirs,
    /// It changed at the same time; whose it is, the next attempt sees.
    Contested,
}

/// One candidate.
#[derive(Debug)]
pub struct Candidate {
    cluster: Cluster,
    settings: LeaderSettings,
    timing: Timing,
    observed: Option<Observed>,
    /// The version of the lease that we wrote last.
    written: Option<Lease>,
    tenure: Option<Tenure>,
}

impl Candidate {
    /// A candidate for this lease.
    #[must_use]
    pub fn new(cluster: Cluster, settings: LeaderSettings) -> Self {
        Self::with_timing(cluster, settings, Timing::default())
    }

    /// The same with other times.
    #[must_use]
    pub fn with_timing(cluster: Cluster, settings: LeaderSettings, timing: Timing) -> Self {
        Self { cluster, settings, timing, observed: None, written: None, tenure: None }
    }

    /// Waits until the lease is ours. False when the end was asked for before.
    pub async fn wait(&mut self, shutdown: &Shutdown) -> bool {
        let mut told = None;
        loop {
            match self.attempt().await {
                Ok(Attempt::Ours) => {
                    tracing::info!(lease = self.settings.name, "we lead");
                    return true;
                }
                Ok(Attempt::Theirs | Attempt::Contested) => {
                    let holder = self.observed.as_ref().and_then(|seen| seen.spec.holder_identity.clone());
                    if holder.is_some() && told != holder {
                        tracing::info!(
                            lease = self.settings.name,
                            holder,
                            "another leads; waiting for our turn"
                        );
                        told = holder;
                    }
                }
                Err(error) => tracing::warn!(%error, "cannot get the lease"),
            }
            if !shutdown.sleep(self.timing.pause).await {
                return false;
            }
        }
    }

    /// Keeps the lease; returns when it is lost. All attempts together end at the deadline of the last renewal.
    pub async fn keep(&mut self) {
        while let Some(tenure) = self.tenure {
            let Some(next) = tenure.next_attempt(Instant::now()) else { break };
            tokio::time::sleep_until(next.into()).await;
            match tokio::time::timeout_at(tenure.deadline().into(), self.attempt()).await {
                Ok(Ok(Attempt::Ours | Attempt::Contested)) => {}
                Ok(Ok(Attempt::Theirs)) => break,
                Ok(Err(error)) => tracing::warn!(%error, "cannot renew the lease"),
                Err(_) => tracing::warn!("no answer to the renewal of the lease"),
            }
        }
        tracing::error!(lease = self.settings.name, "we lead no longer");
    }

    /// When all work must be over, as far as the last renewal goes.
    #[must_use]
    pub fn end(&self) -> Option<Instant> {
        self.tenure.map(|tenure| tenure.end())
    }

    /// Gives the lease back, so that nobody has to wait for its end. One that is not as we wrote it is not ours any more.
    pub async fn release(&mut self) {
        self.tenure = None;
        let Some(written) = self.written.take() else { return };
        let body = self.body(&written.metadata.revision, &given_back(&written.spec));
        let (what, path) = (self.what("give back"), self.path());
        let sent = self.cluster.replace::<Lease>(&what, &path, &body);
        match tokio::time::timeout(RELEASE_PATIENCE, sent).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if error.is_conflict() || error.is_not_found() => {
                tracing::info!(lease = self.settings.name, "the lease was no longer ours");
            }
            Ok(Err(error)) => tracing::warn!(%error, "the lease stays until it ends"),
            Err(_) => tracing::warn!(lease = self.settings.name, "no answer: the lease stays until it ends"),
        }
    }

    /// Looks at the lease, and takes or renews it where that is right.
    async fn attempt(&mut self) -> Result<Attempt, ClusterError> {
        let begun = Instant::now();
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let found = match self.cluster.get::<Lease>(&self.what("read"), &self.path()).await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => {
                let spec = LeaseSpec {
                    lease_transitions: Some(0),
                    ..held(&LeaseSpec::default(), &self.settings.identity, &time, &self.timing)
                };
                let body = self.body("", &spec);
                let path = format!(
                    "{}/namespaces/{}/{}",
                    LEASES.prefix,
                    kube_access::cluster::encode(&self.settings.namespace),
                    LEASES.plural
                );
                let created = self.cluster.create::<Lease>(&self.what("create"), &path, &body).await;
                return self.wrote(created, begun);
            }
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        if self.observed.as_ref().map(|observed| &observed.spec) != Some(&found.spec) {
            self.observed = Some(Observed { spec: found.spec.clone(), since: now });
        }
        let observed = self.observed.clone().unwrap_or(Observed { spec: found.spec.clone(), since: now });
        if decide(&observed, &self.settings.identity, now) == Decision::Wait {
            return Ok(Attempt::Theirs);
        }
        let spec = held(&found.spec, &self.settings.identity, &time, &self.timing);
        let body = self.body(&found.metadata.revision, &spec);
        let replaced = self.cluster.replace::<Lease>(&self.what("write"), &self.path(), &body).await;
        self.wrote(replaced, begun)
    }

    fn wrote(
        &mut self,
        outcome: Result<Lease, ClusterError>,
        begun: Instant,
    ) -> Result<Attempt, ClusterError> {
        match outcome {
            Ok(lease) => {
                self.observed = Some(Observed { spec: lease.spec.clone(), since: Instant::now() });
                self.written = Some(lease);
                match &mut self.tenure {
                    Some(tenure) => tenure.renewed(begun),
                    none => *none = Some(Tenure::new(begun, self.timing)),
                }
                Ok(Attempt::Ours)
            }
            // Another was faster.
            Err(error) if error.is_conflict() => Ok(Attempt::Contested),
            Err(error) => Err(error),
        }
    }

    fn body(&self, revision: &str, spec: &LeaseSpec) -> serde_json::Value {
        let LeaderSettings { namespace, name, .. } = &self.settings;
        let mut metadata = json!({"namespace": namespace, "name": name});
        if !revision.is_empty() {
            metadata["resourceVersion"] = revision.into();
        }
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
    }

    fn path(&self) -> String {
        LEASES.object(&self.settings.namespace, &self.settings.name)
    }

    fn what(&self, verb: &str) -> String {
        format!("{verb} lease {}/{}", self.settings.namespace, self.settings.name)
    }
}
