//! Chains and hooks that follow from settings alone, and from whether eBPF programs judge packets. They are written once for
//! each.

use super::{Judge, Manager, News, World};
use crate::desired::Desired;
use rules::tree::Table;
use std::time::Instant;

/// The fixed chains.
#[derive(Debug, Default)]
pub(crate) struct FixedChains {
    /// What they were written for.
    written: Option<Judge>,
}

impl Manager for FixedChains {
    fn hear(&mut self, _: &News<'_>, _: Instant, _: &mut Desired) {}

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        if self.written.replace(world.judge) == Some(world.judge) {
            return;
        }
        for one in &mut desired.versions {
            for layer in Table::ALL {
                for hook in world.renderer.kernel_chains(layer) {
                    one.rules.set_hook(layer, hook);
                }
                let chains = match world.judge {
                    Judge::Rules => world.renderer.fixed_chains(layer, one.version),
                    Judge::RulesBeforePrograms => world.renderer.fixed_chains_before_bpf(layer, one.version),
                    Judge::Programs => world.renderer.fixed_chains_beside_bpf(layer, one.version),
                };
                one.rules.define_all(layer, chains);
            }
        }
        desired.arp.set_hook(Table::Filter, world.renderer.arp_kernel_chain());
    }
}
