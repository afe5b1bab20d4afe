//! Conditions on an address, or on an address with protocol and port: the sets that it must be in.

use ipnet::IpNet;
use messages::IpSetId;
use model::IpVersion;
use std::sync::Arc;

/// Something that an address may be in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Atom {
    /// A set of the calculation graph.
    Set(IpSetId),
    /// Any of these networks, sorted; the networks of a rule are one atom, so that long lists do not multiply classes.
    Nets(Arc<[IpNet]>),
}

/// The atoms that an address must be in: all of the first, any of the second unless empty, none of the third.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct EndConditions {
    pub(crate) all: Vec<Atom>,
    pub(crate) any: Vec<Atom>,
    pub(crate) none: Vec<Atom>,
}

impl Atom {
    /// The networks of this IP version. The inner `None` means no condition; the outer one means that the list only has
    /// networks of the other version, so that the rule does not apply to packets of this one.
    pub(super) fn of_nets(nets: &[IpNet], version: IpVersion) -> Option<Option<Self>> {
        if nets.is_empty() {
            return Some(None);
        }
        let of_version = nets.iter().filter(|net| IpVersion::of(net) == version);
        let mut own: Vec<IpNet> = of_version.map(IpNet::trunc).collect();
        own.sort_unstable();
        own.dedup();
        (!own.is_empty()).then(|| Some(Self::Nets(own.into())))
    }

    pub(super) fn of_sets(ids: &[IpSetId]) -> impl Iterator<Item = Self> {
        ids.iter().cloned().map(Self::Set)
    }

    /// Whether it contains every address.
    pub(super) fn is_everything(&self) -> bool {
        matches!(self, Self::Nets(nets) if nets.iter().any(|net| net.prefix_len() == 0))
    }

    /// Appends an encoding; different atoms have different encodings.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let text = match self {
            Self::Set(id) => {
                out.push(b's');
                id.to_string()
            }
            Self::Nets(nets) => {
                out.push(b'n');
                nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            }
        };
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    }
}

impl EndConditions {
    /// Sorts everything, so that equal conditions are equal values.
    pub(super) fn sorted(mut self) -> Self {
        for list in [&mut self.all, &mut self.any, &mut self.none] {
            list.sort_unstable();
            list.dedup();
        }
        self
    }

    /// Whether every address matches.
    pub(crate) fn is_always(&self) -> bool {
        self.all.is_empty() && self.any.is_empty() && self.none.is_empty()
    }

    /// Whether an address matches that is in the atoms that `is_in` selects.
    pub(crate) fn meets(&self, is_in: &impl Fn(&Atom) -> bool) -> bool {
        self.all.iter().all(is_in)
            && (self.any.is_empty() || self.any.iter().any(is_in))
            && !self.none.iter().any(is_in)
    }

    /// All atoms, possibly with duplicates.
    pub(crate) fn atoms(&self) -> impl Iterator<Item = &Atom> {
        self.all.iter().chain(&self.any).chain(&self.none)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for list in [&self.all, &self.any, &self.none] {
            out.extend((list.len() as u64).to_le_bytes());
            list.iter().for_each(|atom| atom.encode(out));
        }
    }
}
