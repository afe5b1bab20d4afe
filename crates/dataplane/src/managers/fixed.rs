//! Chains and hooks that follow from settings alone. They are written once.

use super::{Manager, News, World};
use crate::desired::Desired;
use rules::tree::Table;
use std::time::Instant;

/// The fixed chains.
#[derive(Debug, Default)]
pub(crate) struct FixedChains {
    is_written: bool,
}

impl Manager for FixedChains {
    fn hear(&mut self, _: &News<'_>, _: Instant, _: &mut Desired) {}

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        if std::mem::replace(&mut self.is_written, true) {
            return;
        }
        for one in &mut desired.versions {
            for layer in Table::ALL {
                for hook in world.renderer.kernel_chains(layer) {
                    one.rules.set_hook(layer, hook);
                }
                one.rules.define_all(layer, world.renderer.fixed_chains(layer, one.version));
            }
        }
        desired.arp.set_hook(Table::Filter, world.renderer.arp_kernel_chain());
    }
}
