//! Chains and hooks that depend only on settings, on whether eBPF programs judge packets, and on whether endpoints need
//! more than the short way. They are written once for each combination.

use super::{Judge, Manager, News, World};
use crate::desired::Desired;
use messages::{HostEndpointName, WorkloadEndpointId};
use rules::tree::Table;
use std::collections::BTreeSet;
use std::time::Instant;

/// The fixed chains.
#[derive(Debug, Default)]
pub(crate) struct FixedChains {
    /// The judge and the short way for which the chains were written.
    written: Option<(Judge, bool)>,
    hosts: BTreeSet<HostEndpointName>,
    /// Workloads with DSCP marks.
    marked: BTreeSet<WorkloadEndpointId>,
}

impl Manager for FixedChains {
    fn hear(&mut self, news: &News<'_>, _: Instant, _: &mut Desired) {
        match *news {
            News::Host(id, Some(_)) => _ = self.hosts.insert(id.clone()),
            News::Host(id, None) => _ = self.hosts.remove(id),
            News::Workload(id, Some(endpoint)) if !endpoint.qos_policies.is_empty() => {
                self.marked.insert(id.clone());
            }
            News::Workload(id, _) => _ = self.marked.remove(id),
            _ => {}
        }
    }

    fn write(&mut self, world: &mut World, desired: &mut Desired) {
        let renderer = &world.renderer;
        let can_be_short = world.judge == Judge::Rules && renderer.has_short_way();
        let is_short = can_be_short && self.hosts.is_empty() && self.marked.is_empty();
        let wanted = (world.judge, is_short);
        if self.written.replace(wanted) == Some(wanted) {
            return;
        }
        for one in &mut desired.versions {
            for layer in Table::ALL {
                let hooks = match is_short {
                    true => renderer.short_kernel_chains(layer, one.version),
                    false => renderer.kernel_chains(layer),
                };
                hooks.into_iter().for_each(|hook| one.rules.set_hook(layer, hook));
                let chains = match world.judge {
                    Judge::Rules => renderer.fixed_chains(layer, one.version),
                    Judge::RulesBeforePrograms => renderer.fixed_chains_before_bpf(layer, one.version),
                    Judge::Programs => renderer.fixed_chains_beside_bpf(layer, one.version),
                };
                one.rules.define_all(layer, chains);
            }
            if can_be_short {
                one.rules.define(Table::Raw, renderer.rpf_failed_chain());
            }
        }
        desired.arp.set_hook(Table::Filter, renderer.arp_kernel_chain());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Interfaces, Judge, Manager, News, World};
    use super::FixedChains;
    use crate::desired::Desired;
    use messages::{HostEndpoint, QosPolicy, WorkloadEndpoint, WorkloadEndpointId};
    use rules::tree::{IpVersion, Table};
    use rules::{Backend, Renderer, RulesConfig};
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn the_short_way_ends_while_an_endpoint_needs_more() {
        let config =
            RulesConfig { backend: Backend::Nftables, compile_policies: true, ..RulesConfig::default() };
        let now = Instant::now();
        let mut world = World::new(Arc::new(Renderer::new(config)), Interfaces::default(), now);
        let mut desired = Desired::new(&[IpVersion::V4]);
        let mut manager = FixedChains::default();
        // Whether mangle has rules; `None` when nothing was written.
        let mut after = |news: Option<News<'_>>, judge| {
            world.judge = judge;
            if let Some(news) = news {
                manager.hear(&news, now, &mut desired);
            }
            manager.write(&mut world, &mut desired);
            let rules = std::mem::take(&mut desired.versions[0].rules);
            rules.hooks.get(&(Table::Mangle, "POSTROUTING")).map(|hook| !hook.inserted.is_empty())
        };
        let (host, rules) = ("host".into(), Judge::Rules);
        let endpoint = Arc::new(HostEndpoint::default());
        assert_eq!(after(None, rules), Some(false), "the short way");
        assert_eq!(after(None, rules), None, "once");
        assert_eq!(after(Some(News::Host(&host, Some(&endpoint))), rules), Some(true));
        assert_eq!(after(Some(News::Host(&host, None)), rules), Some(false));
        let id = WorkloadEndpointId {
            orchestrator: "k8s".into(),
            workload: "a/b".into(),
            endpoint: "eth0".into(),
        };
        let plain = Arc::new(WorkloadEndpoint::default());
        let mark = QosPolicy { destination: String::new(), dscp: 8 };
        let marked = Arc::new(WorkloadEndpoint { qos_policies: vec![mark], ..WorkloadEndpoint::default() });
        assert_eq!(after(Some(News::Workload(&id, Some(&plain))), rules), None);
        assert_eq!(after(Some(News::Workload(&id, Some(&marked))), rules), Some(true));
        assert_eq!(after(Some(News::Workload(&id, Some(&plain))), rules), Some(false));
        assert_eq!(after(None, Judge::Programs), Some(true), "beside eBPF programs");
    }
}
