//! `/healthz`: whether the kubelet would find the driver.

use anyhow::{Context as _, Result};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;

/// Serves health while it is polled.
pub(super) async fn serve(address: &str, socket: &Path, name: &str, patience: Duration) -> Result<()> {
    let listener = listen(address).await.with_context(|| format!("listening at {address:?} for /healthz"))?;
    let (socket, name) = (socket.to_owned(), name.to_owned());
    let answer = move || {
        let (socket, name) = (socket.clone(), name.clone());
        async move { health(&socket, &name, patience).await }
    };
    axum::serve(listener, Router::new().route("/healthz", get(answer))).await.context("serving /healthz")
}

/// Listens at an address; without a host, on that port of all addresses.
async fn listen(address: &str) -> std::io::Result<TcpListener> {
    if !address.starts_with(':') {
        return TcpListener::bind(address).await;
    }
    match TcpListener::bind(format!("[::]{address}")).await {
        Ok(listener) => Ok(listener),
        // The machine has no IPv6.
        Err(_) => TcpListener::bind(format!("0.0.0.0{address}")).await,
    }
}

async fn health(socket: &Path, name: &str, patience: Duration) -> (StatusCode, String) {
    if !socket.exists() {
        return (StatusCode::NOT_FOUND, "registration socket does not exist".to_owned());
    }
    match super::check(socket, name, patience).await {
        Ok(()) => (StatusCode::OK, "ok".to_owned()),
        Err(error) => {
            tracing::warn!("unexpected answer from the registration socket: {error:#}");
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:#}"))
        }
    }
}
