//! A session as the tables see it: who is at the other end, and what may pass in each direction.

use crate::by_peer::ByPeer;
use crate::route::{Interface, PeerId};
use bgp::intent::{FilterRule, NextHop as NextHopMode, Session};
use bgp_wire::{Asn, Family, NextHop, RouterId};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// How the ends of a session stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// In different systems.
    External,
    /// In one system.
    Internal,
    /// In one system, and the other end is a client of this reflector in this cluster.
    Client(RouterId),
}

impl Relation {
    /// Whether both ends are in one system.
    #[must_use]
    pub fn is_internal(self) -> bool {
        !matches!(self, Self::External)
    }

    /// The cluster of a client.
    #[must_use]
    pub fn cluster(self) -> Option<RouterId> {
        match self {
            Self::Client(cluster) => Some(cluster),
            _ => None,
        }
    }
}

/// The other end of a session, once its OPEN is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// The link of a link-local address.
    pub link: Option<Interface>,
    /// Its identifier.
    pub router_id: RouterId,
    /// How it stands to us.
    pub relation: Relation,
    /// What may come in.
    pub import: Import,
    /// What may go out, and how.
    pub export: Export,
}

/// What may come in from a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// Our AS number on this session.
    pub local_as: Asn,
    /// How often it may be in the path.
    pub allowed_local_as: u32,
    /// Our address on this session, which cannot be a next hop.
    pub local_address: IpAddr,
    /// Rules by family ([`Family::index`]), the first that matches decides.
    pub rules: [Arc<[FilterRule]>; 2],
}

/// What may go out to a peer. Peers with equal values here get equal announcements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// How the other end stands to us.
    pub relation: Relation,
    /// Our AS number on this session.
    pub local_as: Asn,
    /// What is written as next hop.
    pub next_hop: NextHopMode,
    /// Our own next hop, by family ([`Family::index`]).
    pub own: [NextHop; 2],
    /// Rules by family ([`Family::index`]), the first that matches decides.
    pub rules: [Arc<[FilterRule]>; 2],
}

/// The two ends of a connection that is up.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Our address.
    pub local: IpAddr,
    /// Our link-local address on the link to the peer, if that is how it is reached.
    pub link_local: Option<Ipv6Addr>,
    /// The peer's address.
    pub remote: IpAddr,
    /// The link of a link-local peer.
    pub link: Option<Interface>,
    /// The peer's identifier.
    pub router_id: RouterId,
}

impl Peer {
    /// The peer of a session of the intent, over this connection.
    #[must_use]
    pub fn of_session(session: &Session, ends: Ends) -> Self {
        let relation = match session.reflector_client {
            _ if !session.is_internal() => Relation::External,
            Some(cluster) => Relation::Client(RouterId::from(cluster.0)),
            None => Relation::Internal,
        };
        let local_as = Asn(session.local_as.0);
        // The rules of the session's family; a family that it does not have rules for passes none of them.
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
    /// Those that are the best of their prefix.
    pub preferred: usize,
    /// Routes that it has from us.
    pub exported: usize,
    /// Announced prefixes so far.
    pub updates: u64,
    /// Of these: not taken, because of a loop or a next hop that cannot be one.
    pub rejected: u64,
    /// Of these: not taken, because of a filter.
    pub filtered: u64,
    /// Of these: known already.
    pub ignored: u64,
    /// Withdrawn prefixes so far.
    pub withdrawals: u64,
    /// Of these: not known.
    pub withdrawals_ignored: u64,
    /// Announcements to it so far.
    pub exports: u64,
    /// Withdrawals to it so far.
    pub export_withdrawals: u64,
}

/// A peer and what the tables keep about it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) peer: Arc<Peer>,
    /// Whether it gets routes of a family.
    pub(crate) listens: [bool; 2],
}

/// Peers that get equal announcements.
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
