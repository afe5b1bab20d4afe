//! Admission by the cluster's webhooks, as in every Kubernetes API server: `MutatingWebhookConfiguration` and
//! `ValidatingWebhookConfiguration` apply to objects of this API, too.
//!
//! - [`configuration`]: parses configurations and selects the webhooks for a write; pure.
//! - [`review`]: requests to webhooks and their answers; pure.
//! - `caller`: calls a webhook, and decides what happens when the call fails.
//! - here: follows the configurations and calls the webhooks that a write concerns.
//!
//! Refuses every write until the configurations have been read once: otherwise unknown webhooks would be skipped.

mod caller;
pub(crate) mod configuration;
pub(crate) mod review;

use crate::namespaces::Namespaces;
use crate::status::{Outcome, Refusal};
use caller::{Caller, failed};
use configuration::{Hook, selects};
use daemon::Shutdown;
use follow::Driver;
use follow::cache::{Cache, CacheOptions, Contents, Event};
use futures::future::try_join_all;
use kube_access::cluster::{Cluster, ClusterEvent, Collection};
use kube_access::followed::{Followed, FollowedPage};
use review::Asked;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How long a write waits for the first reading of the configurations.
const FIRST_LOOK: Duration = Duration::from_secs(10);
const PREFIX: &str = "/apis/admissionregistration.k8s.io/v1";

/// The two kinds of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flavour {
    Mutating,
    Validating,
}

impl Flavour {
    const fn collection(self) -> Collection {
        let plural = match self {
            Self::Mutating => "mutatingwebhookconfigurations",
            Self::Validating => "validatingwebhookconfigurations",
        };
        Collection { prefix: PREFIX, plural }
    }
}

/// The webhooks of one flavour in calling order; `None` until they are known.
type Known = watch::Sender<Option<Arc<Vec<Arc<Hook>>>>>;

/// The webhooks of a cluster.
#[derive(Debug)]
pub struct Hooks {
    cluster: Option<Cluster>,
    mutating: Known,
    validating: Known,
    caller: Caller,
}

impl Hooks {
    /// The webhooks of this cluster; none without a cluster.
    #[must_use]
    pub fn new(cluster: Option<Cluster>) -> Self {
        let first = cluster.is_none().then(Arc::default);
        Self {
            cluster,
            mutating: watch::Sender::new(first.clone()),
            validating: watch::Sender::new(first),
            caller: Caller::default(),
        }
    }

    fn known(&self, flavour: Flavour) -> &Known {
        match flavour {
            Flavour::Mutating => &self.mutating,
            Flavour::Validating => &self.validating,
        }
    }

    /// Whether the configurations have been read.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.mutating.borrow().is_some() && self.validating.borrow().is_some()
    }

    /// Follows the configurations until the shutdown is requested.
    pub async fn follow(&self, shutdown: &Shutdown) {
        tokio::join!(
            self.follow_one(Flavour::Mutating, shutdown),
            self.follow_one(Flavour::Validating, shutdown)
        );
    }

    async fn follow_one(&self, flavour: Flavour, shutdown: &Shutdown) {
        let Some(cluster) = &self.cluster else { return };
        let source = Followed::new(cluster.clone(), flavour.collection(), |object: Value| object);
        let contents =
            Configurations { hooks: self, flavour, objects: BTreeMap::new(), listing: BTreeMap::new() };
        let options = CacheOptions { required: true, ..CacheOptions::default() };
        let mut driver = Driver::new(source, Cache::new(contents, options));
        let work = async {
            loop {
                for event in driver.next().await {
                    if let Event::ListFailed(failure) | Event::WatchRefused(failure) = &event {
                        tracing::warn!("webhooks of the cluster: {}", failure.message);
                    }
                    driver.handle(event);
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = shutdown.requested() => {}
        }
    }

    fn publish(&self, flavour: Flavour, configurations: &BTreeMap<String, Value>) {
        let mut hooks = Vec::new();
        for (name, configuration) in configurations {
            match configuration::read(configuration) {
                Ok(read) => hooks.extend(read.into_iter().map(Arc::new)),
                Err(reason) => tracing::error!(name, reason, "a webhook configuration cannot be read"),
            }
        }
        let changed = self.known(flavour).send_if_modified(|known| {
            let is_new = known.as_deref() != Some(&hooks);
            if is_new {
                *known = Some(Arc::new(hooks));
            }
            is_new
        });
        if changed {
            self.caller.forget();
            for hook in self.known(flavour).borrow().iter().flat_map(|hooks| hooks.iter()) {
                if hook.has_conditions {
                    tracing::warn!(
                        webhook = hook.name,
                        "matchConditions are not evaluated here: it is called in any case"
                    );
                }
            }
        }
    }

    async fn hooks(&self, flavour: Flavour) -> Outcome<Arc<Vec<Arc<Hook>>>> {
        let known = self.known(flavour);
        if let Some(hooks) = &*known.borrow() {
            return Ok(Arc::clone(hooks));
        }
        let mut receiver = known.subscribe();
        let first = tokio::time::timeout(FIRST_LOOK, receiver.wait_for(Option::is_some)).await;
        let hooks = first.ok().and_then(|found| found.ok()?.clone());
        hooks.ok_or_else(|| {
            Refusal::unavailable("not yet ready to handle request: the cluster's webhooks are not known")
        })
    }

    /// Selects the webhooks for this write, regardless of the object.
    async fn chosen(
        &self,
        flavour: Flavour,
        namespaces: &Namespaces,
        asked: &Asked<'_>,
    ) -> Outcome<Vec<Arc<Hook>>> {
        let mut chosen = Vec::new();
        for hook in self.hooks(flavour).await?.iter() {
            if !hook.is_for(asked.operation, asked.target.served, asked.target.is_status) {
                continue;
            }
            if !hook.namespaces.is_empty() && !asked.target.namespace.is_empty() {
                let labels = namespaces.labels(&asked.target.namespace).await?;
                if !selects(&hook.namespaces, &json!({"metadata": {"labels": *labels}})) {
                    continue;
                }
            }
            chosen.push(Arc::clone(hook));
        }
        Ok(chosen)
    }

    /// Returns the object as the mutating webhooks changed it; `None` if they change nothing. Adds to `warnings`.
    ///
    /// # Errors
    /// When a webhook denies the write, or one whose failure is fatal cannot be called.
    pub async fn mutate(
        &self,
        namespaces: &Namespaces,
        asked: &Asked<'_>,
        object: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Outcome<Option<Value>> {
        let hooks = self.chosen(Flavour::Mutating, namespaces, asked).await?;
        let mut changed: Option<Value> = None;
        // The webhooks called so far, and whether the object has changed since.
        let mut turns: Vec<(&Hook, bool)> = Vec::new();
        for hook in &hooks {
            if let Some(new) = self.mutate_by(hook, asked, changed.as_ref().or(object), warnings).await? {
                turns.iter_mut().for_each(|(_, is_old)| *is_old = true);
                changed = Some(new);
            }
            turns.push((hook, false));
        }
        for (hook, _) in turns.into_iter().filter(|(hook, is_old)| *is_old && hook.is_asked_again) {
            if let Some(new) = self.mutate_by(hook, asked, changed.as_ref().or(object), warnings).await? {
                changed = Some(new);
            }
        }
        Ok(changed)
    }

    async fn mutate_by(
        &self,
        hook: &Hook,
        asked: &Asked<'_>,
        object: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Outcome<Option<Value>> {
        let Some(said) = self.caller.ask(hook, asked, object).await? else { return Ok(None) };
        warnings.extend(said.warnings);
        let Some(patch) = said.patch else { return Ok(None) };
        let Some(object) = object else {
            let why = "attempted to modify the object, which is not supported for this operation";
            return Err(Refusal::internal(format!("admission webhook {:?} {why}", hook.name)));
        };
        let mut changed = object.clone();
        let applied = serde_json::from_slice::<json_patch::Patch>(&patch)
            .map_err(|error| error.to_string())
            .and_then(|patch| json_patch::patch(&mut changed, &patch).map_err(|error| error.to_string()));
        match applied {
            Ok(()) if changed == *object => Ok(None),
            Ok(()) => Ok(Some(changed)),
            Err(reason) => failed(hook, &format!("its patch cannot be applied: {reason}")).map(|()| None),
        }
    }

    /// Whether any validating webhook applies to such a write.
    ///
    /// # Errors
    /// When the webhooks are not known.
    pub async fn validates(&self, asked: &Asked<'_>) -> Outcome<bool> {
        let hooks = self.hooks(Flavour::Validating).await?;
        Ok(hooks.iter().any(|hook| hook.is_for(asked.operation, asked.target.served, asked.target.is_status)))
    }

    /// Calls the validating webhooks, all at once.
    ///
    /// # Errors
    /// When a webhook denies the write, or one whose failure is fatal cannot be called.
    pub async fn validate(
        &self,
        namespaces: &Namespaces,
        asked: &Asked<'_>,
        object: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Outcome<()> {
        let hooks = self.chosen(Flavour::Validating, namespaces, asked).await?;
        let answers = try_join_all(hooks.iter().map(|hook| self.caller.ask(hook, asked, object))).await?;
        warnings.extend(answers.into_iter().flatten().flat_map(|said| said.warnings));
        Ok(())
    }
}

/// The configurations of one flavour; publishes every change.
struct Configurations<'a> {
    hooks: &'a Hooks,
    flavour: Flavour,
    /// By name. A list in progress replaces the others when it is complete.
    objects: BTreeMap<String, Value>,
    listing: BTreeMap<String, Value>,
}

impl Contents for Configurations<'_> {
    type Part = FollowedPage<Value>;
    type Change = ClusterEvent<Value>;
    type News = ();

    fn begin(&mut self) {
        self.listing.clear();
    }

    fn part(&mut self, page: FollowedPage<Value>) {
        self.listing.extend(page.objects.into_iter().map(|object| (name(&object), object)));
    }

    fn finish(&mut self) {
        self.objects = std::mem::take(&mut self.listing);
        self.hooks.publish(self.flavour, &self.objects);
    }

    fn change(&mut self, change: ClusterEvent<Value>) {
        match change {
            ClusterEvent::Present(object) => self.objects.insert(name(&object), object),
            ClusterEvent::Gone(object) => self.objects.remove(&name(&object)),
            ClusterEvent::Bookmark(_) => return,
        };
        self.hooks.publish(self.flavour, &self.objects);
    }

    /// Known webhooks stay in force.
    fn clear(&mut self) {}

    fn take_news(&mut self) -> Option<()> {
        None
    }

    fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

fn name(object: &Value) -> String {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}
