//! The short way of packets: the rules in the kernel's own chains where policies are compiled, and neither a host
//! endpoint nor a DSCP mark needs the rest. Only for nftables, where those of the kernel's chains that stay empty are
//! left out.
//!
//! It decides like the other chains. It must not be used with settings that need what it leaves out
//! ([`Renderer::has_short_way`]).

use crate::names;
use crate::renderer::{Renderer, goto, interface, jump};
use crate::tree::{Chain, IpVersion, KernelChain, Match, Rule, Side, Table};

impl Renderer {
    /// Whether the settings allow the short way: policies are compiled, and nothing needs a chain that it leaves out.
    #[must_use]
    pub fn has_short_way(&self) -> bool {
        let config = &self.config;
        self.is_nftables()
            && self.compiles_policies()
            && !config.ipvs_support
            && config.openstack.is_none()
            && config.istio_ambient_dscp.is_none()
    }

    /// The rules of the kernel's own chains for the short way. The mangle table is only used for host endpoints and
    /// DSCP marks, so it has none.
    #[must_use]
    pub fn short_kernel_chains(&self, table: Table, version: IpVersion) -> Vec<KernelChain> {
        let mut hooks = self.kernel_chains(table);
        for hook in &mut hooks {
            match (table, hook.name) {
                (Table::Raw, "PREROUTING") => hook.inserted = self.short_raw_prerouting(version),
                (Table::Filter, "FORWARD") => hook.inserted = self.short_forward(version),
                (Table::Mangle, _) => hook.inserted.clear(),
                _ => {}
            }
        }
        hooks
    }

    /// Only reached when the route back to a workload is not through its interface, which is nearly never.
    #[must_use]
    pub fn rpf_failed_chain(&self) -> Chain {
        let rules = vec![Rule::always(jump(names::RPF_SKIP)), Rule::always(self.deny(Table::Raw).into())];
        Chain::new(names::RPF_FAILED, rules)
    }

    fn short_raw_prerouting(&self, version: IpVersion) -> Vec<Rule> {
        let mut rules = self.raw_beginning(version);
        rules.extend(self.workload_interfaces().map(|from| {
            Rule::when([interface(Side::In, from), Match::ReversePathFailed], goto(names::RPF_FAILED))
        }));
        rules
    }

    /// Marks were cleared in the raw table, and only host endpoints set marks between there and here.
    fn short_forward(&self, version: IpVersion) -> Vec<Rule> {
        let mut rules: Vec<Rule> = self.flow_offload(version).into_iter().collect();
        rules.extend(self.workload_policy());
        rules.push(Rule::always(jump(names::CIDR_BLOCK)));
        rules
    }
}
