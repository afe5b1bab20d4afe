//! The sets in use: their definitions and ids, and the number of policies and profiles that name them.

use crate::population::PortProtocol;
use crate::sequencer::SetIndex;
use crate::slab::Slab;
use hashbrown::HashMap;
use messages::{IpSetId, IpSetType};
use selector::{Selector, unique_id};

/// The definition of a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SetSpec {
    /// The networks of all items that a selector matches.
    Selector(Selector),
    /// The addresses of all items that a selector matches, with their ports of this name.
    NamedPort { selector: Selector, protocol: PortProtocol, name: String },
    /// The endpoints of a service (`namespace/name`), with or without its ports.
    Service { service: String, with_ports: bool },
    /// The addresses of all items that a selector matches, under a fixed id.
    Fixed { id: &'static str, selector: Selector },
}

impl SetSpec {
    fn id(&self) -> IpSetId {
        match self {
            Self::Selector(selector) => selector.unique_id().into(),
            Self::NamedPort { selector, protocol, name } => {
                unique_id("n", &format!("{},{},{name}", selector.unique_id(), protocol.as_str())).into()
            }
            Self::Service { service, with_ports: true } => unique_id("svc", service).into(),
            Self::Service { service, with_ports: false } => unique_id("svcnoport", service).into(),
            Self::Fixed { id, .. } => (*id).into(),
        }
    }

    /// The selector of its members, if it has one.
    pub(crate) fn selector(&self) -> Option<&Selector> {
        match self {
            Self::Selector(selector) | Self::NamedPort { selector, .. } | Self::Fixed { selector, .. } => {
                Some(selector)
            }
            Self::Service { .. } => None,
        }
    }

    /// The kind of its members.
    pub(crate) fn set_type(&self) -> IpSetType {
        match self {
            Self::Selector(_) | Self::Service { with_ports: false, .. } => IpSetType::Net,
            Self::NamedPort { .. } | Self::Service { with_ports: true, .. } => IpSetType::IpAndPort,
            Self::Fixed { .. } => IpSetType::Ip,
        }
    }
}

#[derive(Debug)]
struct Row {
    id: IpSetId,
    references: u32,
    is_service: bool,
}

/// The sets in use.
#[derive(Debug, Default)]
pub(crate) struct SetRegistry {
    rows: Slab<Row, SetIndex>,
    by_id: HashMap<IpSetId, SetIndex>,
    new: Vec<(SetIndex, IpSetId, SetSpec)>,
    idle: Vec<SetIndex>,
}

impl SetRegistry {
    /// Returns the id of a set; if it is in use, the text that all rules share.
    fn id(&self, spec: &SetSpec) -> IpSetId {
        // A plain selector knows its id, and most sets are of plain selectors.
        let known = match spec {
            SetSpec::Selector(selector) => {
                self.by_id.get_key_value(selector.unique_id()).map(|(id, _)| id.clone())
            }
            _ => None,
        };
        known.unwrap_or_else(|| {
            let id = spec.id();
            self.by_id.get_key_value(&id).map_or(id, |(id, _)| id.clone())
        })
    }

    /// Returns the set, with one more reference to it.
    pub(crate) fn acquire(&mut self, spec: SetSpec) -> (SetIndex, IpSetId) {
        let id = self.id(&spec);
        if let Some(&set) = self.by_id.get(&id)
            && let Some(row) = self.rows.get_mut(set)
        {
            row.references += 1;
            return (set, row.id.clone());
        }
        let is_service = matches!(spec, SetSpec::Service { .. });
        let set = self.rows.insert(Row { id: id.clone(), references: 1, is_service });
        self.by_id.insert(id.clone(), set);
        self.new.push((set, id.clone(), spec));
        (set, id)
    }

    /// Returns the sets, each with one more reference to it.
    pub(crate) fn acquire_all(&mut self, specs: Vec<SetSpec>) -> Box<[SetIndex]> {
        specs.into_iter().map(|spec| self.acquire(spec).0).collect()
    }

    /// The ids of sets that are in use.
    pub(crate) fn names(&self, sets: &[SetIndex]) -> Vec<IpSetId> {
        sets.iter().filter_map(|set| Some(self.rows.get(*set)?.id.clone())).collect()
    }

    /// Releases a reference. The set stays until [`SetRegistry::take_idle`].
    pub(crate) fn release(&mut self, set: SetIndex) {
        if let Some(row) = self.rows.get_mut(set) {
            row.references -= 1;
            if row.references == 0 {
                self.idle.push(set);
            }
        }
    }

    /// Returns the sets that came into use since the last call.
    pub(crate) fn take_new(&mut self) -> Vec<(SetIndex, IpSetId, SetSpec)> {
        std::mem::take(&mut self.new)
    }

    /// Drops the sets that are no longer used and returns them, and whether each is of a service.
    pub(crate) fn take_idle(&mut self) -> Vec<(SetIndex, bool)> {
        let mut gone = Vec::new();
        for set in std::mem::take(&mut self.idle) {
            if self.rows.get(set).is_some_and(|row| row.references == 0)
                && let Some(row) = self.rows.remove(set)
            {
                self.by_id.remove(&row.id);
                gone.push((set, row.is_service));
            }
        }
        gone
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }
}
