//! Gives the agent a thread of its own.
//!
//! A plugin's call is a chain of short steps that wait for each other: the socket, the connection to the datastore and
//! its streams, the call itself. On a multi-threaded runtime each step may wake another thread, which on a busy node
//! costs more than the step itself. On one thread they follow each other without a pause; blocking work (the kernel's
//! devices) has its own threads in any case.

use std::io;
use tokio::sync::oneshot;

/// Runs the future that `make` returns in a thread of its own, on a single-threaded runtime, until it ends.
///
/// Dropping the returned future does not end the thread: make the inner future end, and wait for it here.
///
/// # Errors
/// When the inner future fails, or no thread can be started.
pub async fn alone<F>(make: impl FnOnce() -> F + Send + 'static) -> io::Result<()>
where
    F: Future<Output = io::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (done, outcome) = oneshot::channel();
    std::thread::Builder::new().name("cni-agent".to_owned()).spawn(move || {
        let result = runtime.block_on(async { make().await });
        // Does not wait for threads that are blocked in the kernel: the process is about to end.
        runtime.shutdown_background();
        // There is no receiver any more when the process is ending.
        let _ = done.send(result);
    })?;
    outcome.await.unwrap_or_else(|_| Err(io::Error::other("the CNI agent's thread failed")))
}
