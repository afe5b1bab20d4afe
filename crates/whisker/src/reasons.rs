//! Our own API about policies, `/api/v1`: the text of a rule, why one workload may connect to another, the matrix of
//! all workloads, what a policy would change, and which policies recorded flows suggest.
//!
//! None of them changes anything. The one that accepts a policy takes it in the body, because URLs are kept in
//! histories and logs; it refuses bodies that a stranger's page could send.

use crate::app::App;
use crate::own::{Query, choice, list, merged};
use crate::params::Parameters;
use crate::respond::{error, json};
use crate::views::{cell_names, matrix};
use api::{Kind, Resource};
use axum::Router;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use explain::{Cluster, MatrixOptions, Protocol, World};
use flows_cli::{impact, recommend};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::{Arc, OnceLock};

/// The maximum size of a body: longer than any policy.
const LARGEST: usize = 256 << 10;
/// The maximum number of flows per evaluation. Each is evaluated by `explain`, which is thorough rather than fast.
const MOST_FLOWS: usize = 5000;
/// The maximum number of workloads in a matrix.
const MOST_WORKLOADS: usize = 60;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/policy", get(policy))
        .route("/explain", get(answer_explain))
        .route("/matrix", get(answer_matrix))
        .route("/recommend", get(answer_recommend))
        .route("/impact", post(answer_impact).layer(DefaultBodyLimit::max(LARGEST)))
}

/// The cluster's policies, or the answer that says why they are not available.
async fn cluster(app: &App) -> Result<Arc<Cluster>, Response> {
    let cluster = app.policies.cluster().await;
    cluster.map_err(|reason| error(StatusCode::SERVICE_UNAVAILABLE, &reason))
}

/// Evaluates off the threads that serve requests; a few evaluations run at once.
async fn evaluated<T: Send + 'static>(
    app: &App,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Response> {
    let busy = || error(StatusCode::SERVICE_UNAVAILABLE, "busy with other evaluations: try again");
    let place = Arc::clone(&app.policies.evaluations).acquire_owned().await.map_err(|_| busy())?;
    let done = tokio::task::spawn_blocking(move || {
        let _held = place;
        work()
    });
    done.await.map_err(|_| error(StatusCode::INTERNAL_SERVER_ERROR, "the evaluation failed"))
}

/// The requested flows in the form of `flows-cli`, and how many were left out.
async fn recorded(app: &App, parameters: &Parameters) -> Result<(Vec<flows_cli::Flow>, usize), Response> {
    let mut found = list(app, parameters).await?;
    let left_out = found.len().saturating_sub(MOST_FLOWS);
    found.truncate(MOST_FLOWS);
    let flow = |flow: crate::source::Flow| flows_cli::Flow {
        key: (*flow.key).clone(),
        start: flow.start,
        end: flow.end,
        source_labels: flow.source_labels,
        dest_labels: flow.dest_labels,
        counters: flow.counters,
    };
    Ok((found.into_iter().map(flow).collect(), left_out))
}

/// Returns a policy as it was written.
async fn policy(State(app): State<Arc<App>>, headers: HeaderMap, RawQuery(query): Query) -> Response {
    let answer = async {
        let parameters = Parameters::read(query.as_deref())?;
        let part = |name: &str| parameters.first(name).unwrap_or_default().to_owned();
        let (kind, namespace, name) = (part("kind"), part("namespace"), part("name"));
        let cluster = cluster(&app).await?;
        let in_tier = format!("{}.{name}", part("tier"));
        let found = stored_policy(&cluster, &kind, &namespace, &name)
            .or_else(|| stored_policy(&cluster, &kind, &namespace, &in_tier));
        let Some(found) = found else {
            return Err(error(StatusCode::NOT_FOUND, "this policy is no longer in the datastore"));
        };
        Ok(json(&headers, found))
    };
    merged(answer.await)
}

/// Flows use the users' names for kinds of policies; converted policies have a prefix in the datastore.
fn stored_policy<'a>(cluster: &'a Cluster, kind: &str, namespace: &str, name: &str) -> Option<&'a Resource> {
    let (kind, prefixes): (Kind, &[&str]) = match kind {
        "CalicoNetworkPolicy" => (Kind::NetworkPolicy, &["", "default."]),
        "GlobalNetworkPolicy" => (Kind::GlobalNetworkPolicy, &["", "default."]),
        "StagedNetworkPolicy" => (Kind::StagedNetworkPolicy, &["", "default."]),
        "StagedGlobalNetworkPolicy" => (Kind::StagedGlobalNetworkPolicy, &["", "default."]),
        "StagedKubernetesNetworkPolicy" => (Kind::StagedKubernetesNetworkPolicy, &["", "knp.default."]),
        "NetworkPolicy" => (Kind::KubernetesNetworkPolicy, &["", "knp.default."]),
        "ClusterNetworkPolicy" => {
            (Kind::KubernetesClusterNetworkPolicy, &["", "kcnp.admin.", "kcnp.baseline."])
        }
        "Profile" => (Kind::Profile, &[""]),
        _ => return None,
    };
    prefixes.iter().find_map(|prefix| cluster.get(kind, namespace, &format!("{prefix}{name}")))
}

/// Explains why one workload may or may not connect to another.
async fn answer_explain(State(app): State<Arc<App>>, headers: HeaderMap, RawQuery(query): Query) -> Response {
    let answer = async {
        let parameters = Parameters::read(query.as_deref())?;
        let part = |name: &str| parameters.first(name).unwrap_or_default().to_owned();
        let port: u16 = parameters.number("port", 0)?;
        let cluster = cluster(&app).await?;
        let question = explain::Query {
            from: one_of(&cluster, &part("from")),
            to: one_of(&cluster, &part("to")),
            protocol: Protocol::from_text(&part("protocol")),
            port: (port > 0).then_some(port),
            ..explain::Query::default()
        };
        let explanation = evaluated(&app, move || World::new(&cluster).explain(&question)).await?;
        match explanation {
            Ok(explanation) => Ok(json(&headers, &explanation)),
            Err(problem) => Err(error(StatusCode::BAD_REQUEST, &problem.to_string())),
        }
    };
    merged(answer.await)
}

/// The first workload that a flow's name matches: `shop/web-*` is any of its pods.
fn one_of(cluster: &Cluster, text: &str) -> String {
    let Some(start) = text.strip_suffix('*') else { return text.to_owned() };
    let names = cluster.resources().filter_map(cell_names);
    names.into_iter().find(|name| name.starts_with(start)).unwrap_or_else(|| text.to_owned())
}

/// The matrix of all workloads: what policies decide, and what was seen.
async fn answer_matrix(State(app): State<Arc<App>>, headers: HeaderMap, RawQuery(query): Query) -> Response {
    let answer = async {
        let parameters = Parameters::read(query.as_deref())?;
        let protocols =
            [("tcp", Some(Protocol(6))), ("udp", Some(Protocol(17))), ("sctp", Some(Protocol(132)))];
        let protocol = choice(&parameters, "protocol", &protocols)?;
        let port: u16 = parameters.number("port", 0)?;
        let options = MatrixOptions {
            namespace: parameters.first("namespace").filter(|name| !name.is_empty()).map(str::to_owned),
            more_senders: Vec::new(),
            protocol,
            port: (port > 0).then_some(port),
        };
        let cluster = cluster(&app).await?;
        let flows = list(&app, &parameters).await?;
        let made = evaluated(&app, move || matrix(&cluster, &options, &flows, MOST_WORKLOADS)).await?;
        match made {
            Ok(made) => Ok(json(&headers, &made)),
            Err(problem) => Err(error(StatusCode::BAD_REQUEST, &problem.to_string())),
        }
    };
    merged(answer.await)
}

/// The recommended policies, for the page.
#[derive(Serialize)]
struct Recommended {
    yaml: String,
    policies: usize,
    notes: Vec<String>,
    allowed: usize,
    denied: usize,
    differences: usize,
    flows: usize,
    left_out: usize,
}

async fn answer_recommend(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    RawQuery(query): Query,
) -> Response {
    let answer = async {
        let parameters = Parameters::read(query.as_deref())?;
        let options = recommend::Options {
            namespaces: parameters.every("namespace").map(str::to_owned).collect(),
            tier: parameters.first("tier").unwrap_or("default").to_owned(),
            order: parameters.number("order", 1000)?,
        };
        let (flows, left_out) = recorded(&app, &parameters).await?;
        let made = evaluated(&app, move || {
            let made = recommend::recommend(&flows, &options);
            Recommended {
                yaml: recommend::yaml::to_yaml(&made, &flows, &options),
                policies: made.policies.len(),
                notes: made.notes,
                allowed: made.allowed,
                denied: made.denied,
                differences: made.differences.len(),
                flows: flows.len(),
                left_out,
            }
        });
        Ok(json(&headers, &made.await?))
    };
    merged(answer.await)
}

/// The effect of a policy, for the page.
#[derive(Serialize)]
struct Effect {
    #[serde(flatten)]
    impact: impact::Impact,
    flows: usize,
    left_out: usize,
}

/// Returns which recorded flows would be decided differently with the policies in the body.
async fn answer_impact(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    RawQuery(query): Query,
    body: Bytes,
) -> Response {
    let answer = async {
        // A stranger's page can send plain text and forms without a preflight request.
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !["application/yaml", "application/json"].iter().any(|known| kind.starts_with(known)) {
            return Err(error(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the policy as application/yaml"));
        }
        let documents = documents(&body).map_err(|problem| error(StatusCode::BAD_REQUEST, &problem))?;
        let parameters = Parameters::read(query.as_deref())?;
        let before = cluster(&app).await?;
        let mut after = (*before).clone();
        for document in documents {
            let wrong =
                |problem: explain::ManifestError| error(StatusCode::BAD_REQUEST, &problem.to_string());
            after.add_manifest(document).map_err(wrong)?;
        }
        after.complete();
        let (flows, left_out) = recorded(&app, &parameters).await?;
        let count = flows.len();
        let impact = evaluated(&app, move || impact::impact(&flows, &before, &after)).await?;
        Ok(json(&headers, &Effect { impact, flows: count, left_out }))
    };
    merged(answer.await)
}

/// Parses documents: Calico's as strictly as `calicoctl apply`, Kubernetes' like `explain`.
pub(crate) fn documents(text: &[u8]) -> Result<Vec<Value>, String> {
    static ANYTHING: OnceLock<Map<String, Value>> = OnceLock::new();
    let anything = ANYTHING.get_or_init(|| {
        Map::from_iter([("x-kubernetes-preserve-unknown-fields".to_owned(), Value::Bool(true))])
    });
    let name = "the policy";
    let documents = api::document::read_as(name, text, anything).map_err(|mistakes| mistakes.to_string())?;
    if documents.is_empty() {
        return Err("this text contains no policy".to_owned());
    }
    // A bare list of objects is as good as several documents.
    let is_listed = documents.iter().any(Value::is_array);
    let flat = |document: Value| match document {
        Value::Array(items) => items,
        other => vec![other],
    };
    let documents: Vec<Value> = documents.into_iter().flat_map(flat).collect();
    let is_own = |document: &Value| document["apiVersion"] == api::kind::API_VERSION;
    for document in &documents {
        if !document["kind"].is_string() || !document["apiVersion"].is_string() {
            return Err("this is not a policy: kind and apiVersion are required".to_owned());
        }
    }
    if !is_listed && documents.iter().all(is_own) {
        api::document::read(name, text, api::document::Checks::Everything)
            .map_err(|mistakes| mistakes.to_string())?;
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::documents;

    #[test]
    fn policies_and_other_texts() {
        for (text, expected) in [
            (
                "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\nspec: {podSelector: {}}\n",
                Ok(1),
            ),
            (
                "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: a}\n---\napiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: b}\n",
                Ok(2),
            ),
            (
                "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\nspec: {selektor: all()}\n",
                Err("did you mean"),
            ),
            ("kind: NetworkPolicy\n", Err("apiVersion")),
            ("just words", Err("not a policy")),
            ("", Err("no policy")),
            ("a: [", Err("not valid YAML")),
        ] {
            match (documents(text.as_bytes()), expected) {
                (Ok(found), Ok(count)) => assert_eq!(found.len(), count, "{text}"),
                (Err(problem), Err(reason)) => assert!(problem.contains(reason), "{text}: {problem}"),
                (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
            }
        }
    }
}
