//! Asking for a certificate, and waiting for it.
//!
//! The account may create, watch and delete requests, and do nothing else with them: all that is known of the request comes
//! from its watch. What goes wrong on the way is tried again until time is up, and is then named.

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
    /// In PEM.
    pub(crate) request: String,
}

/// How far one attempt came.
enum Attempt {
    Signed(Vec<u8>),
    Refused(String),
    /// It has to be made anew.
    Lost(&'static str),
}

impl Signing {
    /// The certificate for the key, in PEM.
    pub(crate) async fn certificate(&self, key: &Key, deadline: Instant) -> Result<Vec<u8>> {
        let mut trouble = String::from("nobody has approved it");
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

    /// Makes the request. One that is there is of an earlier start of this pod, whose key is lost.
    async fn submit(&self) -> Result<Submitted, ClusterError> {
        let what = format!("create certificate signing request {}", self.name);
        let created = match self.cluster.create(&what, &REQUESTS.path(), &self.object()).await {
            Err(error) if error.is_conflict() => {
                let what =
                    format!("delete certificate signing request {}, which is there already", self.name);
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

    /// Follows the request until something becomes of it.
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
                            return Attempt::Lost("somebody replaced the request");
                        }
                        Some(Ok(ClusterEvent::Present(found))) => {
                            found.revision().clone_into(&mut revision);
                            backoff.reset();
                            match judge(&found) {
                                Verdict::Waiting(what) => *trouble = format!("it waits for {what}"),
                                Verdict::Refused(reason) => return Attempt::Refused(reason),
                                Verdict::Signed(certificate) => return Attempt::Signed(certificate),
                            }
                        }
                        Some(Ok(ClusterEvent::Gone(_))) => {
                            return Attempt::Lost("somebody deleted the request");
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
                    // What it is now comes first.
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

/// Whether what was signed is a certificate, and ours.
fn check(certificate: &[u8], key: &Key) -> Result<()> {
    let first =
        CertificateDer::pem_slice_iter(certificate).next().context("is empty")?.context("is not PEM")?;
    ensure!(key.is_certified_by(&first), "is for another key");
    Ok(())
}
