//! Profiles: one list and one watch over namespaces and service accounts.
//!
//! The profile that allows everything always exists and is never stored. The revision of a list, and of every event of
//! a watch, has two halves: a watch can resume from any of them.

use super::feed::{Conversion, Feed, Start, list_events, with_or_without_bookmarks};
use super::native::not_supported;
use super::path::ApiResource;
use super::transport::{ListQuery, Transport};
use crate::backend::{KvList, Watch, WatchEvent, WatchOptions};
use crate::error::{Error, Result};
use api::kubernetes::{Namespace, ServiceAccount};
use api::{DEFAULT_ALLOW_PROFILE, Kind};
use futures::stream::{self, StreamExt as _};
use model::kubernetes::profile::{
    ProfileOwner, default_allow_profile, join_revisions, namespace_profile, profile_owner,
    service_account_profile, service_account_profile_name, split_revision,
};
use model::{Key, KvPair, ListOptions};

const NAMESPACES: ApiResource = ApiResource::cluster("api/v1", "namespaces");
const SERVICE_ACCOUNTS: ApiResource = ApiResource::namespaced("api/v1", "serviceaccounts");

/// Both halves of the revision that never changes.
const DEFAULT_ALLOW_REVISION: &str = "1";

/// The profiles of one server.
#[derive(Clone, Debug)]
pub(crate) struct Profiles {
    pub(crate) transport: Transport,
}

impl Profiles {
    pub(crate) async fn get(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        let name = key.as_resource().map_or("", |key| key.name.as_str());
        if name == DEFAULT_ALLOW_PROFILE {
            return Ok(default_allow_profile());
        }
        let (namespaces, accounts) = halves(revision)?;
        let failed =
            |failure: super::transport::Failure| failure.into_error(&format!("get {key}"), &key.to_string());
        let conversion = match profile_owner(name) {
            Some(ProfileOwner::Namespace(name)) => {
                let address = NAMESPACES.object("", name).with_optional("resourceVersion", Some(&namespaces));
                convert_namespace(&self.transport.get(&address).await.map_err(failed)?)
            }
            Some(ProfileOwner::ServiceAccount { namespace, name }) => {
                let address = SERVICE_ACCOUNTS
                    .object(namespace, name)
                    .with_optional("resourceVersion", Some(&accounts));
                convert_account(&self.transport.get(&address).await.map_err(failed)?)
            }
            None => {
                let reason = "no namespace or service account has a profile with this name".to_owned();
                return Err(Error::DoesNotExist { key: key.to_string(), reason });
            }
        };
        match conversion {
            Conversion::Entry(pair) => Ok(*pair),
            Conversion::Invalid(entry, _) => Err(Error::Parse { key: key.to_string(), reason: entry.reason }),
            _ => Err(Error::DoesNotExist { key: key.to_string(), reason: String::new() }),
        }
    }

    pub(crate) async fn list(&self, list: &ListOptions, revision: Option<&str>) -> Result<KvList> {
        let scope = Scope::new(list)?;
        let halves = halves(revision)?;
        let mut found = KvList::default();
        if scope.default_allow {
            found.items.push(default_allow_profile());
        }
        if !scope.namespaces && !scope.accounts {
            DEFAULT_ALLOW_REVISION.clone_into(&mut found.revision);
            return Ok(found);
        }
        let mut revisions = [String::new(), String::new()];
        if scope.namespaces {
            let query = ListQuery { revision: Some(&halves.0), ..scope.namespace_query() };
            let part = namespaces(list).list(&self.transport, &query, list).await?;
            revisions[0] = part.revision;
            found.items.extend(part.items);
            found.invalid.extend(part.invalid);
        }
        if scope.accounts {
            let query = ListQuery { revision: Some(&halves.1), ..scope.account_query() };
            let part = accounts(list).list(&self.transport, &query, list).await?;
            revisions[1] = part.revision;
            found.items.extend(part.items);
            found.invalid.extend(part.invalid);
        }
        found.items.sort_by(|a, b| a.key.cmp(&b.key));
        found.revision = join_revisions(&revisions[0], &revisions[1]);
        Ok(found)
    }

    pub(crate) async fn watch(&self, list: &ListOptions, options: &WatchOptions) -> Result<Watch> {
        let scope = Scope::new(list)?;
        let (first, revision) = match Start::of(options) {
            Start::After(revision) => (Vec::new(), revision),
            Start::WithList => {
                let mut found = self.list(list, None).await?;
                let revision = found.revision.clone();
                // It is not news: it is never added, changed or removed.
                found.items.retain(|pair| pair.revision != DEFAULT_ALLOW_REVISION);
                (list_events(found), revision)
            }
        };
        let (namespace_revision, account_revision) =
            if revision == DEFAULT_ALLOW_REVISION { Default::default() } else { halves(Some(&revision))? };
        let mut parts = Vec::new();
        if scope.namespaces {
            let part =
                follow(&namespaces(list), self, &scope.namespace_query(), list, &namespace_revision).await?;
            parts.push(part.map(|event| (Half::Namespaces, event)).boxed());
        }
        if scope.accounts {
            let part = follow(&accounts(list), self, &scope.account_query(), list, &account_revision).await?;
            parts.push(part.map(|event| (Half::Accounts, event)).boxed());
        }
        if parts.is_empty() {
            // The profile that allows everything never changes.
            return Ok(stream::pending().boxed());
        }
        let mut revisions = (namespace_revision, account_revision);
        let events = stream::select_all(parts)
            .map(move |(half, event)| event.map(|event| rejoin(event, half, &mut revisions)));
        // The end of one half ends the whole watch.
        let mut ended = false;
        let events = events.take_while(move |event| {
            let go_on = !ended;
            ended |= event.is_err();
            std::future::ready(go_on)
        });
        Ok(with_or_without_bookmarks(stream::iter(first).chain(events).boxed(), options.bookmarks))
    }
}

/// The kind of object that an event concerns.
#[derive(Clone, Copy)]
enum Half {
    Namespaces,
    Accounts,
}

/// Watches one half, from its revision on or, without one, starting with the existing objects.
async fn follow<T: serde::de::DeserializeOwned + Send + 'static>(
    feed: &Feed<T>,
    profiles: &Profiles,
    query: &ListQuery<'_>,
    list: &ListOptions,
    revision: &str,
) -> Result<Watch> {
    let options =
        WatchOptions { revision: Some(revision.to_owned()), bookmarks: true, ..WatchOptions::default() };
    feed.watch(&profiles.transport, query, list, &options).await
}

/// Gives an event the revision of the whole watch.
fn rejoin(mut event: WatchEvent, half: Half, revisions: &mut (String, String)) -> WatchEvent {
    let mut advance = |revision: &str| {
        // Entries have the revision of their own half, bookmarks a plain one.
        let (namespaces, accounts) = split_revision(revision).unwrap_or((revision, revision));
        match half {
            Half::Namespaces => namespaces.clone_into(&mut revisions.0),
            Half::Accounts => accounts.clone_into(&mut revisions.1),
        }
        join_revisions(&revisions.0, &revisions.1)
    };
    match &mut event {
        WatchEvent::Added(pair) | WatchEvent::Deleted(pair) | WatchEvent::Modified { new: pair, .. } => {
            let joined = advance(&pair.revision);
            pair.set_revision(&joined);
        }
        WatchEvent::Bookmark(revision) => *revision = advance(revision),
        WatchEvent::Invalid(_) => {}
    }
    event
}

/// The objects that a list of profiles selects.
struct Scope {
    default_allow: bool,
    namespaces: bool,
    accounts: bool,
    namespace: String,
    account: String,
}

impl Scope {
    fn new(list: &ListOptions) -> Result<Self> {
        let ListOptions::Resource { kind: Kind::Profile, name, name_is_prefix, .. } = list else {
            return Err(not_supported("List", list, ""));
        };
        let mut scope = Self {
            default_allow: list.matches(&Key::resource(Kind::Profile, "", DEFAULT_ALLOW_PROFILE)),
            namespaces: true,
            accounts: true,
            namespace: String::new(),
            account: String::new(),
        };
        let Some(name) = name.as_deref().filter(|_| !name_is_prefix) else {
            return Ok(scope);
        };
        (scope.namespaces, scope.accounts) = (false, false);
        match profile_owner(name) {
            Some(ProfileOwner::Namespace(namespace)) => {
                scope.namespaces = true;
                namespace.clone_into(&mut scope.namespace);
            }
            Some(ProfileOwner::ServiceAccount { namespace, name }) => {
                scope.accounts = true;
                namespace.clone_into(&mut scope.namespace);
                name.clone_into(&mut scope.account);
            }
            None => {}
        }
        Ok(scope)
    }

    fn namespace_query(&self) -> ListQuery<'_> {
        ListQuery {
            name: Some(self.namespace.as_str()).filter(|name| !name.is_empty()),
            ..ListQuery::default()
        }
    }

    fn account_query(&self) -> ListQuery<'_> {
        let name = Some(self.account.as_str()).filter(|name| !name.is_empty());
        ListQuery { namespace: &self.namespace, name, ..ListQuery::default() }
    }
}

fn halves(revision: Option<&str>) -> Result<(String, String)> {
    let revision = revision.unwrap_or_default();
    let (namespaces, accounts) = split_revision(revision).ok_or_else(|| {
        let mut errors = api::FieldErrors::new();
        errors.add(
            api::FieldPath::new("ResourceVersion"),
            revision,
            "must be of the form 'namespaces/serviceaccounts'",
        );
        Error::Validation(errors)
    })?;
    Ok((namespaces.to_owned(), accounts.to_owned()))
}

fn namespaces(list: &ListOptions) -> Feed<Namespace> {
    Feed::new(NAMESPACES, None, list, |namespace| convert_namespace(&namespace))
}

fn accounts(list: &ListOptions) -> Feed<ServiceAccount> {
    Feed::new(SERVICE_ACCOUNTS, None, list, |account| convert_account(&account))
}

fn convert_namespace(namespace: &Namespace) -> Conversion {
    let name = format!("{}{}", api::words::NAMESPACE_PROFILE_PREFIX, namespace.metadata.name);
    Conversion::new(Kind::Profile, "", &name, namespace_profile(namespace))
}

fn convert_account(account: &ServiceAccount) -> Conversion {
    let name = service_account_profile_name(&account.metadata.namespace, &account.metadata.name);
    Conversion::new(Kind::Profile, "", &name, service_account_profile(account))
}
