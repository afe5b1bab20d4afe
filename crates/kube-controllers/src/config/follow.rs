//! The resource, read, made if it is not there, watched, and its status kept true.

use super::RunConfig;
use super::environment::EnvironmentSettings;
use super::merge::{default_spec, merge};
use crate::shutdown::Shutdown;
use api::{KubeControllersConfiguration, KubeControllersConfigurationSpec, Object};
use client::{Client, ListQuery, ResourceEvent};
use futures::StreamExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The only name that counts.
const NAME: &str = "default";

/// The pauses after failures.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Follows the resource and publishes what it means together with the environment. Ends when asked to, or when nobody
/// listens any more.
pub async fn follow(
    client: Client,
    environment: EnvironmentSettings,
    config: watch::Sender<Option<RunConfig>>,
    shutdown: Shutdown,
) {
    let kubernetes = client.backend().is_kubernetes();
    let follower =
        Follower { client, environment, kubernetes, config, is_status_refused: AtomicBool::new(false) };
    let work = async {
        let mut pause = SHORTEST_PAUSE;
        loop {
            match follower.once(&mut pause).await {
                Ok(()) => tracing::debug!("the watch of KubeControllersConfiguration ended"),
                Err(error) => {
                    tracing::warn!(%error, retry_in = ?pause, "cannot follow KubeControllersConfiguration default");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
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
    /// Whether the refusal of the status was reported.
    is_status_refused: AtomicBool,
}

impl Follower {
    /// The resource, and the revision to watch from; none where the watch begins with what is there.
    async fn read(&self) -> client::Result<(Option<KubeControllersConfiguration>, Option<String>)> {
        let configurations = self.client.resource::<KubeControllersConfigurationSpec>();
        match configurations.list(&ListQuery::named(NAME)).await {
            Ok(list) => Ok((list.items.into_iter().next(), Some(list.revision))),
            // Roles of releases before 3.28 allow to read and watch it, and not to list it.
            Err(client::Error::Unauthorized { reason }) => match configurations.get("", NAME).await {
                Ok(found) => Ok((Some(found), None)),
                Err(error) if error.is_does_not_exist() => Ok((None, None)),
                Err(_) => Err(client::Error::Unauthorized { reason }),
            },
            Err(error) => Err(error),
        }
    }

    /// Reads the resource, then follows it until the watch ends.
    async fn once(&self, pause: &mut Duration) -> client::Result<()> {
        let configurations = self.client.resource::<KubeControllersConfigurationSpec>();
        let query = ListQuery::named(NAME);
        let (found, revision) = self.read().await?;
        match found {
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
        let query = match &revision {
            Some(revision) => query.at(revision),
            None => query,
        };
        let mut events = configurations.watch(&query).await?;
        *pause = SHORTEST_PAUSE;
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
                // Roles of releases before 3.32 do not allow it. What runs does not depend on it.
                Err(client::Error::Unauthorized { reason }) => {
                    if !self.is_status_refused.swap(true, Ordering::Relaxed) {
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
