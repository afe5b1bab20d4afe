//! Applies an UPDATE of a peer to the tables.

use crate::Sink;
use crate::host::Resolution;
use crate::import::{self, Filtered};
use crate::part::{Part, Shared};
use crate::peer::{Counts, Peer};
use crate::prefix::Key;
use crate::rib::Rib;
use crate::route::{Announcement, BgpRoute, InterfaceName, Moment, PeerId, Route, Slot, Source};
use crate::store::RouteId;
use bgp_wire::{Attributes, Family, Nlri, Reach, Update};
use smallvec::SmallVec;

/// The sender of an UPDATE, and when it arrived.
struct Sender<'a> {
    id: PeerId,
    peer: &'a Peer,
    now: Moment,
}

impl Rib {
    /// Applies an UPDATE of a peer.
    pub fn update(&mut self, id: PeerId, update: &Update, now: Moment, sink: &mut impl Sink) {
        let Some(peer) = self.shared.peers.known(id).map(|known| known.peer.clone()) else { return };
        let Self { shared, v4, v6 } = self;
        for nlri in &update.withdrawn {
            match nlri.family() {
                Family::Ipv4 => withdrawn(v4, shared, id, nlri, sink),
                Family::Ipv6 => withdrawn(v6, shared, id, nlri, sink),
            }
        }
        if !update.reach.is_empty() {
            let sender = Sender { id, peer: &peer, now };
            let attributes = import::complete(&update.attributes);
            for reach in &update.reach {
                match reach.family {
                    Family::Ipv4 => announced(v4, shared, &sender, &attributes, reach, sink),
                    Family::Ipv6 => announced(v6, shared, &sender, &attributes, reach, sink),
                }
            }
        }
        shared.finish();
    }
}

fn withdrawn<K: Key>(part: &mut Part<K>, shared: &mut Shared, id: PeerId, nlri: &Nlri, sink: &mut impl Sink) {
    let source = Source::Peer(id, nlri.path);
    let known = part.take(shared, &nlri.prefix, source, sink);
    if let Some(counts) = shared.count(Some(id), part.family) {
        counts.withdrawals += 1;
        counts.withdrawals_ignored += u64::from(!known);
    }
}

fn announced<K: Key>(
    part: &mut Part<K>,
    shared: &mut Shared,
    sender: &Sender<'_>,
    attributes: &Attributes,
    reach: &Reach,
    sink: &mut impl Sink,
) {
    let Sender { id, peer, now } = *sender;
    let possible = import::is_possible(&shared.identity, peer, attributes, reach.next_hop);
    let interface = interface_of(shared, peer, reach);
    // One set of attributes per accepting rule, shared by the message's prefixes.
    let mut kept: SmallVec<[(Option<usize>, RouteId); 2]> = SmallVec::new();
    let mut counts = Counts::default();
    for nlri in &reach.nlri {
        let source = Source::Peer(id, nlri.path);
        counts.updates += 1;
        let filtered = if possible {
            import::filtered(peer, reach.family, &nlri.prefix, attributes, interface.as_deref())
        } else {
            counts.rejected += 1;
            Filtered::Rejected
        };
        let Filtered::Accepted(rule) = filtered else {
            counts.filtered += u64::from(possible);
            // A rejected announcement still replaces the previous one.
            part.take(shared, &nlri.prefix, source, sink);
            continue;
        };
        let place = kept.iter().position(|(by, _)| *by == rule).unwrap_or_else(|| {
            let attributes = import::changed(peer, reach.family, attributes, rule);
            let is_on_link = reach.next_hop.link_local().is_some();
            let route = shared.keep(Route::Bgp(BgpRoute {
                announcement: Announcement { attributes, next_hop: reach.next_hop },
                link: peer.link.clone().filter(|_| is_on_link),
                slot: Slot::default(),
            }));
            kept.push((rule, route));
            kept.len() - 1
        });
        let is_new = part.put(shared, &nlri.prefix, source, kept[place].1, now, sink);
        counts.ignored += u64::from(!is_new);
    }
    shared.return_later(kept.into_iter().map(|(_, route)| route));
    if let Some(all) = shared.count(Some(id), reach.family) {
        all.updates += counts.updates;
        all.rejected += counts.rejected;
        all.filtered += counts.filtered;
        all.ignored += counts.ignored;
    }
}

/// The interface for filters, resolved only if a rule examines it.
fn interface_of(shared: &Shared, peer: &Peer, reach: &Reach) -> Option<InterfaceName> {
    let rules = &peer.import.rules[reach.family.index()];
    if !rules.iter().any(|rule| rule.interface.is_some()) {
        return None;
    }
    match shared.host.resolve(reach.next_hop, peer.link.as_ref(), &shared.gateways) {
        Resolution::Found { interface, .. } => Some(interface.name),
        Resolution::Unknown => None,
    }
}
