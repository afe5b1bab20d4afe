//! Foreign changes of nftables: received from the first round on, and distinguished from our own changes.

use netlink::netfilter::Error;
use netlink::netfilter::nft;
use netlink::netfilter::watch::{LaterWatch, Seen, Transactions, Watch};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether changes are received.
enum Listening {
    /// Never: changes are found by refreshes only.
    Never,
    /// As soon as the first rules are written.
    Later(LaterWatch),
    /// From the first rules on.
    Now { watch: Watch, transactions: Transactions },
}

/// Foreign changes of nftables.
pub(super) struct Others {
    listening: Listening,
    /// The tables in which foreign changes affect us, and the affected plane; `None` for ARP.
    watched: Vec<(nft::Table, Option<usize>)>,
    /// The ports of the sockets by which we change nftables ourselves, and the number of our transactions, including
    /// those of iptables.
    own_ports: Vec<u32>,
    own_commits: Vec<Arc<AtomicU64>>,
}

impl Others {
    pub(super) fn open(
        watched: Vec<(nft::Table, Option<usize>)>,
        own_ports: Vec<u32>,
        own_commits: Vec<Arc<AtomicU64>>,
    ) -> Self {
        let listening = match LaterWatch::open() {
            Ok(watch) => Listening::Later(watch),
            Err(error) => {
                tracing::info!(%error, "foreign changes of nftables are found by refreshes only");
                Listening::Never
            }
        };
        Self { listening, watched, own_ports, own_commits }
    }

    /// The descriptor to wait on.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.listening {
            Listening::Now { watch, .. } => Some(watch.as_fd()),
            Listening::Never | Listening::Later(_) => None,
        }
    }

    /// Starts to listen; does nothing when it already does. Returns whether other programs made changes since the
    /// start, which is found by counting transactions.
    pub(super) fn begin(&mut self) -> Result<Option<bool>, Error> {
        if !matches!(self.listening, Listening::Later(_)) {
            return Ok(None);
        }
        let Listening::Later(later) = std::mem::replace(&mut self.listening, Listening::Never) else {
            return Ok(None);
        };
        let (watch, transactions, others) = later.listen(self.commits())?;
        self.listening = Listening::Now { watch, transactions };
        Ok(Some(others))
    }

    /// The foreign changes since the last look.
    pub(super) fn look(&mut self) -> Result<Seen, Error> {
        match &mut self.listening {
            Listening::Now { watch, .. } => watch.look(&self.own_ports),
            Listening::Never | Listening::Later(_) => Ok(Seen::default()),
        }
    }

    /// Skips the changes since the last look: they were ours.
    pub(super) fn pass_over(&mut self) {
        // Changes that cannot be read are found by the next look.
        let _ = self.look();
    }

    /// Whether changes are received.
    pub(super) fn is_listening(&self) -> bool {
        matches!(self.listening, Listening::Now { .. })
    }

    /// Whether there may have been foreign transactions since the last call.
    pub(super) fn wrote(&mut self) -> bool {
        let own = self.commits();
        match &mut self.listening {
            Listening::Now { transactions, .. } => transactions.others(own).unwrap_or(true),
            Listening::Never | Listening::Later(_) => true,
        }
    }

    /// The affected planes, once for each of their tables; `None` for ARP.
    pub(super) fn disturbed<'a>(&'a self, seen: &'a Seen) -> impl Iterator<Item = Option<usize>> + 'a {
        self.watched.iter().filter(|(table, _)| seen.concerns(table)).map(|(_, place)| *place)
    }

    /// The number of our own nftables transactions.
    fn commits(&self) -> u64 {
        self.own_commits.iter().map(|commits| commits.load(Ordering::Relaxed)).sum()
    }
}

/// Whether kube-proxy's tables were changed.
pub(super) fn concerns_kube_proxy(seen: &Seen) -> bool {
    let table = |family| nft::Table::new(family, "kube-proxy");
    [nft::Family::Ip, nft::Family::Ip6].into_iter().any(|family| seen.concerns(&table(family)))
}
