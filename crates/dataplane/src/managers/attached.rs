//! Where eBPF programs judge packets: leads packets only to workloads whose interfaces have programs.

use super::{Manager, News, World};
use crate::desired::Desired;
use delta::Changes;
use messages::InterfaceName;
use rules::tree::{ChainName, Table};
use rules::{Backend, names};
use std::collections::BTreeSet;
use std::time::Instant;

/// The workload interfaces that have programs.
#[derive(Debug, Default)]
pub(crate) struct AttachedWorkloads {
    attached: BTreeSet<InterfaceName>,
    changed: Changes<InterfaceName, ()>,
    is_written: bool,
}

impl Manager for AttachedWorkloads {
    fn hear(&mut self, news: &News<'_>, _: Instant, _: &mut Desired) {
        if let News::Attached(name, is_attached) = *news {
            match is_attached {
                true => self.attached.insert(name.clone()),
                false => self.attached.remove(name),
            };
            self.changed.set(name.clone(), is_attached.then_some(()));
        }
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        let is_first = !std::mem::replace(&mut self.is_written, true);
        let changed = std::mem::take(&mut self.changed);
        if !is_first && world.renderer.backend() == Backend::Nftables {
            // One entry for each interface, however many there are.
            for (name, is_attached) in changed {
                for one in &mut desired.versions {
                    let chain = is_attached.map(|()| ChainName::from(names::ATTACHED));
                    one.rules.set_map_entry(Table::Filter, names::TO_ATTACHED, &name, chain);
                }
            }
        } else if is_first || !changed.is_empty() {
            let dispatch = world.renderer.attached_dispatch(&self.attached);
            for one in &mut desired.versions {
                dispatch.maps.iter().for_each(|map| one.rules.set_map(Table::Filter, map.clone()));
                one.rules.define_all(Table::Filter, dispatch.chains.clone());
            }
        }
    }
}
