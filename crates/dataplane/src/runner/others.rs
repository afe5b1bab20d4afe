//! What other programs change in nftables: heard from the first round on, and distinguished from our own changes.

use netlink::netfilter::Error;
use netlink::netfilter::nft;
use netlink::netfilter::watch::{LaterWatch, Seen, Transactions, Watch};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether changes are heard.
enum Listening {
    /// Never: they are found by refreshes only.
    Never,
    /// As soon as the first rules are there.
    Later(LaterWatch),
    /// From the first rules on.
    Now { watch: Watch, transactions: Transactions },
}

/// What others do to nftables.
pub(super) struct Others {
    listening: Listening,
    /// The tables in which others may disturb us, and the plane that is disturbed; none for ARP.
    watched: Vec<(nft::Table, Option<usize>)>,
    /// The sockets by which we change nftables ourselves, and how often we did, also through iptables.
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
                tracing::info!(%error, "changes of nftables by others are found by refreshes only");
                Listening::Never
            }
        };
        Self { listening, watched, own_ports, own_commits }
    }

    /// What to wait on.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.listening {
            Listening::Now { watch, .. } => Some(watch.as_fd()),
            Listening::Never | Listening::Later(_) => None,
        }
    }

    /// Listens from now on; nothing when it does already. What others wrote since the start, while nobody listened, is
    /// found by counting: whether they did.
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

    /// What others changed since the last look.
    pub(super) fn look(&mut self) -> Result<Seen, Error> {
        match &mut self.listening {
            Listening::Now { watch, .. } => watch.look(&self.own_ports),
            Listening::Never | Listening::Later(_) => Ok(Seen::default()),
        }
    }

    /// Passes over what was changed since the last look: it was ours.
    pub(super) fn pass_over(&mut self) {
        // What cannot be read is found by the next look.
        let _ = self.look();
    }

    /// Whether changes are heard.
    pub(super) fn is_listening(&self) -> bool {
        matches!(self.listening, Listening::Now { .. })
    }

    /// Whether there may have been transactions of others since this was asked last.
    pub(super) fn wrote(&mut self) -> bool {
        let own = self.commits();
        match &mut self.listening {
            Listening::Now { transactions, .. } => transactions.others(own).unwrap_or(true),
            Listening::Never | Listening::Later(_) => true,
        }
    }

    /// The planes that were disturbed, once for each of their tables; none for ARP.
    pub(super) fn disturbed<'a>(&'a self, seen: &'a Seen) -> impl Iterator<Item = Option<usize>> + 'a {
        self.watched.iter().filter(|(table, _)| seen.concerns(table)).map(|(_, place)| *place)
    }

    /// How many transactions of nftables were ours.
    fn commits(&self) -> u64 {
        self.own_commits.iter().map(|commits| commits.load(Ordering::Relaxed)).sum()
    }
}

/// Whether kube-proxy's tables were changed.
pub(super) fn concerns_kube_proxy(seen: &Seen) -> bool {
    let table = |family| nft::Table::new(family, "kube-proxy");
    [nft::Family::Ip, nft::Family::Ip6].into_iter().any(|family| seen.concerns(&table(family)))
}
