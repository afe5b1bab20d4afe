//! Who may work, when several of us run: the holder of a Lease (`coordination.k8s.io/v1`).
//!
//! Off unless asked for: usually there is one. [`decide`] says what to do about a lease that was seen; clocks of different
//! machines are never compared, only how long a lease has not changed before our own eyes. A holder that cannot renew stops
//! working well before anybody else may begin.

use crate::cluster::{Cluster, ClusterError, Collection};
use crate::shutdown::Shutdown;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::{Duration, Instant};

/// How long a lease holds after it was renewed.
const DURATION: Duration = Duration::from_secs(15);
/// After how long without a renewal the holder gives up.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// How often the lease is looked at.
const PAUSE: Duration = Duration::from_secs(2);

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

/// A lease, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<u64>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<u64>,
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

/// What we saw of a lease, and since when it has been like that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    spec: LeaseSpec,
    since: Instant,
}

/// What to do about the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is ours: renew it.
    Renew,
    /// Nobody holds it any more: take it.
    Take,
    /// Somebody else holds it.
    Wait,
}

/// Decides about a lease that was seen.
#[must_use]
pub fn decide(observed: &Observed, identity: &str, now: Instant) -> Decision {
    match observed.spec.holder_identity.as_deref() {
        Some(holder) if holder == identity => Decision::Renew,
        None | Some("") => Decision::Take,
        Some(_) => {
            let holds = observed.spec.lease_duration_seconds.map_or(DURATION, Duration::from_secs);
            if now.saturating_duration_since(observed.since) > holds {
                Decision::Take
            } else {
                Decision::Wait
            }
        }
    }
}

/// The lease as it is after we took or renewed it.
fn held(before: &LeaseSpec, identity: &str, time: &str) -> LeaseSpec {
    let is_ours = before.holder_identity.as_deref() == Some(identity);
    let transitions = before.lease_transitions.unwrap_or(0);
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(DURATION.as_secs()),
        acquire_time: if is_ours { before.acquire_time.clone() } else { Some(time.to_owned()) },
        renew_time: Some(time.to_owned()),
        lease_transitions: Some(if is_ours { transitions } else { transitions + 1 }),
    }
}

/// One candidate.
#[derive(Debug)]
pub struct Candidate {
    cluster: Cluster,
    settings: LeaderSettings,
    observed: Option<Observed>,
}

impl Candidate {
    /// A candidate for this lease.
    #[must_use]
    pub fn new(cluster: Cluster, settings: LeaderSettings) -> Self {
        Self { cluster, settings, observed: None }
    }

    /// Waits until the lease is ours. False when the end was asked for before.
    pub async fn wait(&mut self, shutdown: &Shutdown) -> bool {
        let mut told = None;
        loop {
            match self.attempt().await {
                Ok(true) => {
                    tracing::info!(lease = self.settings.name, "we lead");
                    return true;
                }
                Ok(false) => {
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
            if !shutdown.sleep(PAUSE).await {
                return false;
            }
        }
    }

    /// Keeps the lease; returns when it is lost.
    pub async fn keep(&mut self) {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(PAUSE).await;
            match tokio::time::timeout(RENEW_DEADLINE, self.attempt()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => break,
                Ok(Err(error)) => tracing::warn!(%error, "cannot renew the lease"),
                Err(_) => tracing::warn!("no answer to the renewal of the lease"),
            }
            if renewed.elapsed() > RENEW_DEADLINE {
                break;
            }
        }
        tracing::error!(lease = self.settings.name, "we lead no longer");
    }

    /// Gives the lease back, so that nobody has to wait for its end.
    pub async fn release(&mut self) {
        let Some(observed) = self.observed.clone() else { return };
        if observed.spec.holder_identity.as_deref() != Some(&self.settings.identity) {
            return;
        }
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            ..observed.spec
        };
        let patch = json!({"spec": spec});
        let (what, path) = (self.what("give back"), self.path());
        let sent = self.cluster.send::<Lease>(
            &what,
            http::Method::PATCH,
            &path,
            &patch,
            crate::cluster::MERGE_PATCH,
        );
        if let Err(error) = sent.await {
            tracing::warn!(%error, "the lease stays until it ends");
        }
    }

    /// Looks at the lease, and takes or renews it where that is right. Whether it is ours now.
    async fn attempt(&mut self) -> Result<bool, ClusterError> {
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let found = match self.cluster.get::<Lease>(&self.what("read"), &self.path()).await {
            Ok(lease) => lease,
            Err(error) if error.is_not_found() => {
                let spec = LeaseSpec {
                    lease_transitions: Some(0),
                    ..held(&LeaseSpec::default(), &self.settings.identity, &time)
                };
                let body = self.body("", &spec);
                let path = format!(
                    "{}/namespaces/{}/{}",
                    LEASES.prefix,
                    crate::cluster::encode(&self.settings.namespace),
                    LEASES.plural
                );
                return self.written(self.cluster.create::<Lease>(&self.what("create"), &path, &body).await);
            }
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        if self.observed.as_ref().map(|observed| &observed.spec) != Some(&found.spec) {
            self.observed = Some(Observed { spec: found.spec.clone(), since: now });
        }
        let observed = self.observed.clone().unwrap_or(Observed { spec: found.spec.clone(), since: now });
        if decide(&observed, &self.settings.identity, now) == Decision::Wait {
            return Ok(false);
        }
        let body = self.body(&found.metadata.revision, &held(&found.spec, &self.settings.identity, &time));
        self.written(self.cluster.replace::<Lease>(&self.what("write"), &self.path(), &body).await)
    }

    fn written(&mut self, outcome: Result<Lease, ClusterError>) -> Result<bool, ClusterError> {
        match outcome {
            Ok(lease) => {
                self.observed = Some(Observed { spec: lease.spec, since: Instant::now() });
                Ok(true)
            }
            // Somebody else was faster.
            Err(error) if error.is_conflict() => Ok(false),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_when_it_stood_still_for_too_long() {
        let begin = Instant::now();
        let spec = held(&LeaseSpec::default(), "other", "t");
        let observed = Observed { spec, since: begin };
        for (identity, passed, expected) in [
            ("me", 0, Decision::Wait),
            ("me", 15, Decision::Wait),
            ("me", 16, Decision::Take),
            ("other", 100, Decision::Renew),
        ] {
            assert_eq!(decide(&observed, identity, begin + Duration::from_secs(passed)), expected);
        }
        let given_back = Observed { spec: LeaseSpec::default(), since: begin };
        assert_eq!(decide(&given_back, "me", begin), Decision::Take);
    }

    #[test]
    fn transitions_count_changes_of_the_holder() {
        let first = held(&LeaseSpec::default(), "a", "1");
        assert_eq!((first.lease_transitions, first.acquire_time.as_deref()), (Some(1), Some("1")));
        let renewed = held(&first, "a", "2");
        assert_eq!((renewed.lease_transitions, renewed.acquire_time.as_deref()), (Some(1), Some("1")));
        assert_eq!(renewed.renew_time.as_deref(), Some("2"));
        let taken = held(&renewed, "b", "3");
        assert_eq!((taken.lease_transitions, taken.acquire_time.as_deref()), (Some(2), Some("3")));
    }
}
