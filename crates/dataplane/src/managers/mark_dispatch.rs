//! With IPVS, packets get the mark of the endpoint they came from; these are the chains that dispatch to the marks.

use super::{ChainSet, Manager, News, World};
use crate::desired::Desired;
use rules::tree::Table;
use std::time::Instant;

/// The dispatch to endpoints' marks.
#[derive(Debug, Default)]
pub(crate) struct MarkDispatch {
    chains: ChainSet,
    is_started: bool,
}

impl Manager for MarkDispatch {
    fn hear(&mut self, _: &News<'_>, _: Instant, _: &mut Desired) {}

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        let is_first = !std::mem::replace(&mut self.is_started, true);
        let changed = is_first || world.changed.hosts || !world.changed.workloads.is_empty();
        if !changed || !world.renderer.config().ipvs_support {
            return;
        }
        let chains = world.renderer.endpoint_mark_dispatch(&mut world.marks, &world.workloads, &world.hosts);
        self.chains.publish(desired, chains.into_iter().map(|chain| (Table::Filter, chain)).collect());
    }
}
