//! Clients on Unix sockets.

use anyhow::{Context as _, Result};
use std::path::Path;
use tonic::transport::{Channel, Endpoint};

/// Connects as soon as a server is listening.
pub(crate) async fn connect(socket: &Path) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
    testkit::eventually_async("a server at the socket", async || endpoint.connect().await.ok())
        .await
        .with_context(|| format!("at {}", socket.display()))
}
