//! The server as a value: its store, its access control, its readiness.

use crate::access::User;
use crate::access::authorities::Authorities;
use crate::access::identity::bearer_token;
use crate::access::reviews::{Reviews, Subject, refused};
use crate::entry::{Visible, number, tier};
use crate::hooks::Hooks;
use crate::kinds::Served;
use crate::namespaces::Namespaces;
use crate::request::{Moment, Options, Target, Verb};
use crate::status::{Outcome, Refusal};
use crate::store::Store;
use crate::tiers::{Act, Question, named_tiers, none_allowed};
use api::{Kind, Resource};
use client::Client;
use daemon::Shutdown;
use kube_access::reviews::Permission;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::time::Instant;

/// How long a check of the store is valid for readiness.
const LOOK: Duration = Duration::from_secs(1);
/// How long the store may take to answer that check.
const PATIENCE: Duration = Duration::from_secs(5);

/// The authority that decides about access.
pub enum Access {
    /// Kubernetes decides.
    Delegated {
        /// Reviews of tokens and permissions.
        reviews: Box<Reviews>,
        /// The authorities of certificates.
        authorities: RwLock<Arc<Authorities>>,
        /// Paths that need no permission.
        open_paths: Vec<String>,
    },
    /// No checks: every client may do everything. Only for tests and measurements; no flag leads here.
    Open,
}

/// The server and everything it works with.
pub struct App {
    /// The stored objects.
    pub store: Store,
    /// Access control.
    pub access: Access,
    /// Which namespaces exist.
    pub namespaces: Namespaces,
    /// The cluster's admission webhooks.
    pub hooks: Hooks,
    /// When to shut down.
    pub shutdown: Shutdown,
    /// Whether the datastore has been initialised.
    pub is_initialized: AtomicBool,
    looked: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl App {
    /// Creates a server that has not been started.
    #[must_use]
    pub fn new(client: Client, access: Access, namespaces: Namespaces, shutdown: Shutdown) -> Self {
        Self {
            store: Store::new(client, shutdown.clone()),
            access,
            namespaces,
            hooks: Hooks::new(None),
            shutdown,
            is_initialized: AtomicBool::new(false),
            looked: Mutex::new(None),
        }
    }

    /// Uses these webhooks.
    #[must_use]
    pub fn with_hooks(self, hooks: Hooks) -> Self {
        Self { hooks, ..self }
    }

    /// Authenticates the user of a request.
    ///
    /// # Errors
    /// When a token is invalid, or Kubernetes cannot be reached.
    pub async fn user(&self, chain: &[CertificateDer<'static>], headers: &http::HeaderMap) -> Outcome<User> {
        let Access::Delegated { reviews, authorities, .. } = &self.access else {
            return Ok(User::master("everybody"));
        };
        let authorities = Arc::clone(&authorities.read().unwrap_or_else(PoisonError::into_inner));
        if !chain.is_empty() {
            let named: Vec<(String, String)> = headers
                .iter()
                .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
                .collect();
            if let Some(user) = authorities.user(chain, &named) {
                return Ok(user);
            }
        }
        let authorization = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match authorization.and_then(bearer_token) {
            Some(token) => reviews.user(token).await?.ok_or_else(Refusal::unauthorized),
            None => Ok(User::anonymous()),
        }
    }

    async fn may(&self, user: &User, subject: &Subject) -> Outcome<Permission> {
        match &self.access {
            Access::Delegated { reviews, .. } => reviews.may(user, subject).await,
            Access::Open => Ok(Permission::granted()),
        }
    }

    async fn check(&self, user: &User, subject: &Subject) -> Outcome<()> {
        let Permission { is_allowed, reason } = self.may(user, subject).await?;
        if is_allowed { Ok(()) } else { Err(refused(user, subject, &reason)) }
    }

    /// Checks that the user may use a path that does not name an object.
    ///
    /// # Errors
    /// When the user may not, or Kubernetes cannot be reached.
    pub async fn check_path(&self, user: &User, path: &str, method: &http::Method) -> Outcome<()> {
        if let Access::Delegated { open_paths, .. } = &self.access
            && open_paths.iter().any(|open| match open.strip_suffix('*') {
                Some(prefix) => path.starts_with(prefix),
                None => path.trim_end_matches('/') == open.trim_end_matches('/'),
            })
        {
            return Ok(());
        }
        let subject = Subject::Path(path.to_owned(), method.as_str().to_ascii_lowercase());
        self.check(user, &subject).await
    }

    /// Checks that Kubernetes' ordinary rules let the user do this to objects.
    ///
    /// # Errors
    /// When they do not, or Kubernetes cannot be reached.
    pub async fn check_objects(
        &self,
        user: &User,
        target: &Target,
        verb: Verb,
        options: &Options,
    ) -> Outcome<()> {
        let subject = Subject::Object(Question {
            verb: verb.as_str(),
            namespace: target.namespace.clone(),
            resource: target.served.plural().to_owned(),
            subresource: if target.is_status { "status" } else { "" },
            name: asked_name(target, verb, options).to_owned(),
        });
        self.check(user, &subject).await
    }

    /// Checks that the user may do this to a policy of this tier. A refusal names `policy`.
    ///
    /// # Errors
    /// When the user may not, or Kubernetes cannot be reached.
    pub async fn check_tier(&self, user: &User, act: &Act<'_>, tier: &str, policy: &str) -> Outcome<()> {
        let [first, second, third] = act.questions(tier).all().map(Subject::Object);
        let (first, second, third) =
            tokio::try_join!(self.may(user, &first), self.may(user, &second), self.may(user, &third))?;
        act.decide(&user.name, tier, policy, [first, second, third].map(|permission| permission.is_allowed))
    }

    /// Checks that the user may do this to this object, if it is a policy.
    ///
    /// # Errors
    /// When the user may not, or Kubernetes cannot be reached.
    pub async fn check_object(&self, user: &User, act: &Act<'_>, resource: &Resource) -> Outcome<()> {
        match tier(resource) {
            Some(tier) => self.check_tier(user, act, tier, resource.name()).await,
            None => Ok(()),
        }
    }

    /// The tiers whose policies a list or watch may show; `None` if tiers do not matter, or were named and are allowed.
    ///
    /// # Errors
    /// When there are none, or the user may not see a tier that the request names.
    pub async fn visible_tiers(
        &self,
        user: &User,
        target: &Target,
        verb: Verb,
        options: &Options,
    ) -> Outcome<Option<Arc<Visible>>> {
        if !target.served.kind.is_tiered_policy() {
            return Ok(None);
        }
        let name = asked_name(target, verb, options).to_owned();
        let act = Act { served: target.served, verb, namespace: &target.namespace, name: &name };
        if let Some(tiers) = named_tiers(options)? {
            for tier in tiers {
                self.check_tier(user, &act, &tier, "").await?;
            }
            return Ok(None);
        }
        let Some(tiers) = Served::from_plural(Kind::Tier.plural()) else { return Ok(None) };
        let all = self.store.list(tiers, &Moment::Newest).await?;
        let mut allowed = BTreeSet::new();
        for tier in all.entries.iter().map(|entry| &entry.place.1) {
            match self.check_tier(user, &act, tier, "").await {
                Ok(()) => {
                    allowed.insert(tier.clone());
                }
                Err(refusal) if refusal.code == 403 => {}
                Err(refusal) => return Err(refusal),
            }
        }
        if allowed.is_empty() && !all.entries.is_empty() {
            return Err(none_allowed(target.served));
        }
        let is_all = allowed.len() == all.entries.len();
        let revision = number(&all.revision).unwrap_or_default();
        Ok(Some(Arc::new(Visible { allowed, is_all, revision })))
    }

    /// Checks that requests can be answered now.
    ///
    /// # Errors
    /// What is missing.
    pub async fn ready(&self) -> Result<(), String> {
        if self.shutdown.is_requested() {
            return Err("shutting down".into());
        }
        if !self.is_initialized.load(Ordering::Relaxed) {
            return Err("the datastore has not been initialised yet".into());
        }
        if let Access::Delegated { authorities, .. } = &self.access
            && !authorities.read().unwrap_or_else(PoisonError::into_inner).knows_proxies()
        {
            return Err("the authority of Kubernetes' proxy is not known yet".into());
        }
        if !self.hooks.is_known() {
            return Err("the cluster's admission webhooks are not known yet".into());
        }
        let last = self.looked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((time, outcome)) = last
            && time.elapsed() < LOOK
        {
            return outcome;
        }
        let look = self.store.client().get_any(Kind::ClusterInformation, "", api::words::GLOBAL_NAME, None);
        let outcome = match tokio::time::timeout(PATIENCE, look).await {
            Ok(Err(error)) if !error.is_does_not_exist() => {
                Err(format!("the datastore cannot be read: {error}"))
            }
            Ok(_) => Ok(()),
            Err(_) => Err("the datastore does not answer".into()),
        };
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), outcome.clone()));
        outcome
    }
}

/// The name that permissions are checked for: a list by name counts as a request for that name.
fn asked_name<'a>(target: &'a Target, verb: Verb, options: &'a Options) -> &'a str {
    match verb {
        Verb::List | Verb::Watch if target.name.is_empty() => {
            options.fields.exact("metadata.name").unwrap_or_default()
        }
        _ => &target.name,
    }
}
