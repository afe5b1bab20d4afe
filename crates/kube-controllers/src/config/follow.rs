//! The resource, read, made if it is not there, watched, and its status kept true.

use super::RunConfig;
use super::environment::EnvironmentSettings;
use super::merge::{default_spec, merge};
use crate::shutdown::Shutdown;
use api::{KubeControllersConfiguration, KubeControllersConfigurationSpec, Object};
use client::{Client, ListQuery, ResourceEvent};
use futures::StreamExt as _;
use std::time::Duration;
use tokio::sync::watch;

/// The only name that counts.
const NAME: &str = "default";

/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);

/// Follows the resource and publishes what it means together with the environment. Ends when asked to, or when nobody
/// listens any more.
pub async fn follow(
    client: Client,
    environment: EnvironmentSettings,
    config: watch::Sender<Option<RunConfig>>,
    shutdown: Shutdown,
) {
    let kubernetes = client.backend().is_kubernetes();
    let follower = Follower { client, environment, kubernetes, config };
    let work = async {
        loop {
            match follower.once().await {
                Ok(()) => tracing::debug!("the watch of KubeControllersConfiguration ended"),
                Err(error) => {
                    tracing::warn!(%error, "cannot follow KubeControllersConfiguration default");
                    tokio::time::sleep(PAUSE).await;
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
}

impl Follower {
    /// Reads the resource, then follows it until the watch ends.
    async fn once(&self) -> client::Result<()> {
        let configurations = self.client.resource::<KubeControllersConfigurationSpec>();
        let query = ListQuery::named(NAME);
        let list = configurations.list(&query).await?;
        let revision = list.revision.clone();
        match list.items.into_iter().next() {
            Some(found) => self.accept(found).await?,
            None => {
                let default = Object::new("", NAME, default_spec());
                match configurations.create(default).await {
                    // The watch tells of it.
                    Ok(_) => {}
                    Err(error) if error.is_already_exists() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let mut events = configurations.watch(&query.at(&revision)).await?;
        while let Some(event) = events.next().await {
            match event? {
                ResourceEvent::Added(found) | ResourceEvent::Modified { new: found, .. } => {
                    if found.metadata.name == NAME {
                        self.accept(found).await?;
                    }
                }
                // Begin anew, which makes another one.
                ResourceEvent::Deleted(gone) if gone.metadata.name == NAME => return Ok(()),
                ResourceEvent::Deleted(_) | ResourceEvent::Bookmark(_) => {}
                ResourceEvent::Invalid(entry) => {
                    // What runs goes on: the last settings that could be read.
                    tracing::error!(key = entry.key, reason = entry.reason, "settings that cannot be read");
                }
            }
        }
        Ok(())
    }

    /// Publishes what the resource means, and tells its status.
    async fn accept(&self, mut found: KubeControllersConfiguration) -> client::Result<()> {
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
                // Somebody wrote at the same time: the watch brings that, and the status is told then.
                Err(error) if error.is_conflict() => {}
                outcome => drop(outcome?),
            }
        }
        Ok(())
    }
}
