//! The task that owns the state.

use crate::feed::{self, Following};
use crate::local_peers;
use crate::options::Options;
use crate::secrets::Secrets;
use bgp::intent::Problem;
use bgp::{BgpState, Intent, LocalPeer, NodeMissing, Password};
use client::config::DatastoreType;
use daemon::{Environment, Shutdown, ShutdownHandle, causes};
use datastore::Backend;
use kube_access::KubeAccess;
use model::feed::{FeedEntry, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use typha_client::environment::{self, BGP_PREFIXES, Component, EnvironmentError};
use typha_wire::SyncerType;

/// The maximum number of events waiting for the state.
const WAITING: usize = 64;

/// Identifies a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Feed {
    /// Calico's objects.
    Objects,
    /// Kubernetes' services.
    Services,
}

/// An event for the state.
pub(crate) enum Event {
    Entries(Vec<FeedEntry>),
    Status(Feed, Status),
    Failed(String),
    Secret(String, Option<BTreeMap<String, Password>>),
    LocalPeers(BTreeMap<String, LocalPeer>),
}

/// The latest state for backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Latest {
    /// Not everything has been read yet.
    Waiting,
    /// The node does not exist.
    NodeMissing(NodeMissing),
    /// The intent.
    Intent(Arc<Intent>),
}

/// Why the sources cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The store cannot be opened.
    #[error("opening the datastore")]
    Store(#[source] client::OpenError),
    /// Kubernetes cannot be reached, for services and passwords.
    #[error("connecting to Kubernetes, for services and passwords")]
    Kubernetes(#[source] kube_access::OpenError),
    /// The configured Typha cannot be followed.
    #[error("following Typha")]
    Typha(#[source] EnvironmentError),
}

/// A running source, which ends when it is dropped.
pub struct Source {
    latest: watch::Receiver<Latest>,
    backend: Arc<dyn Backend>,
    task: JoinHandle<()>,
    _end: ShutdownHandle,
}

impl Source {
    /// The latest intent, now and in future.
    #[must_use]
    pub fn latest(&self) -> watch::Receiver<Latest> {
        self.latest.clone()
    }

    /// The store that is followed.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens the sources and follows them: a Typha if configured, which provides everything but services, or else the
/// store. Waits for sources that are not available yet.
///
/// # Errors
/// When the settings cannot be used.
/// When the settings cannot be used.
pub async fn start(
    options: Options,
    variables: &(dyn Environment + Send + Sync),
) -> Result<Source, SourceError> {
    let backend = client::open_backend(&options.client).await.map_err(SourceError::Store)?;
    let access = KubeAccess::from_environment(variables).await.map_err(SourceError::Kubernetes)?;
    // With etcd, services still come from Kubernetes, if it is configured.
    let services = if options.client.datastore_type == DatastoreType::Kubernetes {
        Some(Arc::clone(&backend))
    } else if access.is_some() {
        let mut config = options.client.clone();
        config.datastore_type = DatastoreType::Kubernetes;
        match client::open_backend(&config).await {
            Ok(backend) => Some(backend),
            Err(error) => {
                tracing::warn!(error = %causes(&error), "individual services are not announced");
                None
            }
        }
    } else {
        tracing::info!(
            "Kubernetes is not configured: there are no passwords, and only whole service networks are announced"
        );
        None
    };
    let component = Component {
        kind: SyncerType::Bgp,
        name: "confd",
        node: &options.settings.node,
        prefixes: BGP_PREFIXES,
        state_folder: &options.typha_folder,
    };
    let typha = environment::plan(component, variables).await.map_err(SourceError::Typha)?;
    let (end, shutdown) = ShutdownHandle::new();
    let (events, receiver) = mpsc::channel(WAITING);
    let (sender, latest) = watch::channel(Latest::Waiting);
    let objects = match typha {
        Some(plan) => feed::start_typha(plan, Feed::Objects, events.clone()),
        None => {
            let objects = feed::objects(&options.settings.node, options.settings.use_pod_cidr);
            feed::start(&backend, objects, Feed::Objects, events.clone())
        }
    };
    let secrets = Secrets::new(access, options.namespace.clone(), events.clone(), shutdown.clone());
    let owner = Owner {
        state: BgpState::new(options.settings.clone()),
        services,
        service_feed: None,
        secrets,
        awaited_secrets: BTreeSet::new(),
        in_sync: BTreeSet::new(),
        local_peers: None,
        published: sender,
        reported: Vec::new(),
        events: events.clone(),
        _objects: objects,
    };
    let task = tokio::spawn(async move {
        let peers = local_peers::follow(&options.status_folder, events, shutdown.clone());
        tokio::join!(owner.run(receiver, &shutdown), peers);
    });
    Ok(Source { latest, backend, task, _end: end })
}

struct Owner {
    state: BgpState,
    services: Option<Arc<dyn Backend>>,
    /// Started when a service network is first configured.
    service_feed: Option<Following>,
    secrets: Secrets,
    awaited_secrets: BTreeSet<String>,
    in_sync: BTreeSet<Feed>,
    local_peers: Option<BTreeMap<String, LocalPeer>>,
    published: watch::Sender<Latest>,
    reported: Vec<Problem>,
    events: mpsc::Sender<Event>,
    _objects: Following,
}

impl Owner {
    async fn run(mut self, mut events: mpsc::Receiver<Event>, shutdown: &Shutdown) {
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = shutdown.requested() => return,
            };
            let Some(event) = event else { return };
            self.apply(event);
            // Events that have already arrived are processed together.
            while let Ok(event) = events.try_recv() {
                self.apply(event);
            }
            self.follow_what_is_wanted();
            if self.is_complete() {
                self.publish();
            }
        }
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Entries(entries) => entries.iter().for_each(|entry| _ = self.state.set_entry(entry)),
            Event::Status(feed, Status::InSync) => drop(self.in_sync.insert(feed)),
            // A feed that reads everything again does not invalidate what is known.
            Event::Status(..) => {}
            Event::Failed(error) => tracing::warn!(error, "the datastore does not answer"),
            Event::Secret(name, keys) => {
                self.awaited_secrets.remove(&name);
                self.state.set_secret(&name, keys);
            }
            Event::LocalPeers(peers) => {
                for gone in self.local_peers.iter().flat_map(BTreeMap::keys) {
                    if !peers.contains_key(gone) {
                        self.state.set_local_peer(gone, None);
                    }
                }
                for (file, peer) in &peers {
                    self.state.set_local_peer(file, Some(peer.clone()));
                }
                self.local_peers = Some(peers);
            }
        }
    }

    fn follow_what_is_wanted(&mut self) {
        // Before that, not all references are known.
        if !self.in_sync.contains(&Feed::Objects) {
            return;
        }
        let (new, gone) = self.secrets.want(&self.state.wanted_secrets());
        for name in gone {
            self.awaited_secrets.remove(&name);
            self.state.set_secret(&name, None);
        }
        self.awaited_secrets.extend(new);
        if self.service_feed.is_none()
            && self.state.wants_services()
            && let Some(backend) = &self.services
        {
            let events = self.events.clone();
            self.service_feed = Some(feed::start(backend, feed::services(), Feed::Services, events));
        }
    }

    fn is_complete(&self) -> bool {
        self.in_sync.contains(&Feed::Objects)
            && (self.service_feed.is_none() || self.in_sync.contains(&Feed::Services))
            && self.awaited_secrets.is_empty()
            && self.local_peers.is_some()
    }

    fn publish(&mut self) {
        let latest = match self.state.intent() {
            Ok(intent) => {
                self.report(&intent.problems);
                Latest::Intent(intent)
            }
            Err(missing) => Latest::NodeMissing(missing),
        };
        self.published.send_if_modified(|present| {
            let changed = match (&*present, &latest) {
                (Latest::Intent(one), Latest::Intent(other)) => !Arc::ptr_eq(one, other) && one != other,
                (one, other) => one != other,
            };
            if changed {
                *present = latest;
            }
            changed
        });
    }

    /// Reports each problem once, when it appears.
    fn report(&mut self, problems: &[Problem]) {
        for problem in problems.iter().filter(|problem| !self.reported.contains(problem)) {
            tracing::warn!("{problem}");
        }
        self.reported = problems.to_vec();
    }
}
