//! Calls a webhook: sends a review over TLS, reads the answer, and decides what happens when the call fails.

use super::configuration::Hook;
use super::review::{self, Asked, Said};
use crate::status::{Outcome, Refusal};
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The longest answer of a webhook that is accepted.
const LIMIT: usize = 8 << 20;

/// An HTTP client for one webhook.
#[derive(Clone)]
struct Client(kube::Client);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// Calls webhooks over persistent connections.
#[derive(Debug, Default)]
pub(super) struct Caller {
    clients: Mutex<HashMap<(String, Vec<u8>), Client>>,
}

impl Caller {
    /// Closes all connections, because the configurations have changed.
    pub(super) fn forget(&self) {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the answer of a webhook that allows the write; `None` if it is not for this object, or if its failure is
    /// ignored.
    pub(super) async fn ask(
        &self,
        hook: &Hook,
        asked: &Asked<'_>,
        object: Option<&Value>,
    ) -> Outcome<Option<Said>> {
        if !hook.is_for_object(object, asked.old) {
            return Ok(None);
        }
        if asked.is_dry_run && !hook.allows_dry_run {
            let why = format!("admission webhook {:?} does not support dry run", hook.name);
            return Err(Refusal::bad_request(why));
        }
        let uid = uuid::Uuid::new_v4().to_string();
        let review = asked.review(&uid, object);
        let sent = tokio::time::timeout(hook.timeout, self.send(hook, &review)).await;
        let answer = sent.unwrap_or_else(|_| Err(format!("no answer within {} s", hook.timeout.as_secs())));
        match answer.and_then(|answer| review::read(&uid, &answer)) {
            Ok(said) if said.is_allowed => Ok(Some(said)),
            Ok(said) => Err(review::denied(&hook.name, &said.status)),
            Err(reason) => failed(hook, &reason).map(|()| None),
        }
    }

    async fn send(&self, hook: &Hook, review: &Value) -> Result<Vec<u8>, String> {
        if !hook.reads_v1 {
            return Err("it does not support reviews of v1".to_owned());
        }
        let client = self.client(hook)?;
        let request = Request::post(&hook.path)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .body(Body::from(review.to_string().into_bytes()))
            .map_err(|error| error.to_string())?;
        let answer = client.send(request).await.map_err(|error| causes(&error))?;
        let code = answer.status();
        let body = Limited::new(answer.into_body(), LIMIT).collect().await;
        let body = body.map_err(|error| format!("its answer cannot be read: {error}"))?.to_bytes();
        match code.is_success() {
            true => Ok(body.into()),
            false => {
                Err(format!("it answered {code}: {}", String::from_utf8_lossy(&body[..body.len().min(200)])))
            }
        }
    }

    fn client(&self, hook: &Hook) -> Result<kube::Client, String> {
        let key = (hook.server.clone(), hook.authorities.clone());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Client(known)) = clients.get(&key) {
            return Ok(known.clone());
        }
        let server = hook.server.parse().map_err(|error| format!("the address {}: {error}", hook.server))?;
        let mut config = kube::Config::new(server);
        config.proxy_url = None;
        config.disable_compression = true;
        config.default_retry = false;
        if !hook.authorities.is_empty() {
            let authorities = CertificateDer::pem_slice_iter(&hook.authorities)
                .map(|found| found.map(|certificate| certificate.to_vec()))
                .collect::<Result<Vec<_>, _>>();
            config.root_cert = Some(authorities.map_err(|error| format!("its caBundle: {error}"))?);
        }
        let client = kube::Client::try_from(config).map_err(|error| causes(&error))?;
        clients.insert(key, Client(client.clone()));
        Ok(client)
    }
}

/// Decides what happens when a webhook cannot be called.
pub(super) fn failed(hook: &Hook, reason: &str) -> Outcome<()> {
    let text = format!("failed calling webhook {:?}: {reason}", hook.name);
    if hook.ignores_failures {
        tracing::warn!("{text}; ignored according to its failurePolicy");
        return Ok(());
    }
    Err(Refusal::internal(text))
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
