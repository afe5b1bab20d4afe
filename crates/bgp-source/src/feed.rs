//! The feeds, and their conversion to events of the state.

use crate::state::{Event, Feed};
use api::Kind;
use datastore::Backend;
use follow::processor::Raw;
use follow::{BgpOptions, FeedEvent, FollowedKind, Follower};
use model::ListOptions;
use std::sync::Arc;
use tokio::sync::mpsc;
use typha_client::environment::Plan;

/// A source of objects; dropping it ends the source.
#[expect(dead_code, reason = "held for their ends alone")]
pub(crate) enum Following {
    Datastore(Follower),
    Typha(typha_client::Follower),
}

/// Follows one feed of the store for the state.
pub(crate) fn start(
    backend: &Arc<dyn Backend>,
    kinds: Vec<FollowedKind>,
    feed: Feed,
    events: mpsc::Sender<Event>,
) -> Following {
    let (follower, receiver) = follow::follow(backend, kinds);
    hand_on(receiver, feed, events);
    Following::Datastore(follower)
}

/// Follows Typha for the state. It sends the claims of all nodes; the state only uses its own.
pub(crate) fn start_typha(plan: Plan, feed: Feed, events: mpsc::Sender<Event>) -> Following {
    let (follower, receiver) = plan.start();
    hand_on(receiver, feed, events);
    Following::Typha(follower)
}

fn hand_on(mut receiver: mpsc::Receiver<FeedEvent>, feed: Feed, events: mpsc::Sender<Event>) {
    tokio::spawn(async move {
        while let Some(event) = receiver.recv().await {
            let event = match event {
                FeedEvent::Entries(entries) => Event::Entries(entries),
                FeedEvent::Status(status) => Event::Status(feed, status),
                FeedEvent::Away(error) => Event::Failed(error),
            };
            // The state is only gone when everything ends.
            if events.send(event).await.is_err() {
                return;
            }
        }
    });
}

/// The kinds requested from the store: everything except services.
pub(crate) fn objects(node: &str, use_pod_cidr: bool) -> Vec<FollowedKind> {
    follow::feeds::bgp(&BgpOptions { node: Some(node.to_owned()), use_pod_cidr, services: false })
}

/// The kinds requested from Kubernetes.
pub(crate) fn services() -> Vec<FollowedKind> {
    [Kind::KubernetesService, Kind::KubernetesEndpointSlice]
        .map(|kind| FollowedKind::new(ListOptions::resources(kind), Raw))
        .into()
}
