//! Requests a certificate, and waits for it.
//!
//! The account may create, watch and delete requests, but not read them otherwise: all that is known of the request
//! comes from its watch. Failures on the way are retried until the time limit, and then reported.

use crate::keys::Key;
use crate::verdict::{Submitted, Verdict, judge};
use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use daemon::Backoff;
use futures::StreamExt as _;
use http::Method;
use kube_access::cluster::{Cluster, ClusterError, ClusterEvent, Collection};
use kube_access::followed::Revised as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const REQUESTS: Collection =
    Collection { prefix: "/apis/certificates.k8s.io/v1", plural: "certificatesigningrequests" };
const JSON: &str = "application/json";

/// A request to be signed.
#[derive(Debug)]
pub(crate) struct Signing {
    pub(crate) cluster: Cluster,
    pub(crate) name: String,
    pub(crate) signer: String,
    pub(crate) app: String,
    /// The request in PEM.
    pub(crate) request: String,
}

/// The result of one attempt.
enum Attempt {
    Signed(Vec<u8>),
    Refused(String),
    /// The request must be created again.
    Lost(&'static str),
}

impl Signing {
    /// The certificate for the key, in PEM.
    pub(crate) async fn certificate(&self, key: &Key, deadline: Instant) -> Result<Vec<u8>> {
        let mut trouble = String::from("it has not been approved");
        let found = tokio::time::timeout_at(deadline, self.ask(key, &mut trouble)).await;
        let late = || {
            format!(
                "there was no certificate in time (TIMEOUT_DURATION) for the request {}: {trouble}",
                self.name
            )
        };
        match found {
            Ok(found) => found,
            Err(_) => bail!(late()),
        }
    }

    async fn ask(&self, key: &Key, trouble: &mut String) -> Result<Vec<u8>> {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
        loop {
            let problem = match self.submit().await {
                Ok(submitted) => match self.wait(&submitted, trouble).await {
                    Attempt::Signed(certificate) => {
                        check(&certificate, key)
                            .with_context(|| format!("the certificate of request {}", self.name))?;
                        return Ok(certificate);
                    }
                    Attempt::Refused(reason) => bail!("{}: {reason}", self.name),
                    Attempt::Lost(reason) => reason.to_owned(),
                },
                Err(error) => error.to_string(),
            };
            tracing::warn!("{problem}; trying again");
            *trouble = problem;
            tokio::time::sleep(backoff.pause()).await;
        }
    }

    /// Creates the request. An existing one is from an earlier start of this pod, whose key is lost.
    async fn submit(&self) -> Result<Submitted, ClusterError> {
        let what = format!("create certificate signing request {}", self.name);
        let created = match self.cluster.create(&what, &REQUESTS.path(), &self.object()).await {
            Err(error) if error.is_conflict() => {
                let what = format!("delete the existing certificate signing request {}", self.name);
                let path = REQUESTS.object("", &self.name);
                let deleted =
                    self.cluster.send::<IgnoredAny>(&what, Method::DELETE, &path, &json!({}), JSON).await;
                deleted.map(drop).or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })?;
                let what = format!("create certificate signing request {} again", self.name);
                self.cluster.create(&what, &REQUESTS.path(), &self.object()).await
            }
            outcome => outcome,
        }?;
        tracing::info!(request = self.name, signer = self.signer, "waiting for a certificate");
        Ok(created)
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": self.name, "labels": {"k8s-app": self.app, "operator.tigera.io/csr": self.app}},
            "spec": {
                "request": BASE64_STANDARD.encode(&self.request),
                "signerName": self.signer,
                "usages": ["server auth", "client auth", "digital signature", "key agreement", "key encipherment"],
            },
        })
    }

    /// Watches the request until it has an outcome.
    async fn wait(&self, submitted: &Submitted, trouble: &mut String) -> Attempt {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(10));
        let mut revision = submitted.revision().to_owned();
        loop {
            let problem = match self.cluster.watch_one::<Submitted>(REQUESTS, &self.name, &revision).await {
                Ok(mut events) => loop {
                    match events.next().await {
                        Some(Ok(ClusterEvent::Present(found)))
                            if found.metadata.uid != submitted.metadata.uid =>
                        {
                            return Attempt::Lost("the request was replaced");
                        }
                        Some(Ok(ClusterEvent::Present(found))) => {
                            found.revision().clone_into(&mut revision);
                            backoff.reset();
                            match judge(&found) {
                                Verdict::Waiting(what) => *trouble = format!("it is waiting for {what}"),
                                Verdict::Refused(reason) => return Attempt::Refused(reason),
                                Verdict::Signed(certificate) => return Attempt::Signed(certificate),
                            }
                        }
                        Some(Ok(ClusterEvent::Gone(_))) => {
                            return Attempt::Lost("the request was deleted");
                        }
                        Some(Ok(ClusterEvent::Bookmark(found))) => revision = found,
                        Some(Err(error)) => break Some(error),
                        // The server ends every watch after a while.
                        None => break None,
                    }
                },
                Err(error) => Some(error),
            };
            if let Some(error) = problem {
                if error.is_expired() {
                    // The new watch starts with the current state.
                    revision.clear();
                } else {
                    tracing::warn!("{error}; trying again");
                    *trouble = error.to_string();
                }
                tokio::time::sleep(backoff.pause()).await;
            }
        }
    }
}

/// Checks that the signed result is a certificate for our key.
fn check(certificate: &[u8], key: &Key) -> Result<()> {
    let first =
        CertificateDer::pem_slice_iter(certificate).next().context("is empty")?.context("is not PEM")?;
    ensure!(key.is_certified_by(&first), "is for another key");
    Ok(())
}
