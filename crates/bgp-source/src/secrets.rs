//! Secrets with passwords: follows exactly those that are referred to, by name.

use crate::state::Event;
use bgp::Password;
use daemon::{Backoff, Shutdown, causes};
use kube_access::KubeAccess;
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The followed secrets.
pub(crate) struct Secrets {
    access: Option<KubeAccess>,
    namespace: String,
    events: mpsc::Sender<Event>,
    shutdown: Shutdown,
    followed: BTreeMap<String, JoinHandle<()>>,
}

impl Secrets {
    pub(crate) fn new(
        access: Option<KubeAccess>,
        namespace: String,
        events: mpsc::Sender<Event>,
        shutdown: Shutdown,
    ) -> Self {
        Self { access, namespace, events, shutdown, followed: BTreeMap::new() }
    }

    /// Follows these secrets and no others. Returns the new ones, and those that are no longer followed.
    pub(crate) fn want(&mut self, names: &BTreeSet<String>) -> (Vec<String>, Vec<String>) {
        // Without Kubernetes there are no secrets to wait for.
        let Some(access) = &self.access else { return (Vec::new(), Vec::new()) };
        let gone: Vec<String> = self.followed.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in &gone {
            if let Some(task) = self.followed.remove(name) {
                task.abort();
            }
        }
        let new: Vec<String> =
            names.iter().filter(|name| !self.followed.contains_key(*name)).cloned().collect();
        for name in &new {
            let task = follow(
                access.clone(),
                self.namespace.clone(),
                name.clone(),
                self.events.clone(),
                self.shutdown.clone(),
            );
            self.followed.insert(name.clone(), tokio::spawn(task));
        }
        (new, gone)
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        self.followed.values().for_each(JoinHandle::abort);
    }
}

/// Counts a failure as an answer, once, because sessions with other passwords must not wait for this secret. Later
/// failures leave the last known content in effect.
async fn follow(
    access: KubeAccess,
    namespace: String,
    name: String,
    events: mpsc::Sender<Event>,
    shutdown: Shutdown,
) {
    let mut backoff = Backoff::SERVER;
    let mut answered = false;
    while !shutdown.is_requested() {
        let outcome = match access.secret(&namespace, &name).await {
            Err(error) => Err(error),
            Ok(found) => {
                let keys = found.keys.map(|keys| {
                    keys.into_iter().map(|(key, value)| (key, Password::new(value.expose()))).collect()
                });
                answered = true;
                if events.send(Event::Secret(name.clone(), keys)).await.is_err() {
                    return;
                }
                access.secret_changed(&namespace, &name, &found.revision).await
            }
        };
        match outcome {
            Ok(()) => backoff.reset(),
            Err(error) => {
                let pause = backoff.pause();
                tracing::warn!(error = %causes(&error), "trying again in {} s", pause.as_secs());
                if !answered {
                    answered = true;
                    if events.send(Event::Secret(name.clone(), None)).await.is_err() {
                        return;
                    }
                }
                shutdown.sleep(pause).await;
            }
        }
    }
}
