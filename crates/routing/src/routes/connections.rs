//! Removes connections in the background.
//!
//! Reading a large connection table takes long, and only a route to an address whose old connections still exist has to
//! wait for it. Therefore a separate thread does it, and [`ConnectionCleanup::wait`] is called before such a route is
//! created.

use crate::conntrack::{Cleaner, Connections};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How often a removal is attempted before it is given up.
const ATTEMPTS: u32 = 3;
/// The pause between attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Removes connections, possibly in the background.
pub trait ConnectionCleanup {
    /// Starts to remove the connections of these addresses.
    fn start(&mut self, addresses: BTreeSet<IpAddr>);

    /// Waits until the started removals for these addresses are done.
    fn wait(&mut self, addresses: &BTreeSet<IpAddr>);
}

/// A thread that removes connections. It ends when this value is dropped.
#[derive(Debug)]
pub struct Background {
    work: Sender<BTreeSet<IpAddr>>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Batches that were started but are not done, in order.
    open: Mutex<Vec<BTreeSet<IpAddr>>>,
    done: Condvar,
}

impl Background {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start(connections: impl Connections + Send + 'static) -> std::io::Result<Self> {
        let (work, orders) = channel();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::Builder::new().name("connections".to_owned()).spawn(move || {
            let mut cleaner = Cleaner::new(connections);
            while let Ok(addresses) = orders.recv() {
                forget(&mut cleaner, &addresses);
                shared.open.lock().unwrap_or_else(PoisonError::into_inner).remove(0);
                shared.done.notify_all();
            }
        })?;
        Ok(Self { work, state })
    }
}

fn forget(cleaner: &mut Cleaner<impl Connections>, addresses: &BTreeSet<IpAddr>) {
    addresses.iter().for_each(|address| cleaner.forget(*address));
    for attempt in 1..=ATTEMPTS {
        match cleaner.apply() {
            Ok(_) => return,
            Err(error) if attempt < ATTEMPTS => {
                tracing::debug!(%error, attempt, "cannot forget connections");
                std::thread::sleep(PAUSE);
            }
            // The addresses stay with the cleaner, and are retried with the next ones.
            Err(error) => {
                tracing::warn!(%error, ?addresses, "connections of removed addresses may persist");
            }
        }
    }
}

impl ConnectionCleanup for Background {
    fn start(&mut self, addresses: BTreeSet<IpAddr>) {
        if addresses.is_empty() {
            return;
        }
        self.state.open.lock().unwrap_or_else(PoisonError::into_inner).push(addresses.clone());
        if self.work.send(addresses).is_err() {
            // The thread is gone: no caller may wait for it any more.
            self.state.open.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    fn wait(&mut self, addresses: &BTreeSet<IpAddr>) {
        let mut open = self.state.open.lock().unwrap_or_else(PoisonError::into_inner);
        while open.iter().any(|batch| !batch.is_disjoint(addresses)) {
            open = self.state.done.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Background, ConnectionCleanup as _};
    use crate::conntrack::Connections;
    use netlink::netfilter::{Error, Refusal};
    use std::collections::BTreeSet;
    use std::net::IpAddr;
    use std::sync::{Arc, Mutex};

    type Seen = Arc<Mutex<Vec<BTreeSet<IpAddr>>>>;

    struct Fake(Seen, bool);

    impl Connections for Fake {
        fn forget(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<usize, Error> {
            if std::mem::take(&mut self.1) {
                return Err(Error::Refused { what: "forget".into(), refusal: Refusal::new(4) });
            }
            self.0.lock().expect("lock").push(addresses.clone());
            Ok(0)
        }
    }

    #[test]
    fn wait_covers_only_started_addresses() {
        let seen = Seen::default();
        let mut background = Background::start(Fake(Arc::clone(&seen), true)).expect("a thread");
        let one = |text: &str| BTreeSet::from([text.parse::<IpAddr>().expect("address")]);
        background.wait(&one("10.0.0.9"));
        background.start(one("10.0.0.1"));
        background.start(one("10.0.0.2"));
        background.wait(&one("10.0.0.2"));
        assert_eq!(*seen.lock().expect("lock"), [one("10.0.0.1"), one("10.0.0.2")]);
    }
}
