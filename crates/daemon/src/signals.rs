//! SIGTERM and SIGINT, which ask a process to end.

use crate::{Shutdown, ShutdownHandle};
use std::io;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM or SIGINT. Receiving begins at once, so none is lost before the first poll. Must be called inside a
/// tokio runtime.
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
        tracing::info!("asked to end");
    })
}

/// A shutdown that SIGTERM or SIGINT requests. Must be called inside a tokio runtime.
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
