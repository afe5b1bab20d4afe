//! The kinds of encapsulation that the pools require, unless the configuration decides. This is reported once the feed
//! is in sync, and then at each change: before that, a pool that has not arrived yet would look like one that does not
//! exist.

use crate::sequencer::Sequencer;
use api::{IPIPMode, VXLANMode};
use ipnet::IpNet;
use messages::Encapsulation;
use model::feed::{IpPool, Status};
use std::collections::BTreeMap;

/// The configuration's settings for encapsulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncapsulationSettings {
    /// `IpInIpEnabled`: if set, overrides the pools for IP in IP.
    pub ipip: Option<bool>,
    /// `VXLANEnabled`: if set, overrides the pools for VXLAN between IPv4 hosts.
    pub vxlan: Option<bool>,
    /// Whether Felix programs the routes of pools without encapsulation, from `ProgramClusterRoutes`.
    pub program_no_encap_routes: bool,
}

/// The encapsulation that all pools together require.
#[derive(Clone, Debug, Default)]
pub struct EncapsulationNeed {
    settings: EncapsulationSettings,
    pools: BTreeMap<IpNet, Encapsulation>,
}

impl EncapsulationNeed {
    /// Starts without pools, under these settings.
    #[must_use]
    pub fn new(settings: EncapsulationSettings) -> Self {
        Self { settings, pools: BTreeMap::new() }
    }

    /// Adds, changes or removes a pool.
    pub fn set_pool(&mut self, cidr: IpNet, modes: Option<(&IPIPMode, &VXLANMode)>) {
        let Some((ipip, vxlan)) = modes else {
            self.pools.remove(&cidr);
            return;
        };
        let ipip = matches!(ipip, IPIPMode::Always | IPIPMode::CrossSubnet);
        let vxlan = matches!(vxlan, VXLANMode::Always | VXLANMode::CrossSubnet);
        let is_v4 = matches!(cidr, IpNet::V4(_));
        let need = Encapsulation {
            ipip,
            vxlan: vxlan && is_v4,
            vxlan_v6: vxlan && !is_v4,
            no_encap: !ipip && !vxlan,
        };
        self.pools.insert(cidr, need);
    }

    /// Returns what is required now.
    #[must_use]
    pub fn need(&self) -> Encapsulation {
        let any = |wants: fn(&Encapsulation) -> bool| self.pools.values().any(wants);
        Encapsulation {
            ipip: self.settings.ipip.unwrap_or_else(|| any(|pool| pool.ipip)),
            vxlan: self.settings.vxlan.unwrap_or_else(|| any(|pool| pool.vxlan)),
            vxlan_v6: any(|pool| pool.vxlan_v6),
            no_encap: self.settings.program_no_encap_routes && any(|pool| pool.no_encap),
        }
    }
}

/// Reports the requirements to the dataplane.
#[derive(Debug, Default)]
pub(crate) struct EncapsulationReport {
    need: EncapsulationNeed,
    is_in_sync: bool,
    sent: Option<Encapsulation>,
}

impl EncapsulationReport {
    /// Starts without a report.
    pub(crate) fn new(settings: EncapsulationSettings) -> Self {
        Self { need: EncapsulationNeed::new(settings), ..Self::default() }
    }

    /// Adds, changes or removes a pool.
    pub(crate) fn on_pool(&mut self, cidr: IpNet, pool: Option<&IpPool>, out: &mut Sequencer) {
        self.need.set_pool(cidr, pool.map(|pool| (&pool.ipip_mode, &pool.vxlan_mode)));
        self.tell(out);
    }

    /// Applies the status of the feed.
    pub(crate) fn on_status(&mut self, status: Status, out: &mut Sequencer) {
        self.is_in_sync |= status == Status::InSync;
        self.tell(out);
    }

    fn tell(&mut self, out: &mut Sequencer) {
        if !self.is_in_sync {
            return;
        }
        let need = self.need.need();
        if self.sent != Some(need) {
            self.sent = Some(need);
            out.encapsulation(need);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::fixtures::{flushed, net, pool};
    use messages::ToDataplane;

    fn need(settings: EncapsulationSettings, pools: &[(&str, &str, &str)]) -> String {
        let mut need = EncapsulationNeed::new(settings);
        for (cidr, ipip, vxlan) in pools {
            need.set_pool(net(cidr), Some((&IPIPMode::from(*ipip), &VXLANMode::from(*vxlan))));
        }
        let Encapsulation { ipip, vxlan, vxlan_v6, no_encap } = need.need();
        [(ipip, "ipip"), (vxlan, "vxlan"), (vxlan_v6, "vxlan6"), (no_encap, "none")]
            .into_iter()
            .filter_map(|(is_set, name)| is_set.then_some(name))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn pools_and_settings() {
        let plain = EncapsulationSettings::default();
        let no_encap = EncapsulationSettings { program_no_encap_routes: true, ..plain };
        let forced = EncapsulationSettings { ipip: Some(true), vxlan: Some(false), ..plain };
        let (v4, v6) = ("10.0.0.0/16", "fd00::/48");
        assert_eq!(need(plain, &[]), "");
        assert_eq!(need(plain, &[(v4, "Always", "Never")]), "ipip");
        assert_eq!(need(plain, &[(v4, "CrossSubnet", "")]), "ipip");
        assert_eq!(need(plain, &[(v4, "Never", "CrossSubnet"), (v6, "", "Always")]), "vxlan vxlan6");
        assert_eq!(need(plain, &[(v4, "", ""), (v6, "Never", "Never")]), "");
        assert_eq!(need(no_encap, &[(v4, "", ""), (v6, "Never", "Always")]), "vxlan6 none");
        assert_eq!(need(forced, &[(v4, "Never", "Always"), (v6, "Never", "Always")]), "ipip vxlan6");
        // The latest state of a pool counts.
        assert_eq!(need(plain, &[(v4, "Always", ""), (v4, "", "Always")]), "vxlan");
    }

    #[test]
    fn reported_when_in_sync_and_on_change() {
        let mut report = EncapsulationReport::new(EncapsulationSettings::default());
        let mut out = Sequencer::default();
        let ipip = pool("10.0.0.0/16", "Always", "Never");
        report.on_pool(ipip.cidr, Some(&ipip), &mut out);
        report.on_status(Status::ResyncInProgress, &mut out);
        assert_eq!(flushed(&mut out), []);
        report.on_status(Status::InSync, &mut out);
        let told = |ipip| [ToDataplane::Encapsulation(Encapsulation { ipip, ..Encapsulation::default() })];
        assert_eq!(flushed(&mut out), told(true));
        report.on_pool(ipip.cidr, Some(&ipip), &mut out);
        report.on_status(Status::InSync, &mut out);
        assert_eq!(flushed(&mut out), []);
        report.on_pool(ipip.cidr, None, &mut out);
        assert_eq!(flushed(&mut out), told(false));
    }
}
