//! Repeats requests that the API server turned away, in one place for all users of the API.
//!
//! An API server that is busy, or whose storage for a kind is still starting, answers 429 (often with `Retry-After`)
//! and has not carried the request out, whatever it was; so the same request may be repeated after a pause. 503 is less
//! certain: an intermediary may have passed the request on. There only reads are repeated, and writes if the answer
//! itself requests it with `Retry-After`. The total pause of a request is limited; after that the caller gets the last
//! answer, including its `Retry-After`.
//!
//! 401 means that the server does not accept our credentials (any more), and has done nothing. The credentials are then
//! reread and the request is sent once more: see [`renewing`](super::renewing).
//!
//! Evictions are not repeated: a budget that forbids one also answers 429, which the evicting program needs to know.

use super::renewing::{AFTER_FAILURE, AFTER_REFUSAL, Renewal, Renewing};
use daemon::Backoff;
use futures::future::{BoxFuture, FutureExt as _};
use http::{Method, Request, Response, StatusCode, header};
use kube::client::Body;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tower::Service;

/// The limit for all pauses of one request together, unless the request sets a lower one.
const MOST_WAITED: Duration = Duration::from_secs(15);
/// The pauses between attempts.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(4));

/// An extension of a request: the limit for all its pauses together.
#[derive(Clone, Copy, Debug)]
pub struct WaitLimit(pub Duration);

/// Creates a client of this configuration that repeats requests that the server turned away. `renewal` rereads the
/// configuration.
///
/// # Errors
/// When the configuration is invalid.
pub fn client(config: kube::Config, renewal: Renewal) -> Result<kube::Client, kube::Error> {
    let namespace = config.default_namespace.clone();
    let connection = Arc::new(Renewing::new(config, renewal)?);
    Ok(kube::Client::new(Repeating { connection }, namespace))
}

/// The layer around the client.
struct Repeating {
    connection: Arc<Renewing>,
}

impl Service<Request<Body>> for Repeating {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, kube::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        // The inner client waits on its own.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let connection = Arc::clone(&self.connection);
        async move { send(&connection, request).await }.boxed()
    }
}

async fn send(connection: &Renewing, mut request: Request<Body>) -> Result<Response<Body>, kube::Error> {
    let limit = request.extensions().get::<WaitLimit>().map_or(MOST_WAITED, |limit| limit.0.min(MOST_WAITED));
    let mut waited = Duration::ZERO;
    let mut attempt = 0;
    let mut is_renewed = false;
    loop {
        let used = connection.current();
        // A streamed body cannot be sent twice.
        let Some(again) = copy(&request) else { return used.client.send(request).await };
        let response = match used.client.send(request).await {
            Ok(response) => response,
            Err(error) => {
                // The server's certificate may have a new authority. The caller decides when to retry.
                connection.replace(&used, AFTER_FAILURE).await;
                return Err(error);
            }
        };
        if response.status() == StatusCode::UNAUTHORIZED && !is_renewed {
            is_renewed = true;
            if connection.replace(&used, AFTER_REFUSAL).await {
                request = again;
                continue;
            }
        }
        let answer = Answer {
            method: again.method(),
            path: again.uri().path(),
            code: response.status(),
            retry_after: retry_after(&response),
        };
        let chance = || uuid::Uuid::new_v4().as_bytes()[0];
        let Some(pause) = answer.pause(attempt, limit.saturating_sub(waited), chance) else {
            return Ok(response);
        };
        tracing::debug!(method = %answer.method, path = answer.path, code = answer.code.as_u16(), ?pause,
            "the Kubernetes API is busy: sending the request again");
        drop(response);
        tokio::time::sleep(pause).await;
        waited += pause;
        attempt += 1;
        request = again;
    }
}

fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let value = response.headers().get(header::RETRY_AFTER)?;
    // A date is also possible; the API server sends seconds.
    value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// The parts of an answer that determine whether to repeat the request.
struct Answer<'a> {
    method: &'a Method,
    path: &'a str,
    code: StatusCode,
    retry_after: Option<Duration>,
}

impl Answer<'_> {
    fn was_turned_away(&self) -> bool {
        match self.code {
            StatusCode::TOO_MANY_REQUESTS => !self.path.ends_with("/eviction"),
            StatusCode::SERVICE_UNAVAILABLE => *self.method == Method::GET || self.retry_after.is_some(),
            _ => false,
        }
    }

    /// The pause before the request is repeated; `None` if it is not. `left` is the remaining limit, `chance` keeps
    /// many clients from returning at the same moment.
    fn pause(&self, attempt: u32, left: Duration, chance: impl FnOnce() -> u8) -> Option<Duration> {
        if !self.was_turned_away() {
            return None;
        }
        let own = PAUSES.after(attempt.saturating_add(1));
        let pause = own.max(self.retry_after.unwrap_or_default());
        let pause = pause.saturating_add(own / 2 * u32::from(chance()) / 255);
        (pause <= left).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::KubernetesConfig;
    use testkit::ScriptedServer;

    const OK: &str = "200 OK\r\n";
    const BUSY: &str = "429 Too Many Requests\r\n";
    const BUSY_NOW: &str = "429 Too Many Requests\r\nRetry-After: 0\r\n";
    const AWAY: &str = "503 Service Unavailable\r\n";
    const STARTING: &str = "503 Service Unavailable\r\nRetry-After: 0\r\n";

    fn answer<'a>(method: &'a Method, code: u16, retry_after: Option<u64>) -> Answer<'a> {
        let code = StatusCode::from_u16(code).expect("a code");
        Answer { method, path: "/api/v1/pods", code, retry_after: retry_after.map(Duration::from_secs) }
    }

    #[test]
    fn pauses_grow_and_obey_the_server_within_the_limit() {
        let milliseconds = |code, retry_after, attempt, chance| {
            let pause = answer(&Method::POST, code, retry_after).pause(attempt, MOST_WAITED, || chance);
            pause.map(|pause| u64::try_from(pause.as_millis()).expect("a short time"))
        };
        for (code, retry_after, attempt, chance, expected) in [
            (429, None, 0, 0, Some(100)),
            (429, None, 0, 255, Some(150)),
            (429, None, 3, 0, Some(800)),
            (429, None, 70, 0, Some(4000)),
            (429, Some(1), 0, 0, Some(1000)),
            (429, Some(0), 2, 0, Some(400)),
            (429, Some(15), 0, 0, Some(15_000)),
            (429, Some(16), 0, 0, None),
            (429, Some(u64::MAX), 0, 255, None),
            (503, Some(1), 0, 0, Some(1000)),
            (503, None, 0, 0, None),
            (500, Some(1), 0, 0, None),
            (504, Some(1), 0, 0, None),
            (200, None, 0, 0, None),
        ] {
            assert_eq!(milliseconds(code, retry_after, attempt, chance), expected, "{code} {retry_after:?}");
        }
        assert!(answer(&Method::GET, 503, None).pause(0, MOST_WAITED, || 0).is_some(), "reading is harmless");
        assert!(answer(&Method::GET, 429, None).pause(0, Duration::from_millis(99), || 0).is_none());
    }

    async fn sent(method: &Method, path: &str, answers: &[&str]) -> (u16, Vec<String>) {
        let server = ScriptedServer::start(answers).expect("a server");
        let config = KubernetesConfig { api_endpoint: server.url(), ..KubernetesConfig::default() };
        let client = config.client().await.expect("a client");
        let request = Request::builder().method(method).uri(path).body(Body::from(b"{\"a\":1}".to_vec()));
        let response = client.send(request.expect("a request")).await.expect("an answer");
        (response.status().as_u16(), server.requests())
    }

    #[tokio::test]
    async fn a_request_turned_away_twice_is_sent_three_times() {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let (code, requests) = sent(&method, "/api/v1/nodes/a", &[BUSY, BUSY_NOW, OK]).await;
            assert_eq!((code, requests.len()), (200, 3), "{requests:?}");
            assert!(requests.iter().all(|request| *request == requests[0]), "{requests:?}");
            assert_eq!(requests[0], format!("{method} /api/v1/nodes/a {{\"a\":1}}"));
        }
    }

    #[tokio::test]
    async fn a_request_that_may_have_been_carried_out_is_not_repeated() {
        for (method, path, answers, code, count) in [
            (Method::GET, "/api/v1/pods", [AWAY, OK], 200, 2),
            (Method::POST, "/api/v1/pods", [AWAY, OK], 503, 1),
            (Method::POST, "/api/v1/pods", [STARTING, OK], 200, 2),
            (Method::POST, "/api/v1/namespaces/a/pods/b/eviction", [BUSY, OK], 429, 1),
            (Method::PUT, "/api/v1/nodes/a", ["504 Gateway Timeout\r\n", OK], 504, 1),
            (Method::PUT, "/api/v1/nodes/a", ["409 Conflict\r\nRetry-After: 1\r\n", OK], 409, 1),
        ] {
            let (seen, requests) = sent(&method, path, &answers).await;
            assert_eq!((seen, requests.len()), (code, count), "{method} {path} {answers:?}");
        }
    }

    #[tokio::test]
    async fn an_authentication_failure_causes_one_retry_with_reread_credentials() {
        const STRANGER: &str = "401 Unauthorized\r\n";
        for (answers, code, count) in
            [([STRANGER, OK, OK], 200, 2), ([STRANGER, STRANGER, OK], 401, 2), ([STRANGER, BUSY, OK], 200, 3)]
        {
            let (seen, requests) = sent(&Method::POST, "/api/v1/pods", &answers).await;
            assert_eq!((seen, requests.len()), (code, count), "{answers:?}");
        }
    }

    #[tokio::test]
    async fn a_retry_after_beyond_the_limit_is_not_waited_for() {
        let (code, requests) =
            sent(&Method::GET, "/api/v1/pods", &["429 Too Many Requests\r\nRetry-After: 3600\r\n", OK]).await;
        assert_eq!((code, requests.len()), (429, 1));
    }
}
