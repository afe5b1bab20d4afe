//! Converts lists and watches of Kubernetes objects to entries, in the same way for all kinds.
//!
//! An object that cannot be converted is reported, never dropped. A watch without a revision starts with a list, so
//! that every event has a well-defined place after it and a client can resume from any revision it saw.

use super::path::{Address, ApiResource};
use super::status::Refusal;
use super::transport::{Failure, Item, ListQuery, Listed, RawEvent, Transport, Unreadable};
use crate::backend::{InvalidEntry, KvList, ListParts, Watch, WatchEvent, WatchOptions};
use crate::error::{Error, Result};
use api::{Kind, Resource};
use futures::future::ready;
use futures::stream::{self, BoxStream, StreamExt as _};
use model::kubernetes::{ConversionError, Converted};
use model::{Key, KvPair, ListOptions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The result of converting a Kubernetes object.
#[derive(Debug)]
pub(crate) enum Conversion {
    /// An entry.
    Entry(Box<KvPair>),
    /// No entry, and it never was one.
    Nothing,
    /// No longer an entry; it may have been this one.
    Gone(Box<KvPair>),
    /// An object that cannot be converted. The entry, if any, only identifies the object.
    Invalid(InvalidEntry, Option<Box<KvPair>>),
}

impl Conversion {
    /// Creates the outcome of a conversion; its problems are logged here, once each time the object is seen.
    pub(crate) fn new(
        kind: Kind,
        namespace: &str,
        name: &str,
        outcome: std::result::Result<Converted, ConversionError>,
    ) -> Self {
        match outcome {
            Ok(converted) => {
                for problem in &converted.problems {
                    tracing::warn!(key = %converted.pair.key, "{problem}");
                }
                Self::Entry(Box::new(converted.pair))
            }
            Err(error) => Self::Invalid(
                invalid_entry(kind, namespace, name, error.to_string()),
                bare(&Key::resource(kind, namespace, name), "").map(Box::new),
            ),
        }
    }
}

/// An entry that identifies the resource and contains nothing else.
pub(crate) fn bare(key: &Key, revision: &str) -> Option<KvPair> {
    let resource = key.as_resource()?;
    let metadata = serde_json::json!({"metadata": {"name": resource.name, "namespace": resource.namespace}});
    let mut pair = KvPair::resource(Resource::from_value(resource.kind, metadata).ok()?);
    pair.key = key.clone();
    pair.set_revision(revision);
    Some(pair)
}

/// Reports an object that cannot be read, under the key that it would have.
pub(crate) fn invalid_entry(kind: Kind, namespace: &str, name: &str, reason: String) -> InvalidEntry {
    InvalidEntry {
        key: object_path(kind.plural(), namespace, name),
        parsed_key: Some(Key::resource(kind, namespace, name)),
        reason,
        salvaged: None,
    }
}

fn object_path(plural: &str, namespace: &str, name: &str) -> String {
    if namespace.is_empty() { format!("{plural}/{name}") } else { format!("{plural}/{namespace}/{name}") }
}

/// Converts objects of one Kubernetes type to entries.
pub(crate) struct Feed<T> {
    pub(crate) resource: ApiResource,
    pub(crate) convert: Arc<dyn Fn(T) -> Conversion + Send + Sync>,
    /// The filter of the requested entries.
    pub(crate) selects: Arc<dyn Fn(&KvPair) -> bool + Send + Sync>,
    /// The kind of the entries, if each object is one entry of the same name.
    pub(crate) kind: Option<Kind>,
}

impl<T> Clone for Feed<T> {
    fn clone(&self) -> Self {
        Self {
            resource: self.resource,
            convert: Arc::clone(&self.convert),
            selects: Arc::clone(&self.selects),
            kind: self.kind,
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> Feed<T> {
    /// Creates a feed of everything that `list` selects.
    pub(crate) fn new(
        resource: ApiResource,
        kind: Option<Kind>,
        list: &ListOptions,
        convert: impl Fn(T) -> Conversion + Send + Sync + 'static,
    ) -> Self {
        let list = list.clone();
        Self {
            resource,
            convert: Arc::new(convert),
            selects: Arc::new(move |pair| list.matches(&pair.key)),
            kind,
        }
    }

    fn convert(&self, item: Item<T>) -> Conversion {
        match item {
            Ok(object) => (self.convert)(object),
            Err(Unreadable { namespace, name, revision, reason }) => match self.kind {
                Some(kind) => Conversion::Invalid(
                    invalid_entry(kind, &namespace, &name, reason),
                    bare(&Key::resource(kind, &namespace, &name), &revision).map(Box::new),
                ),
                None => {
                    let key = object_path(self.resource.plural, &namespace, &name);
                    Conversion::Invalid(InvalidEntry { key, parsed_key: None, reason, salvaged: None }, None)
                }
            },
        }
    }

    /// Lists everything that exists now. A type that the server does not know has no objects.
    pub(crate) async fn list(
        &self,
        transport: &Transport,
        query: &ListQuery<'_>,
        what: &ListOptions,
    ) -> Result<KvList> {
        let listed = match transport.list(self.resource, query).await {
            Ok(listed) => listed,
            Err(failure) if is_absent(transport, self.resource, &failure).await => {
                return Ok(KvList::default());
            }
            Err(failure) => return Err(self.error("list", failure, &what.to_string())),
        };
        let mut list = self.entries(listed);
        list.items.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(list)
    }

    fn entries(&self, listed: Listed<T>) -> KvList {
        let mut list = KvList { revision: listed.revision, ..KvList::default() };
        for item in listed.items {
            match self.convert(item) {
                Conversion::Entry(pair) if (self.selects)(&pair) => list.items.push(*pair),
                Conversion::Invalid(entry, _) => list.invalid.push(entry),
                Conversion::Entry(_) | Conversion::Nothing | Conversion::Gone(_) => {}
            }
        }
        list
    }

    /// Lists everything that exists now, page by page, in all namespaces. When the revision of the first page expires,
    /// the list fails: a page of another revision could hide a deletion.
    pub(crate) fn list_parts(&self, transport: &Transport, revision: Option<&str>, what: &str) -> ListParts {
        let state = PageReader {
            feed: self.clone(),
            transport: transport.clone(),
            revision: revision.map(str::to_owned),
            what: what.to_owned(),
            token: None,
        };
        stream::unfold(Some(state), |state| async move {
            match state?.next().await {
                Ok((part, next)) => Some((Ok(part), next)),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }

    /// Watches for changes after a revision.
    pub(crate) async fn follow(
        &self,
        transport: &Transport,
        query: &ListQuery<'_>,
        what: &ListOptions,
    ) -> Result<Watch> {
        let raw = transport.watch(self.resource, query).await;
        let raw = raw.map_err(|failure| self.error("watch", failure, &what.to_string()))?;
        let (feed, attempt) = (self.clone(), format!("watch {}", self.resource));
        Ok(raw.filter_map(move |event| ready(feed.event(event, &attempt))).boxed())
    }

    fn event(
        &self,
        event: std::result::Result<RawEvent<T>, Failure>,
        attempt: &str,
    ) -> Option<std::result::Result<WatchEvent, Error>> {
        let selected = |pair: &KvPair| (self.selects)(pair);
        let event = match event {
            Ok(RawEvent::Bookmark(revision)) => WatchEvent::Bookmark(revision),
            Ok(RawEvent::Added(item)) => match self.convert(item) {
                Conversion::Entry(pair) if selected(&pair) => WatchEvent::Added(*pair),
                Conversion::Invalid(entry, _) => WatchEvent::Invalid(entry),
                _ => return None,
            },
            Ok(RawEvent::Modified(item)) => match self.convert(item) {
                Conversion::Entry(pair) if selected(&pair) => WatchEvent::Modified { new: *pair },
                Conversion::Gone(pair) if selected(&pair) => WatchEvent::Deleted(*pair),
                Conversion::Invalid(entry, _) => WatchEvent::Invalid(entry),
                _ => return None,
            },
            Ok(RawEvent::Deleted(item)) => match self.convert(item) {
                Conversion::Entry(pair) | Conversion::Gone(pair) if selected(&pair) => {
                    WatchEvent::Deleted(*pair)
                }
                // Its last value no longer matters: it is gone.
                Conversion::Invalid(_, Some(pair)) if selected(&pair) => WatchEvent::Deleted(*pair),
                Conversion::Invalid(entry, None) => WatchEvent::Invalid(entry),
                _ => return None,
            },
            Err(Failure::Refused(refusal)) => {
                return Some(Err(refusal.into_error(attempt, &self.resource.to_string())));
            }
            Err(Failure::Broken(error)) => {
                return Some(Err(Error::WatchClosed { reason: format!("{attempt}: {error}") }));
            }
        };
        Some(Ok(event))
    }

    /// Lists (unless a revision is given) and watches.
    pub(crate) async fn watch(
        &self,
        transport: &Transport,
        query: &ListQuery<'_>,
        what: &ListOptions,
        options: &WatchOptions,
    ) -> Result<Watch> {
        let start = Start::of(options);
        let (first, revision) = match start {
            Start::After(revision) => (Vec::new(), revision),
            Start::WithList => {
                let list = self.list(transport, &ListQuery { revision: None, ..query.clone() }, what).await?;
                let revision = list.revision.clone();
                (list_events(list), revision)
            }
        };
        let query = ListQuery { revision: Some(&revision), ..query.clone() };
        let rest = self.follow(transport, &query, what).await?;
        Ok(with_or_without_bookmarks(stream::iter(first).chain(rest).boxed(), options.bookmarks))
    }

    fn error(&self, verb: &str, failure: Failure, what: &str) -> Error {
        let unknown = failure.refusal().is_some_and(Refusal::is_unknown_type);
        if unknown {
            let reason =
                format!("the API server does not know {}: its definition is not installed", self.resource);
            return Error::DoesNotExist { key: what.to_owned(), reason };
        }
        failure.into_error(&format!("{verb} {}", self.resource), what)
    }
}

/// Whether a list failed because the server does not have the kind. A user who may not list a kind is refused whether
/// or not it exists, and the roles of older releases do not include newer kinds: a kind that discovery does not show
/// does not exist.
async fn is_absent(transport: &Transport, resource: ApiResource, failure: &Failure) -> bool {
    #[derive(Deserialize)]
    struct Served {
        resources: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let Some(refusal) = failure.refusal() else { return false };
    if refusal.is_unknown_type() {
        return true;
    }
    if refusal.code != 403 {
        return false;
    }
    match transport.get::<Served>(&Address::fixed(&format!("/{}", resource.base))).await {
        Ok(served) => !served.resources.iter().any(|found| found.name == resource.plural),
        // The whole group is unknown. Any other failure does not show whether the kind exists.
        Err(failure) => failure.refusal().is_some_and(Refusal::is_not_found),
    }
}

/// Reads a list page by page.
struct PageReader<T> {
    feed: Feed<T>,
    transport: Transport,
    revision: Option<String>,
    what: String,
    token: Option<String>,
}

impl<T: DeserializeOwned + Send + 'static> PageReader<T> {
    /// The next page, and the reader of the following ones.
    async fn next(mut self) -> Result<(KvList, Option<Self>)> {
        let query = ListQuery { revision: self.revision.as_deref(), ..ListQuery::default() };
        let resource = self.feed.resource;
        let page = match self.transport.list_page(resource, &query, self.token.as_deref()).await {
            Ok(page) => page,
            Err(failure) if self.token.is_none() && is_absent(&self.transport, resource, &failure).await => {
                return Ok((KvList::default(), None));
            }
            Err(failure) => return Err(self.feed.error("list", failure, &self.what)),
        };
        let (listed, token) = page;
        let part = self.feed.entries(listed);
        self.token = token;
        let next = self.token.is_some().then_some(self);
        Ok((part, next))
    }
}

/// Where a watch starts.
pub(crate) enum Start {
    /// With the existing objects.
    WithList,
    /// After this revision.
    After(String),
}

impl Start {
    pub(crate) fn of(options: &WatchOptions) -> Self {
        match options.revision.as_deref() {
            None | Some("" | "0") => Self::WithList,
            Some(revision) => Self::After(revision.to_owned()),
        }
    }
}

/// A list as the beginning of a watch.
pub(crate) fn list_events(list: KvList) -> Vec<std::result::Result<WatchEvent, Error>> {
    let invalid = list.invalid.into_iter().map(WatchEvent::Invalid);
    list.items.into_iter().map(WatchEvent::Added).chain(invalid).map(Ok).collect()
}

/// Bookmarks are always requested; they are dropped for callers that do not want them.
pub(crate) fn with_or_without_bookmarks(
    events: BoxStream<'static, std::result::Result<WatchEvent, Error>>,
    wanted: bool,
) -> Watch {
    if wanted {
        return events;
    }
    events.filter(|event| ready(!matches!(event, Ok(WatchEvent::Bookmark(_))))).boxed()
}
