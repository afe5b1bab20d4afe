//! Our own API for our page, `/api/v1`.

use crate::app::App;
use crate::compatible::{last_event, no_place, stream, stream_place};
use crate::events;
use crate::params::{BadParameter, Parameters};
use crate::reasons;
use crate::respond::{answer, json, own_failed};
use crate::source::{Flow, ListQuery};
use crate::status::status;
use crate::views::{By, GraphQuery, Level, Of, board, graph, top};
use crate::wire::{List, OwnFlow};
use axum::Router;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, StatusCode};
use std::sync::Arc;

/// The number of nodes in a graph: the default and the maximum.
const NODES: (usize, usize) = (300, 2000);
/// The default number of talkers in a list.
const TALKERS: usize = 20;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/flows", get(flows))
        .route("/live", get(live))
        .route("/status", get(answer_status))
        .route("/graph", get(answer_graph))
        .route("/board", get(answer_board))
        .route("/top", get(answer_top))
        .merge(reasons::routes())
}

pub(crate) type Query = RawQuery;

pub(crate) async fn list(app: &App, parameters: &Parameters) -> Result<Vec<Flow>, Response> {
    let query: ListQuery = parameters.list()?;
    Ok(app.source.list(query).await.map_err(|failure| own_failed(&failure))?.items)
}

/// Flows with everything known about them.
async fn flows(State(app): State<Arc<App>>, headers: HeaderMap, RawQuery(query): Query) -> Response {
    let answer = async {
        let flows = list(&app, &Parameters::read(query.as_deref())?).await?;
        let items = flows.iter().map(OwnFlow::from).collect();
        Ok(json(&headers, &List::hints(u64::from(!flows.is_empty()), items)))
    };
    merged(answer.await)
}

/// Flows as soon as they are known, as a stream.
async fn live(State(app): State<Arc<App>>, headers: HeaderMap, RawQuery(query): Query) -> Response {
    let answer = async {
        let query = Parameters::read(query.as_deref())?.stream(last_event(&headers))?;
        let place = stream_place(&app).ok_or_else(no_place)?;
        let batches = app.source.live(query).await.map_err(|failure| own_failed(&failure))?;
        Ok(stream(events::live(batches, Arc::clone(&app.source)), place))
    };
    merged(answer.await)
}

async fn answer_status(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    json(&headers, &status(&*app.source).await)
}

async fn answer_graph(State(app): State<Arc<App>>, headers: HeaderMap, RawQuery(query): Query) -> Response {
    let answer = async {
        let parameters = Parameters::read(query.as_deref())?;
        let wanted = GraphQuery {
            level: choice(
                &parameters,
                "level",
                &[("auto", Level::Auto), ("workload", Level::Workload), ("namespace", Level::Namespace)],
            )?,
            open: parameters.every("open").map(str::to_owned).collect(),
            most: parameters.number("most", NODES.0)?.clamp(1, NODES.1),
        };
        Ok(json(&headers, &graph(&list(&app, &parameters).await?, &wanted)))
    };
    merged(answer.await)
}

async fn answer_board(State(app): State<Arc<App>>, headers: HeaderMap, RawQuery(query): Query) -> Response {
    let answer = async {
        let flows = list(&app, &Parameters::read(query.as_deref())?).await?;
        Ok(json(&headers, &board(&flows)))
    };
    merged(answer.await)
}

async fn answer_top(State(app): State<Arc<App>>, headers: HeaderMap, RawQuery(query): Query) -> Response {
    let answer = async {
        let parameters = Parameters::read(query.as_deref())?;
        let of = [("pair", Of::Pair), ("source", Of::Source), ("dest", Of::Dest), ("port", Of::Port)];
        let by = [
            ("bytes", By::Bytes),
            ("packets", By::Packets),
            ("connections", By::Connections),
            ("denied", By::Denied),
        ];
        let (of, by) = (choice(&parameters, "of", &of)?, choice(&parameters, "by", &by)?);
        let most = parameters.number("n", TALKERS)?;
        Ok(json(&headers, &top(&list(&app, &parameters).await?, of, by, most)))
    };
    merged(answer.await)
}

/// Reports that the process runs.
pub(crate) async fn liveness() -> Response {
    answer(StatusCode::OK, "text/plain; charset=utf-8", "")
}

/// Reports whether flows can be shown.
pub(crate) async fn readiness(State(app): State<Arc<App>>) -> Response {
    match app.source.state().await.problem {
        None => answer(StatusCode::OK, "text/plain; charset=utf-8", ""),
        Some(problem) => answer(StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", problem),
    }
}

pub(crate) fn merged(outcome: Result<Response, Response>) -> Response {
    match outcome {
        Ok(response) | Err(response) => response,
    }
}

/// Parses one of several words; the default if the parameter is missing.
pub(crate) fn choice<T: Copy + Default>(
    parameters: &Parameters,
    name: &str,
    words: &[(&str, T)],
) -> Result<T, BadParameter> {
    let Some(text) = parameters.first(name) else { return Ok(T::default()) };
    let known = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    known.ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        BadParameter(format!("{name}: '{text}' must be one of {}", words.join(", ")))
    })
}
