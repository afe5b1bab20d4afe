//! A session from the tables' perspective: the other end, and the filters in each direction.

use crate::by_peer::ByPeer;
use crate::route::{Interface, PeerId};
use bgp::intent::{FilterRule, NextHop as NextHopMode, Session};
use bgp_wire::{Asn, Family, NextHop, RouterId};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The relation between the ends of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// In different ASes.
    External,
    /// In the same AS.
    Internal,
    /// In the same AS, and the other end is a client of this reflector in this cluster.
    Client(RouterId),
}

impl Relation {
    /// Whether both ends are in the same AS.
    #[must_use]
    pub fn is_internal(self) -> bool {
        !matches!(self, Self::External)
    }

    /// The cluster, if the other end is a client.
    #[must_use]
    pub fn cluster(self) -> Option<RouterId> {
        match self {
            Self::Client(cluster) => Some(cluster),
            _ => None,
        }
    }
}

/// The other end of a session, once its OPEN has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// The link of a link-local address.
    pub link: Option<Interface>,
    /// Its BGP identifier.
    pub router_id: RouterId,
    /// Its relation to us.
    pub relation: Relation,
    /// How its routes are imported.
    pub import: Import,
    /// How routes are exported to it.
    pub export: Export,
}

/// How routes of a peer are imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Our AS number on this session.
    pub local_as: Asn,
    /// How often it may occur in the path.
    pub allowed_local_as: u32,
    /// Our address on this session, which cannot be a next hop.
    pub local_address: IpAddr,
    /// Rules by family ([`Family::index`]); the first matching one decides.
    pub rules: [Arc<[FilterRule]>; 2],
}

/// How routes are exported to a peer. Peers with equal values here get equal announcements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The other end's relation to us.
    pub relation: Relation,
    /// Our AS number on this session.
    pub local_as: Asn,
    /// The mode of the next hop.
    pub next_hop: NextHopMode,
    /// Our own next hop, by family ([`Family::index`]).
    pub own: [NextHop; 2],
    /// Rules by family ([`Family::index`]); the first matching one decides.
    pub rules: [Arc<[FilterRule]>; 2],
}

/// The two ends of an established connection.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Our address.
    pub local: IpAddr,
    /// Our link-local address on the link to the peer, if it is reached there.
    pub link_local: Option<Ipv6Addr>,
    /// The peer's address.
    pub remote: IpAddr,
    /// The link of a link-local peer.
    pub link: Option<Interface>,
    /// The peer's BGP identifier.
    pub router_id: RouterId,
}

impl Peer {
    /// The peer of a session of the intent over this connection.
    #[must_use]
    pub fn of_session(session: &Session, ends: Ends) -> Self {
        let relation = match session.reflector_client {
            _ if !session.is_internal() => Relation::External,
            Some(cluster) => Relation::Client(RouterId::from(cluster.0)),
            None => Relation::Internal,
        };
        let local_as = Asn(session.local_as.0);
        // Only the session's family has rules; the other one has none.
        let by_family = |rules: Vec<FilterRule>| -> [Arc<[FilterRule]>; 2] {
            let rules: Arc<[FilterRule]> = rules.into();
            let none: Arc<[FilterRule]> = Arc::new([]);
            match session.version {
                bgp::IpVersion::V4 => [rules, none],
                bgp::IpVersion::V6 => [none, rules],
            }
        };
        let own = match ends.local {
            IpAddr::V4(_) => NextHop::from(ends.local),
            IpAddr::V6(address) => NextHop::Ipv6 { address, link_local: ends.link_local },
        };
        Self {
            address: ends.remote,
            link: ends.link,
            router_id: ends.router_id,
            relation,
            import: Import {
                local_as,
                allowed_local_as: session.allowed_local_as,
                local_address: ends.local,
                rules: by_family(session.import_rules().map(|(_, rule)| rule.clone()).collect()),
            },
            export: Export {
                relation,
                local_as,
                next_hop: session.next_hop,
                own: [own, own],
                rules: by_family(session.export_rules().map(|(_, rule)| rule.clone()).collect()),
            },
        }
    }
}

/// Figures of a peer in one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Its routes in the table.
    pub imported: usize,
    /// Of these: the best of their prefix.
    pub preferred: usize,
    /// Routes announced to it.
    pub exported: usize,
    /// Prefixes announced so far.
    pub updates: u64,
    /// Of these: rejected because of a loop or an impossible next hop.
    pub rejected: u64,
    /// Of these: rejected by a filter.
    pub filtered: u64,
    /// Of these: unchanged.
    pub ignored: u64,
    /// Prefixes withdrawn so far.
    pub withdrawals: u64,
    /// Of these: unknown.
    pub withdrawals_ignored: u64,
    /// Announcements sent to it so far.
    pub exports: u64,
    /// Withdrawals sent to it so far.
    pub export_withdrawals: u64,
}

/// A peer and its state in the tables.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) peer: Arc<Peer>,
    /// Whether routes of a family are sent to it.
    pub(crate) listens: [bool; 2],
}

/// Peers with equal announcements.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) export: Arc<Export>,
    pub(crate) peers: Vec<PeerId>,
}

/// All peers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peers {
    known: ByPeer<Known>,
    groups: [Vec<Group>; 2],
}

impl Peers {
    pub(crate) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.known.get(id).map(|known| &*known.peer)
    }

    pub(crate) fn known(&self, id: PeerId) -> Option<&Known> {
        self.known.get(id)
    }

    pub(crate) fn groups(&self, family: Family) -> &[Group] {
        &self.groups[family.index()]
    }

    /// Adds or changes a peer.
    pub(crate) fn set(&mut self, id: PeerId, peer: Peer) {
        match self.known.get_mut(id) {
            Some(known) => known.peer = Arc::new(peer),
            None => {
                self.known.insert(id, Known { peer: Arc::new(peer), listens: [false; 2] });
            }
        }
        self.group();
    }

    pub(crate) fn remove(&mut self, id: PeerId) {
        self.known.remove(id);
        self.group();
    }

    pub(crate) fn listen(&mut self, id: PeerId, family: Family, listens: bool) {
        if let Some(known) = self.known.get_mut(id) {
            known.listens[family.index()] = listens;
        }
        self.group();
    }

    fn group(&mut self) {
        for family in Family::ALL {
            let old = std::mem::take(&mut self.groups[family.index()]);
            let groups = &mut self.groups[family.index()];
            for (id, known) in self.known.iter().filter(|(_, known)| known.listens[family.index()]) {
                let export = &known.peer.export;
                match groups.iter_mut().find(|group: &&mut Group| *group.export == *export) {
                    Some(group) => group.peers.push(id),
                    None => {
                        let kept = old.iter().find(|group| *group.export == *export);
                        let export =
                            kept.map_or_else(|| Arc::new(export.clone()), |group| group.export.clone());
                        groups.push(Group { export, peers: vec![id] });
                    }
                }
            }
        }
    }
}
