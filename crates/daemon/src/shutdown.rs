//! The request to shut down, as a value that every task holds and checks between steps, never in the middle of one.

use std::time::Duration;
use tokio::sync::watch;

/// The side that requests the shutdown. Dropping it is a request, too.
#[derive(Debug)]
pub struct ShutdownHandle(watch::Sender<bool>);

/// The side that receives the request. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

impl ShutdownHandle {
    /// Creates both sides.
    #[must_use]
    pub fn new() -> (Self, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Shutdown(receiver))
    }

    /// Requests the shutdown.
    pub fn request(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// A shutdown that is never requested, for commands that end by themselves or by a signal.
    #[must_use]
    pub fn never() -> Self {
        let (handle, shutdown) = ShutdownHandle::new();
        // The sender must live as long as the process, because dropping it would be a request.
        std::mem::forget(handle);
        shutdown
    }

    /// Whether the shutdown was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits until the shutdown is requested.
    pub async fn requested(&self) {
        // A dropped sender is a request as well.
        let _ = self.0.clone().wait_for(|requested| *requested).await;
    }

    /// Waits for this time. Returns false if the shutdown was requested first.
    pub async fn sleep(&self, time: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(time) => true,
            () = self.requested() => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_reaches_all_and_stays() {
        let (handle, shutdown) = ShutdownHandle::new();
        let other = shutdown.clone();
        assert!(!shutdown.is_requested());
        handle.request();
        shutdown.requested().await;
        assert!(!other.sleep(Duration::from_secs(3600)).await);
        assert!(other.is_requested());
    }

    #[tokio::test]
    async fn a_lost_handle_is_a_request() {
        let (handle, shutdown) = ShutdownHandle::new();
        drop(handle);
        shutdown.requested().await;
        assert!(shutdown.is_requested());
    }
}
