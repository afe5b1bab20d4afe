//! Streams of server-sent events: ids to resume from, comments as heartbeats, and the source's state for our own page.

use crate::source::{Batch, Batches, Source, SourceError};
use crate::status::status;
use crate::wire::{FlowJson, OwnFlow};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// How often a stream without events sends a heartbeat.
const HEART_BEAT: Duration = Duration::from_secs(15);
/// How often our page gets the state of the source.
const STATUS: Duration = Duration::from_secs(2);
/// How long a browser waits before it reconnects.
const RETRY: Duration = Duration::from_secs(1);
/// The maximum number of flows in an event of ours: the page stays responsive between two events.
const MOST_PER_EVENT: usize = 500;

/// Flows for Calico's page: one event each. An id is the time to resume from.
pub(crate) fn compatible(
    batches: Batches,
) -> impl Stream<Item = Result<Bytes, SourceError>> + Send + 'static {
    let mut beat = interval(HEART_BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    futures::stream::unfold((batches, beat), |(mut batches, mut beat)| async move {
        let bytes = tokio::select! {
            batch = batches.next() => batch?.map(|batch| compatible_events(&batch)),
            _ = beat.tick() => Ok(Bytes::from_static(b": alive\n\n")),
        };
        Some((bytes, (batches, beat)))
    })
}

fn compatible_events(batch: &Batch) -> Bytes {
    let mut text = String::new();
    for (place, flow) in batch.flows.iter().enumerate() {
        // Until the last flow has arrived, its bucket has to be sent again.
        let is_last = place + 1 == batch.flows.len();
        let id = if is_last { batch.place.clone() } else { flow.start.to_string() };
        event(&mut text, None, &id, &json(&FlowJson::from(flow)));
    }
    text.into()
}

/// Flows for our page: `flows` with a list, `status` with the state of the source, `reset` when the page must discard
/// what it has.
pub(crate) fn live(
    batches: Batches,
    source: Arc<dyn Source>,
) -> impl Stream<Item = Result<Bytes, SourceError>> + Send + 'static {
    let mut ticks = interval(STATUS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let retry = format!("retry: {}\n\n", RETRY.as_millis());
    let first = futures::stream::once(async move { Ok(Bytes::from(retry)) });
    let rest =
        futures::stream::unfold((batches, source, ticks), |(mut batches, source, mut ticks)| async move {
            let bytes = tokio::select! {
                batch = batches.next() => batch?.map(|batch| live_events(&batch)),
                _ = ticks.tick() => {
                    let mut text = String::from("event: status\ndata: ");
                    text.push_str(&json(&status(&*source).await));
                    text.push_str("\n\n");
                    Ok(Bytes::from(text))
                }
            };
            Some((bytes, (batches, source, ticks)))
        });
    first.chain(rest)
}

fn live_events(batch: &Batch) -> Bytes {
    let mut text = String::new();
    if batch.is_fresh {
        event(&mut text, Some("reset"), "", "{}");
    }
    let mut chunks = batch.flows.chunks(MOST_PER_EVENT).peekable();
    if chunks.peek().is_none() {
        event(&mut text, Some("flows"), &batch.place, "[]");
    }
    while let Some(chunk) = chunks.next() {
        let flows: Vec<OwnFlow<'_>> = chunk.iter().map(OwnFlow::from).collect();
        // Only the last part completes the batch.
        let id = if chunks.peek().is_none() { batch.place.as_str() } else { "" };
        event(&mut text, Some("flows"), id, &json(&flows));
    }
    text.into()
}

fn event(text: &mut String, name: Option<&str>, id: &str, data: &str) {
    // Writing to a String cannot fail.
    if let Some(name) = name {
        let _ = writeln!(text, "event: {name}");
    }
    if !id.is_empty() {
        let _ = writeln!(text, "id: {id}");
    }
    let _ = write!(text, "data: {data}\n\n");
}

fn json(value: &impl serde::Serialize) -> String {
    // Cannot fail: our own types contain only strings and numbers.
    serde_json::to_string(value).unwrap_or_default()
}
