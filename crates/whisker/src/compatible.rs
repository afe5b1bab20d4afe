//! The paths of Calico's whisker-backend, with the same requests and answers.

use crate::app::App;
use crate::events;
use crate::params::Parameters;
use crate::respond::{answer, error, json, source_failed};
use crate::wire::{self, FlowJson, Hint, List};
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use flows::query::HintType;
use futures::{Stream, StreamExt as _};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::sync::Arc;

/// `/flows`, with `watch=true` as a stream.
pub(crate) async fn flows(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    match answer_flows(&app, &headers, query.as_deref()).await {
        Ok(response) | Err(response) => response,
    }
}

async fn answer_flows(app: &App, headers: &HeaderMap, query: Option<&str>) -> Result<Response, Response> {
    let parameters = Parameters::read(query)?;
    if parameters.watch()? {
        let query = parameters.stream(last_event(headers))?;
        let place = stream_place(app).ok_or_else(no_place)?;
        let batches = app.source.buckets(query).await.map_err(|failure| source_failed(&failure))?;
        return Ok(stream(events::compatible(batches), place));
    }
    let found = app.source.list(parameters.list()?).await.map_err(|failure| source_failed(&failure))?;
    let items: Vec<FlowJson<'_>> = found.items.iter().map(FlowJson::from).collect();
    Ok(json(headers, &List::flows(found.total_pages, items)))
}

/// `/flows-filter-hints`.
pub(crate) async fn hints(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    match answer_hints(&app, &headers, query.as_deref()).await {
        Ok(response) | Err(response) => response,
    }
}

async fn answer_hints(app: &App, headers: &HeaderMap, query: Option<&str>) -> Result<Response, Response> {
    let query = Parameters::read(query)?.hints()?;
    let of = query.of;
    let found = app.source.hints(query).await.map_err(|failure| source_failed(&failure))?;
    let shown = |value: String| match of {
        HintType::SourceNamespace | HintType::DestNamespace => wire::namespace(&value).to_owned(),
        HintType::SourceName | HintType::DestName => wire::name(&value).to_owned(),
        _ => value,
    };
    let items = found.items.into_iter().map(|value| Hint { value: shown(value) }).collect();
    Ok(json(headers, &List::hints(found.total_pages, items)))
}

/// `/config/config.json`.
pub(crate) async fn config(State(app): State<Arc<App>>) -> Response {
    answer(StatusCode::OK, "application/json", app.config.clone())
}

/// The id of the last event that a browser received before its connection broke.
pub(crate) fn last_event(headers: &HeaderMap) -> Option<&str> {
    headers.get("last-event-id").and_then(|value| value.to_str().ok())
}

/// A permit for one more stream, if available.
pub(crate) fn stream_place(app: &App) -> Option<tokio::sync::OwnedSemaphorePermit> {
    Arc::clone(&app.streams).try_acquire_owned().ok()
}

/// The answer when no permit is available.
pub(crate) fn no_place() -> Response {
    error(StatusCode::SERVICE_UNAVAILABLE, "too many streams are open: close a page and try again")
}

/// An answer that continues until the stream ends; then its permit is released.
pub(crate) fn stream<E: std::error::Error + Send + Sync + 'static>(
    events: impl Stream<Item = Result<bytes::Bytes, E>> + Send + 'static,
    place: tokio::sync::OwnedSemaphorePermit,
) -> Response {
    let events = events.map(move |bytes| {
        let _held = &place;
        bytes
    });
    let mut response = Response::new(Body::from_stream(events));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies must not buffer what is meant to be seen at once.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
