//! Leader election among several instances: only the holder of a Lease (`coordination.k8s.io/v1`) may work.
//!
//! Off by default, because usually there is one instance. [`lease`] makes the decisions; this file reads and writes. A
//! holder that cannot renew stops before another may begin. A lease is written and released only in the version that
//! was seen, so that another holder's lease is never changed.

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

/// How long releasing the lease may take: otherwise it expires by itself.
const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

const LEASES: Collection = Collection { prefix: "/apis/coordination.k8s.io/v1", plural: "leases" };

/// The lease, and our identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderSettings {
    /// The namespace of the lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Our unique name.
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

/// The result of an attempt to get the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// We hold it.
    Ours,
    /// Another instance holds it.
    Theirs,
    /// It changed at the same time; the next attempt shows who holds it.
    Contested,
}

/// An instance that takes part in the election.
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
    /// Creates a candidate for this lease.
    #[must_use]
    pub fn new(cluster: Cluster, settings: LeaderSettings) -> Self {
        Self::with_timing(cluster, settings, Timing::default())
    }

    /// Creates a candidate with other times.
    #[must_use]
    pub fn with_timing(cluster: Cluster, settings: LeaderSettings, timing: Timing) -> Self {
        Self { cluster, settings, timing, observed: None, written: None, tenure: None }
    }

    /// Waits until we hold the lease. Returns false if the shutdown was requested first.
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
                        tracing::info!(lease = self.settings.name, holder, "another instance leads; waiting");
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
        tracing::error!(lease = self.settings.name, "lost the lease; we no longer lead");
    }

    /// When all work must have ended, according to the last renewal.
    #[must_use]
    pub fn end(&self) -> Option<Instant> {
        self.tenure.map(|tenure| tenure.end())
    }

    /// Releases the lease, so that other candidates need not wait until it expires. If it has changed since we wrote
    /// it, it is no longer ours.
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
            Ok(Err(error)) => tracing::warn!(%error, "could not release the lease; it will expire"),
            Err(_) => {
                tracing::warn!(lease = self.settings.name, "no answer to its release: the lease will expire");
            }
        }
    }

    /// Reads the lease, and takes or renews it if appropriate.
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
            // Another instance was faster.
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
