//! Decisions as tables; and candidates with an API that is slow, silent, or returns errors.

use super::*;
use daemon::ShutdownHandle;
use http::{Method, Request, Response};
use kube::client::Body;
use serde_json::Value;
use std::sync::{Arc, Mutex};

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn a_lease_is_taken_after_it_was_unchanged_for_too_long() {
    let begin = Instant::now();
    let spec = held(&LeaseSpec::default(), "other", "t", &Timing::default());
    let observed = Observed { spec, since: begin };
    for (identity, passed, expected) in [
        ("me", 0, Decision::Wait),
        ("me", 15, Decision::Wait),
        ("me", 16, Decision::Take),
        ("other", 100, Decision::Renew),
    ] {
        assert_eq!(decide(&observed, identity, begin + Duration::from_secs(passed)), expected);
    }
    let given_back = Observed { spec: given_back(&observed.spec), since: begin };
    assert_eq!(decide(&given_back, "me", begin), Decision::Take);
}

#[test]
fn transitions_count_changes_of_the_holder() {
    let timing = Timing::default();
    let first = held(&LeaseSpec::default(), "a", "1", &timing);
    assert_eq!((first.lease_transitions, first.acquire_time.as_deref()), (Some(1), Some("1")));
    let renewed = held(&first, "a", "2", &timing);
    assert_eq!((renewed.lease_transitions, renewed.acquire_time.as_deref()), (Some(1), Some("1")));
    assert_eq!(renewed.renew_time.as_deref(), Some("2"));
    let taken = held(&renewed, "b", "3", &timing);
    assert_eq!((taken.lease_transitions, taken.acquire_time.as_deref()), (Some(2), Some("3")));
}

/// How long each attempt takes, and whether it renews the lease; then silence. The holder must give up, and its last
/// work must have ended, before others may begin, however the API behaves.
#[test]
fn a_holder_stops_before_others_may_begin() {
    let timing = Timing::default();
    for (attempts, gives_up) in [
        // No answers from the beginning.
        (&[] as &[(f64, bool)], 10.0),
        // One renewal at 2 s, which was slow.
        (&[(2.84, true)], 12.0),
        // The same, an error after 9.8 s, then silence: all times count from the renewal.
        (&[(2.84, true), (4.96, false)], 12.0),
        // Immediate errors.
        (&[(0.1, false), (0.1, false), (0.1, false), (0.1, false)], 10.0),
        // An attempt that would renew the lease after the deadline is cut off.
        (&[(9.0, true)], 10.0),
    ] {
        let begin = Instant::now();
        let mut tenure = Tenure::new(begin, timing);
        let (mut now, mut last_write) = (begin, begin);
        let mut script = attempts.iter();
        while let Some(next) = tenure.next_attempt(now) {
            assert!(next > now && next <= tenure.deadline());
            let begun = next;
            now = match script.next() {
                Some((takes, renews)) if begun + seconds(*takes) < tenure.deadline() => {
                    let end = begun + seconds(*takes);
                    if *renews {
                        // Other candidates see it some time after the attempt began.
                        last_write = begun;
                        tenure.renewed(begun);
                    }
                    end
                }
                _ => tenure.deadline(),
            };
        }
        let passed = now - begin;
        assert!((passed.as_secs_f64() - gives_up).abs() < 0.001, "{attempts:?}: {passed:?}");
        assert!(now < tenure.end() && tenure.end() < last_write + timing.duration, "{attempts:?}");
    }
}

/// An API with one lease.
#[derive(Debug, Default)]
struct FakeApi {
    revision: u64,
    lease: Option<Value>,
    /// Identities whose requests are never answered.
    silent_for: Vec<String>,
    requests: Vec<String>,
}

type Shared = Arc<Mutex<FakeApi>>;

/// An identity's connection to the API.
fn cluster(api: &Shared, identity: &'static str) -> Cluster {
    let api = Arc::clone(api);
    let answer = move |request: Request<Body>| {
        let api = Arc::clone(&api);
        async move {
            let method = request.method().clone();
            let body = request.into_body().collect_bytes().await.expect("a body");
            let answer = {
                let mut api = api.lock().expect("the API");
                api.requests.push(format!("{identity} {method} {}", String::from_utf8_lossy(&body)));
                if api.silent_for.iter().any(|silent| silent == identity) {
                    None
                } else {
                    Some(api.answer(&method, &body))
                }
            };
            let Some((code, body)) = answer else { return std::future::pending().await };
            let response = Response::builder().status(code).header("Content-Type", "application/json");
            Ok::<_, std::convert::Infallible>(
                response.body(Body::from(body.into_bytes())).expect("an answer"),
            )
        }
    };
    Cluster::of(kube::Client::new(tower::service_fn(answer), "default"))
}

impl FakeApi {
    fn answer(&mut self, method: &Method, body: &[u8]) -> (u16, String) {
        let status = |code: u16| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no",
                "reason": if code == 404 { "NotFound" } else { "Conflict" }});
            (code, status.to_string())
        };
        match (method, &self.lease) {
            (&Method::GET, Some(lease)) => return (200, lease.to_string()),
            (&Method::GET, None) => return status(404),
            (&Method::POST, Some(_)) => return status(409),
            _ => {}
        }
        let mut lease: Value = serde_json::from_slice(body).expect("JSON");
        if *method == Method::PUT {
            let seen = lease["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
            if seen != self.revision.to_string() {
                return status(409);
            }
        }
        self.revision += 1;
        lease["metadata"]["resourceVersion"] = self.revision.to_string().into();
        self.lease = Some(lease.clone());
        (200, lease.to_string())
    }

    fn holder(&self) -> String {
        let lease = self.lease.clone().unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }
}

fn candidate(api: &Shared, identity: &'static str) -> Candidate {
    let settings = LeaderSettings {
        namespace: "default".to_owned(),
        name: "controllers".to_owned(),
        identity: identity.to_owned(),
    };
    let timing = Timing { duration: seconds(6.0), renew_deadline: seconds(3.0), pause: seconds(0.2) };
    Candidate::with_timing(cluster(api, identity), settings, timing)
}

#[tokio::test]
async fn a_holder_without_answers_stops_before_another_begins_and_writes_nothing_afterwards() {
    let api = Shared::default();
    let (_end, shutdown) = ShutdownHandle::new();
    let (mut first, mut second) = (candidate(&api, "a"), candidate(&api, "b"));
    assert!(first.wait(&shutdown).await);
    api.lock().expect("the API").silent_for.push("a".to_owned());
    let order = Mutex::new(Vec::new());
    tokio::join!(
        async {
            first.keep().await;
            order.lock().expect("the order").push("a stops");
        },
        async {
            assert!(second.wait(&shutdown).await);
            order.lock().expect("the order").push("b begins");
        }
    );
    assert_eq!(*order.lock().expect("the order"), ["a stops", "b begins"]);
    // The first gets answers again, and releases the lease it believes to hold: the second keeps it.
    api.lock().expect("the API").silent_for.clear();
    first.release().await;
    let api = api.lock().expect("the API");
    assert_eq!(api.holder(), "b");
    let last = api.requests.last().expect("a request");
    assert!(last.starts_with("a PUT ") && last.contains("\"resourceVersion\":\"1\""), "{last}");
}

#[tokio::test]
async fn a_released_lease_is_free_at_once() {
    let api = Shared::default();
    let (_end, shutdown) = ShutdownHandle::new();
    let (mut first, mut second) = (candidate(&api, "a"), candidate(&api, "b"));
    assert!(first.wait(&shutdown).await);
    first.release().await;
    assert_eq!(api.lock().expect("the API").holder(), "");
    assert!(second.wait(&shutdown).await);
    // Releasing it again has no effect.
    first.release().await;
    assert_eq!(api.lock().expect("the API").holder(), "b");
}
