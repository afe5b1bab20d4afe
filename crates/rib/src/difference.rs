//! The changes for the kernel and for peers when the outcome of a prefix changes.

use crate::Sink;
use crate::by_peer::ByPeer;
use crate::part::{Before, Shared};
use crate::peer::Counts;
use crate::policy::Policy;
use crate::route::PeerId;
use crate::view::{Best, Built, Outcome, View};
use bgp_wire::Family;
use ipnet::IpNet;

/// A prefix whose outcome may have changed.
#[derive(Clone, Copy)]
pub(crate) struct Difference<'a> {
    pub(crate) family: Family,
    pub(crate) policy: &'a Policy,
    pub(crate) net: &'a IpNet,
    /// The previous inputs; `None` if only paths changed.
    pub(crate) before: Option<&'a Before>,
}

impl Difference<'_> {
    /// Emits the differences between two outcomes.
    pub(crate) fn emit(&self, shared: &mut Shared, was: &Outcome, is: &Outcome, sink: &mut impl Sink) {
        if self.before.is_none() && was == is {
            return;
        }
        self.count_preferred(shared, was, is);
        if shared.deferred {
            return;
        }
        if was.kernel != is.kernel {
            sink.kernel(*self.net, is.kernel.as_ref());
        }
        if self.before.is_none() && was.best == is.best {
            return;
        }
        let Shared { store, peers, resolutions, built, counts, .. } = shared;
        let new = View { family: self.family, store, peers, resolutions, policy: self.policy };
        let old = self.before.map_or(new, |before| before.view(self.family, store));
        for group in new.peers.groups(self.family) {
            let announced = |view: &View<'_>, built: &mut Built, best: Option<Best>| {
                view.announcement(built, &group.export, self.net, best?)
            };
            let had = announced(&old, built, was.best);
            let gets = announced(&new, built, is.best);
            let same = match (had, gets) {
                (None, None) => continue,
                (Some(one), Some(two)) => one == two || built.get(one) == built.get(two),
                _ => false,
            };
            for peer in &group.peers {
                let fits =
                    |view: &View<'_>, best: Option<Best>| best.is_some_and(|best| view.suits(*peer, best));
                let had_it = had.is_some() && fits(&old, was.best);
                let gets_it = gets.filter(|_| fits(&new, is.best)).map(|place| built.get(place));
                if had_it == gets_it.is_some() && (same || !had_it) {
                    continue;
                }
                sink.export(*peer, *self.net, gets_it);
                count_export(counts, *peer, self.family, had_it, gets_it.is_some());
            }
        }
    }

    fn count_preferred(&self, shared: &mut Shared, was: &Outcome, is: &Outcome) {
        let sender = |outcome: &Outcome| outcome.best.as_ref().and_then(|best| best.source.peer());
        let (before, now) = (sender(was), sender(is));
        if before == now {
            return;
        }
        if let Some(counts) = shared.count(before, self.family) {
            counts.preferred = counts.preferred.saturating_sub(1);
        }
        if let Some(counts) = shared.count(now, self.family) {
            counts.preferred += 1;
        }
    }
}

/// Counts an announcement to a peer, or a withdrawal.
pub(crate) fn count_export(
    counts: &mut ByPeer<[Counts; 2]>,
    peer: PeerId,
    family: Family,
    had_it: bool,
    gets_it: bool,
) {
    let Some(counts) = counts.get_mut(peer) else { return };
    let counts = &mut counts[family.index()];
    match (had_it, gets_it) {
        (false, _) => counts.exported += 1,
        (true, false) => counts.exported = counts.exported.saturating_sub(1),
        (true, true) => {}
    }
    if gets_it {
        counts.exports += 1;
    } else {
        counts.export_withdrawals += 1;
    }
}
