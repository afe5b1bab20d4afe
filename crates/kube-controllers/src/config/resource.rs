//! Follows the resource, creates it if it does not exist, and keeps its status up to date.

use super::RunConfig;
use super::environment::EnvironmentSettings;
use super::merge::{default_spec, merge};
use api::{Kind, KubeControllersConfiguration, KubeControllersConfigurationSpec, Object, Resource};
use client::Client;
use daemon::{Backoff, Shutdown};
use follow::{Held, Snapshot};
use model::{ListOptions, Value};
use tokio::sync::watch;

/// The only name that is read.
const NAME: &str = api::words::GLOBAL_NAME;

/// The state of the resource in the store.
#[derive(Clone, Debug)]
enum Found {
    Settings(Box<KubeControllersConfiguration>),
    Unreadable { key: String, reason: String },
    Nothing,
}

impl Found {
    fn of(held: &Held) -> Self {
        if let Some(entry) = held.unreadable().into_iter().next() {
            return Self::Unreadable { key: entry.key, reason: entry.reason };
        }
        let settings = held.items.values().find_map(|entry| match &entry.value {
            Value::Resource(Resource::KubeControllersConfiguration(found)) => Some(found.clone()),
            _ => None,
        });
        settings.map_or(Self::Nothing, Self::Settings)
    }
}

/// Follows the resource and publishes the configuration that it and the environment result in. Ends at the shutdown.
pub(crate) async fn follow(
    client: Client,
    environment: EnvironmentSettings,
    config: watch::Sender<Option<RunConfig>>,
    shutdown: Shutdown,
) {
    let list = ListOptions::Resource {
        kind: Kind::KubeControllersConfiguration,
        namespace: None,
        name: Some(NAME.to_owned()),
        name_is_prefix: false,
    };
    let kubernetes = client.backend().is_kubernetes();
    let mut snapshot = Snapshot::start(client.backend(), list, Found::of);
    let mut follower = Follower { client, environment, kubernetes, config, is_status_refused: false };
    let work = async {
        let mut backoff = Backoff::SERVER;
        loop {
            // A broken or forbidden watch does not change what was read.
            let taken = match snapshot.last_known() {
                Some(found) => follower.take(found).await,
                None => Ok(()),
            };
            match taken {
                Ok(()) => {
                    backoff.reset();
                    snapshot.changed().await;
                }
                Err(error) => {
                    let pause = backoff.pause();
                    tracing::warn!(%error, retry_in = ?pause, "cannot write KubeControllersConfiguration default");
                    // Whichever happens first.
                    let _ = tokio::time::timeout(pause, snapshot.changed()).await;
                }
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = shutdown.requested() => {}
    }
}

struct Follower {
    client: Client,
    environment: EnvironmentSettings,
    kubernetes: bool,
    config: watch::Sender<Option<RunConfig>>,
    /// Whether a forbidden write of the status was reported.
    is_status_refused: bool,
}

impl Follower {
    async fn take(&mut self, found: Found) -> client::Result<()> {
        match found {
            Found::Settings(found) => self.accept(*found).await,
            Found::Unreadable { key, reason } => {
                // The controllers keep running with the last valid settings.
                tracing::error!(key, reason, "the settings cannot be read");
                Ok(())
            }
            Found::Nothing => {
                let configurations = self.client.resource::<KubeControllersConfigurationSpec>();
                match configurations.create(Object::new("", NAME, default_spec())).await {
                    // The watch reports it.
                    Ok(_) => Ok(()),
                    Err(error) if error.is_already_exists() => Ok(()),
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Publishes the configuration, and keeps the resource's status up to date.
    async fn accept(&mut self, mut found: KubeControllersConfiguration) -> client::Result<()> {
        let (config, status) = merge(&self.environment, &found.spec, self.kubernetes);
        self.config.send_if_modified(|current| {
            let changed = current.as_ref() != Some(&config);
            *current = Some(config);
            changed
        });
        if found.status != status {
            found.status = status;
            let configurations = self.client.resource::<KubeControllersConfigurationSpec>();
            match configurations.update_status(found).await {
                // Another client wrote at the same time: the watch reports that, and the status is written then.
                Err(error) if error.is_conflict() => {}
                // Roles of releases before 3.32 forbid this. The controllers do not depend on it.
                Err(client::Error::Unauthorized { reason }) => {
                    if !std::mem::replace(&mut self.is_status_refused, true) {
                        tracing::warn!(
                            reason,
                            "the status of KubeControllersConfiguration default is not kept"
                        );
                    }
                }
                outcome => drop(outcome?),
            }
        }
        Ok(())
    }
}
