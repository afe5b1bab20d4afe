//! Answers to get, list and watch.

use crate::access::User;
use crate::app::App;
use crate::entry::{Entry, Filter, number};
use crate::request::{Moment, Options, Target, Verb};
use crate::respond::{Answer, chunked, json_answer, lines};
use crate::status::{Outcome, Refusal};
use crate::store::Listed;
use crate::tables::{Form, columns, metadata_of, row, table};
use crate::tiers::Act;
use crate::watching::{Style, begin};
use api::kind::API_VERSION;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// One object in the requested form.
#[must_use]
pub(crate) fn one(target: &Target, entry: &Entry, form: Form, code: StatusCode) -> Answer {
    match form {
        Form::Whole => crate::respond::answer(code, "application/json", entry.json.clone()),
        Form::Metadata => json_answer(code, &metadata_of(&entry.json)),
        Form::Table(included) => {
            let row = row(target.served, &entry.json, included, jiff::Timestamp::now());
            let metadata = json!({"resourceVersion": entry.revision});
            json_answer(code, &table(&metadata, &columns(target.served), &[row]))
        }
    }
}

/// Reads one object.
///
/// # Errors
/// When the object does not exist, or the user may not see it.
pub(crate) async fn get(app: &App, user: &User, target: &Target, form: Form) -> Outcome<Answer> {
    let resource = app.store.get(target.served, &target.namespace, &target.name).await?;
    let act =
        Act { served: target.served, verb: Verb::Get, namespace: &target.namespace, name: &target.name };
    app.check_object(user, &act, &resource).await?;
    let entry = Entry::new(resource).map_err(Refusal::internal)?;
    let entry = entry.ok_or_else(|| Refusal::not_found(target.served.plural(), &target.name))?;
    Ok(one(target, &entry, form, StatusCode::OK))
}

/// The filter of a request for many objects, limited to what its user may see.
///
/// # Errors
/// When it selects by an unsupported field, or by tiers that the user may not see.
pub(crate) async fn selection(
    app: &App,
    user: &User,
    target: &Target,
    verb: Verb,
    options: &Options,
) -> Outcome<Filter> {
    let unknown = options.fields.requirements().iter().find(|r| !target.served.selects_by(&r.field));
    if let Some(unknown) = unknown {
        return Err(Refusal::bad_request(format!("field label not supported: {}", unknown.field)));
    }
    Ok(Filter {
        namespace: target.namespace.clone(),
        labels: options.labels.clone(),
        fields: options.fields.clone(),
        visible: app.visible_tiers(user, target, verb, options).await?,
    })
}

/// Where the next page of a list starts.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
struct Continuation {
    v: String,
    rv: String,
    start: (String, String),
}

impl Continuation {
    const VERSION: &str = "meta.k8s.io/v1";

    fn read(text: &str) -> Outcome<Self> {
        let read =
            URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        read.filter(|token| token.v == Self::VERSION)
            .ok_or_else(|| Refusal::bad_request("continue key is not valid: it was not made by this server"))
    }

    fn write(&self) -> String {
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }
}

const TOO_OLD: &str = "The provided continue parameter is too old to display a consistent list result. You can start a \
                       new list without the continue parameter.";

/// Reads many objects.
///
/// # Errors
/// When they cannot be read, or the user may see none of them.
pub(crate) async fn list(
    app: &App,
    user: &User,
    target: &Target,
    options: &Options,
    form: Form,
) -> Outcome<Answer> {
    let filter = selection(app, user, target, Verb::List, options).await?;
    let (listed, after) = if options.continuation.is_empty() {
        (app.store.list(target.served, &options.moment).await?, None)
    } else {
        let token = Continuation::read(&options.continuation)?;
        (resumed(app, target, &token.rv).await?, Some(token.start))
    };
    let (selected, rest) = page(&listed, &filter, after.as_ref(), options.limit);
    let mut metadata = json!({"resourceVersion": listed.revision});
    if rest > 0
        && let Some(last) = selected.last()
    {
        let token = Continuation {
            v: Continuation::VERSION.into(),
            rv: listed.revision.clone(),
            start: last.place.clone(),
        };
        metadata["continue"] = token.write().into();
        if filter.is_by_namespace() {
            metadata["remainingItemCount"] = rest.into();
        }
    }
    Ok(many(target, &metadata, selected, form))
}

/// The objects at an earlier revision.
async fn resumed(app: &App, target: &Target, revision: &str) -> Outcome<Listed> {
    let cache = app.store.cache(target.served);
    {
        let state = cache.state();
        if number(revision).is_some_and(|revision| state.is_same_since(revision)) {
            return Ok(Listed { entries: state.entries(), revision: revision.to_owned() });
        }
    }
    // A Kubernetes API does not promise exactly that revision.
    if app.store.client().backend().is_kubernetes() {
        return Err(Refusal::expired(TOO_OLD));
    }
    let listed = app.store.list(target.served, &Moment::Exact(revision.to_owned())).await;
    let mut listed =
        listed.map_err(|refusal| if refusal.code == 410 { Refusal::expired(TOO_OLD) } else { refusal })?;
    revision.clone_into(&mut listed.revision);
    Ok(listed)
}

/// The objects of one page, and how many follow it.
fn page(
    listed: &Listed,
    filter: &Filter,
    after: Option<&(String, String)>,
    limit: usize,
) -> (Vec<Arc<Entry>>, usize) {
    let later = listed.entries.iter().filter(|entry| after.is_none_or(|after| entry.place > *after));
    let mut passing = later.filter(|entry| filter.passes(entry));
    if limit == 0 {
        return (passing.cloned().collect(), 0);
    }
    let selected: Vec<Arc<Entry>> = passing.by_ref().take(limit).cloned().collect();
    (selected, passing.count())
}

/// Many objects in the requested form.
#[must_use]
pub(crate) fn many(target: &Target, metadata: &Value, entries: Vec<Arc<Entry>>, form: Form) -> Answer {
    let head = match form {
        Form::Whole => format!(
            "{{\"kind\":\"{}\",\"apiVersion\":\"{API_VERSION}\",\"metadata\":{metadata},\"items\":[",
            target.served.list_kind()
        ),
        Form::Metadata => format!(
            "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{metadata},\"items\":["
        ),
        Form::Table(_) => format!(
            "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{metadata},\"columnDefinitions\":{},\"rows\":[",
            columns(target.served)
        ),
    };
    let served = target.served;
    let now = jiff::Timestamp::now();
    let items = entries.into_iter().map(move |entry| match form {
        Form::Whole => entry.json.clone(),
        Form::Metadata => Bytes::from(metadata_of(&entry.json).to_string()),
        Form::Table(included) => Bytes::from(row(served, &entry.json, included, now).to_string()),
    });
    chunked(head, items, "]}\n")
}

/// Watches many objects.
///
/// # Errors
/// When the watch cannot begin.
pub(crate) async fn watch(
    app: &App,
    user: &User,
    target: &Target,
    options: &Options,
    form: Form,
) -> Outcome<Answer> {
    let filter = selection(app, user, target, Verb::Watch, options).await?;
    let later = filter.visible.as_ref().map(|visible| app.store.tier_after(visible.revision));
    let style = Style { served: target.served, filter, form };
    let watched = begin(&app.store, style, options, app.shutdown.clone()).await?;
    Ok(lines(match later {
        // The decision applies to the tiers that existed: the watch ends with the next new tier, as Calico's does, and
        // the client resumes under a new decision.
        Some(later) => watched.take_until(later.boxed()).boxed(),
        None => watched,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(names: &[&str]) -> Listed {
        let entry = |name: &&str| {
            Arc::new(Entry {
                place: (String::new(), (*name).to_owned()),
                revision: "1".into(),
                labels: crate::entry::Labels::default(),
                tier: String::new(),
                json: Bytes::new(),
            })
        };
        Listed { entries: Arc::new(names.iter().map(entry).collect()), revision: "5".into() }
    }

    #[test]
    fn pages_follow_each_other() {
        let listed = listed(&["a", "b", "c"]);
        let names =
            |page: &(Vec<Arc<Entry>>, usize)| page.0.iter().map(|e| e.place.1.clone()).collect::<Vec<_>>();
        let first = page(&listed, &Filter::default(), None, 2);
        assert_eq!((names(&first), first.1), (vec!["a".to_owned(), "b".to_owned()], 1));
        let second = page(&listed, &Filter::default(), Some(&first.0[1].place), 2);
        assert_eq!((names(&second), second.1), (vec!["c".to_owned()], 0));
        assert_eq!(page(&listed, &Filter::default(), None, 0).0.len(), 3);
    }

    #[test]
    fn tokens_are_ours() {
        let token =
            Continuation { v: Continuation::VERSION.into(), rv: "7".into(), start: ("n".into(), "a".into()) };
        assert_eq!(Continuation::read(&token.write()).unwrap(), token);
        assert_eq!(Continuation::read("rubbish").unwrap_err().code, 400);
    }
}
