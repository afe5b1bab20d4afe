//! A thread of the agent's own.
//!
//! One call of a plugin is a chain of short steps that wait for each other: the socket, the connection to the datastore and
//! its streams, the call itself. On a runtime of many threads each step may wake another thread, and on a busy node that
//! costs more than the step. On one thread they follow each other without a pause; what blocks (the kernel's devices) has
//! threads of its own in any case.

use std::io;
use tokio::sync::oneshot;

/// Runs what `make` makes on a thread of its own, with a runtime of one thread, until it is done.
///
/// Dropping the returned future does not end the thread: tell what runs there to end, and wait for it here.
///
/// # Errors
/// What it ends with, or that there can be no thread.
pub async fn alone<F>(make: impl FnOnce() -> F + Send + 'static) -> io::Result<()>
where
    F: Future<Output = io::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (done, outcome) = oneshot::channel();
    std::thread::Builder::new().name("cni-agent".to_owned()).spawn(move || {
        let result = runtime.block_on(async { make().await });
        // Threads that wait for the kernel are not waited for: the process is about to end.
        runtime.shutdown_background();
        // Nobody waits any more when the process is ending.
        let _ = done.send(result);
    })?;
    outcome.await.unwrap_or_else(|_| Err(io::Error::other("the CNI agent's thread failed")))
}
