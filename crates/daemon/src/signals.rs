//! SIGTERM and SIGINT, which request a shutdown.

use crate::{Shutdown, ShutdownHandle};
use std::io;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT. Signals are caught from this call on, so none is lost before the first poll. Must be
/// called inside a tokio runtime.
///
/// # Errors
/// When signals cannot be received.
pub fn end() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("received a signal to end");
    })
}

/// Returns a shutdown that SIGTERM or SIGINT requests. Must be called inside a tokio runtime.
///
/// # Errors
/// When signals cannot be received.
pub fn shutdown() -> io::Result<Shutdown> {
    let (handle, shutdown) = ShutdownHandle::new();
    let end = end()?;
    tokio::spawn(async move {
        end.await;
        handle.request();
    });
    Ok(shutdown)
}
