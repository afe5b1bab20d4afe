//! Queries the driver behind a socket for its name, and a registrar's own socket for its registration.

use super::Settings;
use crate::proto::csi::GetPluginInfoRequest;
use crate::proto::csi::identity_client::IdentityClient;
use crate::proto::registration::InfoRequest;
use crate::proto::registration::registration_client::RegistrationClient;
use anyhow::{Context as _, Result, ensure};
use daemon::{Backoff, Shutdown};
use std::path::Path;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// Waits until the driver reports its name; `None` if a shutdown is requested first.
pub(super) async fn name(settings: &Settings, shutdown: &Shutdown) -> Result<Option<String>> {
    // A driver starts alongside its registrar, in the same pod: it answers within moments, or needs attention.
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
    loop {
        match ask(&settings.driver, settings.patience).await {
            Ok(name) => {
                ensure!(
                    is_name(&name),
                    "the driver at {} calls itself {name:?}, which cannot be a driver's name",
                    settings.driver.display()
                );
                return Ok(Some(name));
            }
            Err(error) => tracing::warn!("waiting for the driver: {error:#}"),
        }
        if !shutdown.sleep(backoff.pause()).await {
            return Ok(None);
        }
    }
}

/// Names of drivers are domain names; they become part of a file name.
fn is_name(name: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !name.is_empty() && name.len() <= 63 && !name.starts_with('.') && name.bytes().all(is_good)
}

async fn ask(socket: &Path, patience: Duration) -> Result<String> {
    let call = async {
        let mut client = IdentityClient::new(connect(socket).await?);
        let answer = client.get_plugin_info(GetPluginInfoRequest {}).await.context("querying its name")?;
        Ok(answer.into_inner().name)
    };
    in_time(call, patience).await.with_context(|| format!("at {}", socket.display()))
}

/// The name that a registrar's socket reports.
pub(super) async fn registered(socket: &Path, patience: Duration) -> Result<String> {
    let call = async {
        let mut client = RegistrationClient::new(connect(socket).await?);
        Ok(client.get_info(InfoRequest {}).await.context("querying the registration")?.into_inner().name)
    };
    in_time(call, patience).await.with_context(|| format!("at {}", socket.display()))
}

async fn in_time<T>(call: impl Future<Output = Result<T>>, patience: Duration) -> Result<T> {
    tokio::time::timeout(patience, call).await.with_context(|| format!("no answer within {patience:?}"))?
}

async fn connect(socket: &Path) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))
        .context("this is not the path of a socket")?;
    endpoint.connect().await.map_err(|error| anyhow::anyhow!("cannot connect: {}", daemon::causes(&error)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_drivers_are_names_of_files() {
        for (name, is_good) in [
            ("csi.tigera.io", true),
            ("", false),
            ("../x", false),
            (".x", false),
            ("a b", false),
            ("a/b", false),
        ] {
            assert_eq!(super::is_name(name), is_good, "{name}");
        }
        assert!(!super::is_name(&"x".repeat(64)));
    }
}
