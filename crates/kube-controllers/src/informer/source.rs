//! A kind of the Kubernetes API as something to follow. Objects are cut down as they arrive, page by page and event by event:
//! whole ones are never kept.

use super::strings::Strings;
use super::{Slim, Taken};
use follow::Source;
use follow::cache::{Failure, FailureClass};
use follow::source::{Change, Items, Part};
use futures::stream::{self, StreamExt as _};
use kube_access::cluster::{Cluster, ClusterError, ClusterEvent};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

/// One kind of a cluster.
pub(super) struct KindSource<T> {
    cluster: Cluster,
    /// Texts that repeat, shared by all objects of the kind.
    strings: Arc<Mutex<Strings>>,
    kind: PhantomData<fn() -> T>,
}

/// A page of a list.
pub struct KindPage<T> {
    pub(super) objects: Vec<Taken<T>>,
    revision: String,
}

/// Something that happened to a kind.
pub enum Taking<T> {
    /// The object is new or changed.
    Present(Taken<T>),
    /// The object is gone.
    Gone(Taken<T>),
    /// Nothing happened up to this revision.
    Bookmark(String),
}

impl<T> Part for KindPage<T> {
    fn entries(&self) -> usize {
        self.objects.len()
    }

    fn revision(&self) -> &str {
        &self.revision
    }
}

impl<T> Change for Taking<T> {
    fn revision(&self) -> Option<&str> {
        match self {
            Self::Present(taken) | Self::Gone(taken) => Some(&taken.revision),
            Self::Bookmark(revision) => Some(revision),
        }
    }
}

impl<T: Slim> KindSource<T> {
    pub(super) fn new(cluster: Cluster, strings: Strings) -> Self {
        Self { cluster, strings: Arc::new(Mutex::new(strings)), kind: PhantomData }
    }
}

impl<T: Slim> fmt::Display for KindSource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::COLLECTION.plural)
    }
}

impl<T: Slim> Source for KindSource<T> {
    type Part = KindPage<T>;
    type Change = Taking<T>;

    /// Always the newest: pages of an old list could miss what a subscriber was told before.
    async fn list(&self, _revision: &str) -> Result<Items<KindPage<T>>, Failure> {
        let state = Some((self.cluster.clone(), Arc::clone(&self.strings), None::<String>));
        let pages = stream::try_unfold(state, |state| async move {
            let Some((cluster, strings, token)) = state else { return Ok(None) };
            let page = cluster
                .page::<T::Wire>(T::COLLECTION, token.as_deref())
                .await
                .map_err(|error| failure(&error))?;
            let revision = page.revision().to_owned();
            let next = page.next().map(|token| Some(token.to_owned()));
            let objects = {
                let mut strings = strings.lock().unwrap_or_else(PoisonError::into_inner);
                page.items.into_iter().map(|wire| T::take(wire, &mut strings)).collect()
            };
            let state = next.map(|token| (cluster, strings, token));
            Ok(Some((KindPage { objects, revision }, state)))
        });
        Ok(pages.boxed())
    }

    async fn watch(&self, revision: &str) -> Result<Items<Taking<T>>, Failure> {
        let strings = Arc::clone(&self.strings);
        let events =
            self.cluster.watch::<T::Wire>(T::COLLECTION, revision).await.map_err(|error| failure(&error))?;
        let take = move |event| {
            let mut strings = strings.lock().unwrap_or_else(PoisonError::into_inner);
            match event {
                ClusterEvent::Present(wire) => Taking::Present(T::take(wire, &mut strings)),
                ClusterEvent::Gone(wire) => Taking::Gone(T::take(wire, &mut strings)),
                ClusterEvent::Bookmark(revision) => Taking::Bookmark(revision),
            }
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
    fn answers_of_the_api_lead_to_the_right_step() {
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
