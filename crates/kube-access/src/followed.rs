//! A collection of the Kubernetes API, for the state machine of crate `follow`. Objects are reduced as they arrive,
//! page by page and event by event: whole ones are never kept.

use crate::cluster::{Cluster, ClusterError, ClusterEvent, Collection};
use follow::Source;
use follow::cache::{Failure, FailureClass};
use follow::source::{Change, Items, Part};
use futures::stream::{self, StreamExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;

/// An object, or the part of one that is kept, with the revision at which it was seen.
pub trait Revised: Send + 'static {
    /// The revision at which it was seen.
    fn revision(&self) -> &str;
}

impl Revised for Value {
    fn revision(&self) -> &str {
        self.pointer("/metadata/resourceVersion").and_then(Self::as_str).unwrap_or_default()
    }
}

/// A collection whose objects are decoded as `W` and reduced to `T`.
pub struct Followed<W, T> {
    cluster: Cluster,
    collection: Collection,
    take: Arc<dyn Fn(W) -> T + Send + Sync>,
}

/// A page of a list.
#[derive(Debug)]
pub struct FollowedPage<T> {
    /// The reduced objects.
    pub objects: Vec<T>,
    revision: String,
}

impl<W, T> Followed<W, T> {
    /// Follows this collection; `take` reduces its objects.
    pub fn new(
        cluster: Cluster,
        collection: Collection,
        take: impl Fn(W) -> T + Send + Sync + 'static,
    ) -> Self {
        Self { cluster, collection, take: Arc::new(take) }
    }
}

impl<T> Part for FollowedPage<T> {
    fn entries(&self) -> usize {
        self.objects.len()
    }

    fn revision(&self) -> &str {
        &self.revision
    }
}

impl<T: Revised> Change for ClusterEvent<T> {
    fn revision(&self) -> Option<&str> {
        match self {
            Self::Present(object) | Self::Gone(object) => Some(object.revision()),
            Self::Bookmark(revision) => Some(revision),
        }
    }
}

impl<W, T> fmt::Display for Followed<W, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.collection.plural)
    }
}

impl<W: DeserializeOwned + Clone + Send + 'static, T: Revised> Source for Followed<W, T> {
    type Part = FollowedPage<T>;
    type Change = ClusterEvent<T>;

    /// Always the newest list: pages of an old one could miss what a subscriber has already seen.
    async fn list(&self, _revision: &str) -> Result<Items<FollowedPage<T>>, Failure> {
        let (collection, take) = (self.collection, Arc::clone(&self.take));
        let pages = stream::try_unfold(Some((self.cluster.clone(), None::<String>)), move |state| {
            let take = Arc::clone(&take);
            async move {
                let Some((cluster, token)) = state else { return Ok(None) };
                let page = cluster.page::<W>(collection, token.as_deref()).await;
                let page = page.map_err(|error| failure(&error))?;
                let revision = page.revision().to_owned();
                let next = page.next().map(|token| (cluster, Some(token.to_owned())));
                let objects = page.items.into_iter().map(|wire| take(wire)).collect();
                Ok(Some((FollowedPage { objects, revision }, next)))
            }
        });
        Ok(pages.boxed())
    }

    async fn watch(&self, revision: &str) -> Result<Items<ClusterEvent<T>>, Failure> {
        let take = Arc::clone(&self.take);
        let events = self.cluster.watch::<W>(self.collection, revision).await;
        let events = events.map_err(|error| failure(&error))?;
        let take = move |event| match event {
            ClusterEvent::Present(wire) => ClusterEvent::Present(take(wire)),
            ClusterEvent::Gone(wire) => ClusterEvent::Gone(take(wire)),
            ClusterEvent::Bookmark(revision) => ClusterEvent::Bookmark(revision),
        };
        Ok(events.map(move |event| event.map(&take).map_err(|error| failure(&error))).boxed())
    }
}

fn failure(error: &ClusterError) -> Failure {
    let class = match error {
        error if error.is_expired() => FailureClass::Expired,
        error if error.is_not_found() => FailureClass::DoesNotExist,
        error if error.is_forbidden() => FailureClass::Refused,
        ClusterError::Refused { code, .. } if *code != 429 && *code < 500 => FailureClass::Other,
        _ => FailureClass::Unreachable,
    };
    Failure { class, message: error.to_string(), retry_after: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_errors_lead_to_the_right_step() {
        let refused = |code| ClusterError::Refused { what: "list pods".into(), code, message: "no".into() };
        let forbidden = ClusterError::Forbidden { what: "list pods".into(), message: "no".into() };
        for (error, class) in [
            (refused(410), FailureClass::Expired),
            (refused(404), FailureClass::DoesNotExist),
            (refused(400), FailureClass::Other),
            (refused(429), FailureClass::Unreachable),
            (refused(503), FailureClass::Unreachable),
            (ClusterError::Late { what: "list pods".into() }, FailureClass::Unreachable),
            (forbidden, FailureClass::Refused),
        ] {
            assert_eq!(failure(&error).class, class, "{error}");
        }
    }
}
