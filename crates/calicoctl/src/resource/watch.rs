//! `get --watch`: the objects, then every change as one more row or document, until the reader or the user ends it.
//!
//! The versions that were shown are remembered. When a watch breaks, everything is listed again and only what changed
//! meanwhile is shown; so a short outage neither loses nor repeats a row. As in kubectl, the row of a deleted object
//! shows its last state.

use super::get::GetArgs;
use super::labels::Labels;
use super::operations::Refusal;
use super::target::Identity;
use crate::context::{Context, Opened};
use crate::failure::{Failure, Result};
use crate::kinds::{Settings, entry_of};
use crate::output::table::{Choice, Growing};
use crate::output::{Answer, Format, json, name_line};
use api::Resource;
use client::{Client, ListQuery, ResourceEvent};
use daemon::Backoff;
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::time::Duration;

/// The pauses before a broken watch is restarted.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Shows one kind, or one object, and its changes.
///
/// # Errors
/// When the objects cannot be read, or the datastore refuses. An outage is not an error: the watch waits for its end.
pub(crate) async fn run(
    args: &GetArgs,
    targets: &[Identity],
    format: &Format,
    labels: &Labels,
    opened: &Opened,
    settings: Settings,
    context: &mut Context,
) -> Result<()> {
    let [target] = targets else {
        return Err(Failure::new("--watch follows all objects of one type, or one object: name one"));
    };
    if args.all_namespaces && target.kind.is_namespaced() && !target.name.is_empty() {
        return Err(Failure::new("cannot use --all-namespace flag for getting a single resource"));
    }
    let with_namespace = args.all_namespaces || args.namespace.is_some();
    let printer = Printer::new(target, format, with_namespace, settings)?;
    let mut follower = Follower { seen: Seen::default(), printer, labels, is_quiet: args.watch_only };
    tokio::select! {
        outcome = follower.run(&opened.client, target, context) => outcome,
        // Ctrl-C is the regular end of a watch.
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// How a change of one object is shown.
#[derive(Debug)]
enum Change {
    Shown(Box<Resource>),
    Unchanged,
}

/// The versions that have been shown, by namespace and name.
#[derive(Debug, Default)]
struct Seen(BTreeMap<(String, String), Resource>);

impl Seen {
    fn key(resource: &Resource) -> (String, String) {
        (resource.namespace().to_owned(), resource.name().to_owned())
    }

    /// Records the current state of an object. The same version is not shown twice.
    fn update(&mut self, resource: Resource) -> Change {
        let known = self.0.get(&Self::key(&resource));
        if known
            .is_some_and(|known| known.metadata().resource_version == resource.metadata().resource_version)
        {
            return Change::Unchanged;
        }
        self.0.insert(Self::key(&resource), resource.clone());
        Change::Shown(Box::new(resource))
    }

    /// Records that an object was deleted. If it was never shown, it is not shown now either.
    fn remove(&mut self, key: &(String, String)) -> Change {
        self.0.remove(key).map_or(Change::Unchanged, |resource| Change::Shown(Box::new(resource)))
    }

    /// The changes of a whole list: first what is new or different, then what is gone.
    fn replace(&mut self, items: Vec<Resource>) -> Vec<Resource> {
        let there: std::collections::BTreeSet<_> = items.iter().map(Self::key).collect();
        let gone: Vec<_> = self.0.keys().filter(|key| !there.contains(*key)).cloned().collect();
        let mut changes: Vec<Change> = items.into_iter().map(|item| self.update(item)).collect();
        changes.extend(gone.iter().map(|key| self.remove(key)));
        let shown = changes.into_iter().filter_map(|change| match change {
            Change::Shown(resource) => Some(*resource),
            Change::Unchanged => None,
        });
        shown.collect()
    }
}

struct Follower<'a> {
    seen: Seen,
    printer: Printer<'a>,
    labels: &'a Labels,
    /// Whether the objects that exist at the start are left out.
    is_quiet: bool,
}

impl Follower<'_> {
    async fn run(&mut self, client: &Client, target: &Identity, context: &mut Context) -> Result<()> {
        let mut query = if target.namespace.is_empty() {
            ListQuery::all()
        } else {
            ListQuery::in_namespace(&target.namespace)
        };
        query.name = Some(target.name.clone()).filter(|name| !name.is_empty());
        let (mut backoff, mut is_first, mut is_told) = (PAUSES, true, false);
        loop {
            match client.list_any(target.kind, &query).await {
                Ok(list) => {
                    backoff.reset();
                    is_told = false;
                    for entry in &list.invalid {
                        context.warn(&format!(
                            "failed to parse datastore entry {}: {}",
                            entry.key, entry.reason
                        ));
                    }
                    if is_first && list.items.is_empty() && !target.name.is_empty() {
                        let key = target.to_string();
                        let error = client::Error::DoesNotExist { key, reason: String::new() };
                        return Err(Failure::new(Refusal::from(error).to_string()));
                    }
                    let items = list.items.into_iter().filter(|item| self.labels.select(item)).collect();
                    let changes = self.seen.replace(items);
                    let quiet = is_first && self.is_quiet;
                    let text = self.printer.several(if quiet { &[] } else { &changes }, is_first)?;
                    is_first = false;
                    if !context.print_now(&text)? {
                        return Ok(());
                    }
                    match self.follow(client, target, &query.clone().at(&list.revision), context).await? {
                        Ended::ReaderGone => return Ok(()),
                        Ended::Broken(reason) => tracing::info!(%reason, "the watch ended: listing again"),
                    }
                }
                // An error at the first attempt is not retried, nor is one that is permanent.
                Err(error) if is_first || !(error.is_transient() || error.is_expired()) => {
                    return Err(error.into());
                }
                Err(error) if !is_told => {
                    is_told = true;
                    context
                        .warn(&format!("the watch was interrupted: {}; trying again", Failure::from(error)));
                }
                Err(_) => {}
            }
            tokio::time::sleep(backoff.pause()).await;
        }
    }

    /// Shows changes until the watch breaks.
    async fn follow(
        &mut self,
        client: &Client,
        target: &Identity,
        query: &ListQuery,
        context: &mut Context,
    ) -> Result<Ended> {
        let mut events = match client.watch_any(target.kind, query).await {
            Ok(events) => events,
            Err(error) => return Ok(Ended::Broken(error.to_string())),
        };
        while let Some(event) = events.next().await {
            let change = match event {
                Err(error) => return Ok(Ended::Broken(error.to_string())),
                Ok(ResourceEvent::Added(new) | ResourceEvent::Modified { new, .. }) => {
                    // An object that no longer matches the labels is shown as deleted.
                    if self.labels.select(&new) {
                        self.seen.update(new)
                    } else {
                        self.seen.remove(&Seen::key(&new))
                    }
                }
                Ok(ResourceEvent::Deleted(old)) => self.seen.remove(&Seen::key(&old)),
                Ok(ResourceEvent::Bookmark(_)) => Change::Unchanged,
                Ok(ResourceEvent::Invalid(entry)) => {
                    context.warn(&format!("failed to parse datastore entry {}: {}", entry.key, entry.reason));
                    Change::Unchanged
                }
            };
            if let Change::Shown(resource) = change {
                let text = self.printer.one(&resource)?;
                if !context.print_now(&text)? {
                    return Ok(Ended::ReaderGone);
                }
            }
        }
        Ok(Ended::Broken("the datastore ended it".to_owned()))
    }
}

/// Why a watch ended.
enum Ended {
    ReaderGone,
    Broken(String),
}

/// Prints objects, one at a time.
struct Printer<'a> {
    format: &'a Format,
    settings: Settings,
    table: Option<Growing<'a>>,
    is_first: bool,
}

impl<'a> Printer<'a> {
    fn new(target: &Identity, format: &'a Format, with_namespace: bool, settings: Settings) -> Result<Self> {
        let kind = target.kind;
        let entry = entry_of(kind).ok_or_else(|| Failure::new(format!("no table for {kind}")))?;
        let table = match format {
            Format::Ps => Some(Growing::new(entry, &Choice::Narrow, with_namespace)?),
            Format::Wide => Some(Growing::new(entry, &Choice::Wide, with_namespace)?),
            Format::Columns(columns) => Some(Growing::new(entry, &Choice::Custom(columns), false)?),
            _ => None,
        };
        Ok(Self { format, settings, table, is_first: true })
    }

    /// Prints several objects; the first time with the titles of the table.
    fn several(&mut self, resources: &[Resource], with_titles: bool) -> Result<String> {
        if let (true, Some(table)) = (with_titles, &mut self.table) {
            return Ok(table.begin(resources, &self.settings));
        }
        resources.iter().map(|resource| self.one(resource)).collect()
    }

    fn one(&mut self, resource: &Resource) -> Result<String> {
        if let Some(table) = &mut self.table {
            return Ok(table.row(resource, &self.settings));
        }
        let separator = if std::mem::take(&mut self.is_first) { "" } else { "---\n" };
        match self.format {
            Format::Json => Ok(format!("{}\n", json::to_string(resource)?)),
            Format::Yaml => {
                Ok(format!("{separator}{}", api::yaml::to_string(&serde_json::to_value(resource)?)))
            }
            Format::Name => Ok(name_line(resource)),
            other => other.render(&[Answer::One(Box::new(resource.clone()))], false, &self.settings),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Kind;

    fn pool(name: &str, version: &str) -> Resource {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}},"spec":{{"cidr":"10.0.0.0/16"}}}}"#
        );
        Resource::from_json(Kind::IPPool, json.as_bytes()).expect("an object")
    }

    fn names(resources: &[Resource]) -> Vec<String> {
        let text =
            |resource: &Resource| format!("{}@{}", resource.name(), resource.metadata().resource_version);
        resources.iter().map(text).collect()
    }

    #[test]
    fn a_list_after_an_outage_shows_only_what_changed() {
        let mut seen = Seen::default();
        assert_eq!(names(&seen.replace(vec![pool("a", "1"), pool("b", "2")])), ["a@1", "b@2"]);
        assert!(matches!(seen.update(pool("a", "1")), Change::Unchanged));
        assert!(matches!(seen.update(pool("a", "3")), Change::Shown(_)));
        // Meanwhile b was deleted and c was added; a is unchanged.
        assert_eq!(names(&seen.replace(vec![pool("a", "3"), pool("c", "5")])), ["c@5", "b@2"]);
        assert!(seen.replace(vec![pool("a", "3"), pool("c", "5")]).is_empty());
        assert!(matches!(seen.remove(&(String::new(), "nosuch".to_owned())), Change::Unchanged));
    }

    #[test]
    fn rows_keep_the_width_of_their_table() {
        let target = Identity { kind: Kind::IPPool, namespace: String::new(), name: String::new() };
        let mut printer = Printer::new(&target, &Format::Ps, false, Settings::default()).expect("a printer");
        assert_eq!(
            printer.several(&[pool("a", "1")], true).expect("text"),
            "NAME   CIDR          SELECTOR   \na      10.0.0.0/16              \n"
        );
        assert_eq!(
            printer.one(&pool("longer-name", "2")).expect("text"),
            "longer-name   10.0.0.0/16              \n"
        );
        assert_eq!(printer.one(&pool("b", "3")).expect("text"), "b             10.0.0.0/16              \n");
    }
}
