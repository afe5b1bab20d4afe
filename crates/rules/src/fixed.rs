//! Chains that depend only on settings, and the rules in the kernel's own chains that lead to them.

pub(crate) mod beside_bpf;
mod failsafe;
mod filter;
mod forwarding;
mod mangle;
pub(crate) mod nat;
mod raw;
mod short_way;

use crate::names;
use crate::renderer::{Renderer, jump};
use crate::tree::{Action, Chain, IpVersion, KernelChain, Rule, Table};

impl Renderer {
    /// The chains of a table that depend only on settings.
    #[must_use]
    pub fn fixed_chains(&self, table: Table, version: IpVersion) -> Vec<Chain> {
        match table {
            Table::Filter => self.fixed_filter_chains(version),
            Table::Nat => self.fixed_nat_chains(version),
            Table::Mangle => self.fixed_mangle_chains(version),
            Table::Raw => self.fixed_raw_chains(version),
        }
    }

    /// The rules in the kernel's own chains of a table.
    #[must_use]
    pub fn kernel_chains(&self, table: Table) -> Vec<KernelChain> {
        let inserted = |name, target: &str| KernelChain {
            name,
            inserted: vec![Rule::always(jump(target))],
            appended: Vec::new(),
        };
        match table {
            Table::Raw => {
                vec![inserted("PREROUTING", names::PREROUTING), inserted("OUTPUT", names::OUTPUT)]
            }
            Table::Mangle => {
                vec![inserted("PREROUTING", names::PREROUTING), inserted("POSTROUTING", names::POSTROUTING)]
            }
            Table::Nat => vec![
                inserted("PREROUTING", names::PREROUTING),
                inserted("OUTPUT", names::OUTPUT),
                // After kube-proxy, which clears its mark where it masquerades: a mark that is still set would be
                // copied to the outer packet of a tunnel, which would then be masqueraded, too.
                KernelChain {
                    name: "POSTROUTING",
                    inserted: Vec::new(),
                    appended: vec![Rule::always(jump(names::POSTROUTING))],
                },
            ],
            Table::Filter => vec![
                inserted("INPUT", names::INPUT),
                KernelChain { appended: self.end_of_forward(), ..inserted("FORWARD", names::FORWARD) },
                inserted("OUTPUT", names::OUTPUT),
            ],
        }
    }

    /// The end of the kernel's `FORWARD`: packets that policy accepted are allowed here. All others are marked as
    /// forwarded, so that policy of host endpoints for the host's own packets ignores them in mangle `POSTROUTING`.
    fn end_of_forward(&self) -> Vec<Rule> {
        vec![
            Rule::when([self.accepted()], self.filter_allow()).comment("Policy explicitly accepted packet."),
            Rule::always(Action::SetMark(self.config.marks.accept)),
        ]
    }
}
