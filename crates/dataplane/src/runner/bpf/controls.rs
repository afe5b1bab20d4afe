//! Workloads' limits of packet rates and connections, for programs. Pure.

use super::Owners;
use api::QoSControls;
use bpf_driver::{Interface, WantedLimits};
use messages::{InterfaceName, ToDataplane, WorkloadEndpointId};
use std::collections::BTreeMap;

/// The part of workloads' controls that programs enforce; queues of the kernel and netfilter enforce the rest.
#[derive(Debug, Default)]
pub(super) struct Controls(BTreeMap<WorkloadEndpointId, Box<QoSControls>>);

fn has_limits(controls: &QoSControls) -> bool {
    let all = [
        controls.ingress_max_connections,
        controls.egress_max_connections,
        controls.ingress_packet_rate,
        controls.egress_packet_rate,
    ];
    all.iter().any(|limit| *limit > 0)
}

impl Controls {
    pub(super) fn hear(&mut self, message: &ToDataplane) {
        match message {
            ToDataplane::WorkloadEndpointUpdate(id, endpoint) => {
                match endpoint.qos_controls.as_ref().filter(|controls| has_limits(controls)) {
                    Some(controls) => _ = self.0.insert(id.clone(), controls.clone()),
                    None => _ = self.0.remove(id),
                }
            }
            ToDataplane::WorkloadEndpointRemove(id) => _ = self.0.remove(id),
            _ => {}
        }
    }

    /// Whether programs limit a workload.
    pub(super) fn is_limited(&self, id: &WorkloadEndpointId) -> bool {
        self.0.contains_key(id)
    }

    /// The limits of the existing interfaces.
    pub(super) fn limits(
        &self,
        wanted: &BTreeMap<InterfaceName, Interface>,
        owners: &Owners<'_>,
    ) -> WantedLimits {
        let mut all = WantedLimits::default();
        if self.0.is_empty() {
            return all;
        }
        let rate = |rate: i64, burst: i64| {
            (u64::try_from(rate).unwrap_or_default(), u64::try_from(burst).unwrap_or_default())
        };
        let count = |limit: i64| u32::try_from(limit.max(0)).unwrap_or(u32::MAX);
        for (name, interface) in wanted {
            let Some(one) = owners.workloads.get(name).and_then(|id| self.0.get(id)) else { continue };
            let to = rate(one.ingress_packet_rate, one.ingress_packet_burst);
            all.add(interface.index, true, to, count(one.ingress_max_connections));
            let from = rate(one.egress_packet_rate, one.egress_packet_burst);
            all.add(interface.index, false, from, count(one.egress_max_connections));
        }
        all
    }
}
