//! The few settings of Felix that decide about packets, for one node: those of the cluster, overridden by the node's
//! own.
//!
//! Settings from a node's environment or file are not in the datastore; callers who know them use
//! [`crate::Cluster::set_endpoint_to_host_action`].

use crate::cluster::Cluster;
use api::{FelixConfigurationSpec, Kind, Resource};
use ipnet::IpNet;

/// What happens to packets from a workload to its own host after policy allowed them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToHost {
    /// They are dropped.
    #[default]
    Drop,
    /// They pass.
    Accept,
    /// The host's own rules decide.
    Return,
}

impl ToHost {
    /// The action with this name; case is ignored.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "drop" => Some(Self::Drop),
            "accept" => Some(Self::Accept),
            "return" => Some(Self::Return),
            _ => None,
        }
    }

    /// The name, as the setting spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drop => "Drop",
            Self::Accept => "Accept",
            Self::Return => "Return",
        }
    }
}

/// A port that host endpoints never block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failsafe {
    pub(crate) protocol: u8,
    pub(crate) port: u16,
    pub(crate) net: Option<IpNet>,
}

/// The settings that apply to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// `DefaultEndpointToHostAction`
    pub endpoint_to_host: ToHost,
    pub(crate) failsafe_inbound: Vec<Failsafe>,
    pub(crate) failsafe_outbound: Vec<Failsafe>,
    pub(crate) vxlan_port: u16,
    pub(crate) allow_vxlan_from_workloads: bool,
    pub(crate) allow_ipip_from_workloads: bool,
}

const TCP: u8 = 6;
const UDP: u8 = 17;

impl Default for NodeSettings {
    fn default() -> Self {
        let port = |protocol| move |port| Failsafe { protocol, port, net: None };
        let (tcp, udp) = (port(TCP), port(UDP));
        let both = [179, 2379, 2380, 5473, 6443, 6666, 6667].map(tcp);
        Self {
            endpoint_to_host: ToHost::Drop,
            failsafe_inbound: [tcp(22), udp(68)].into_iter().chain(both.clone()).collect(),
            failsafe_outbound: [udp(53), udp(67)].into_iter().chain(both).collect(),
            vxlan_port: 4789,
            allow_vxlan_from_workloads: false,
            allow_ipip_from_workloads: false,
        }
    }
}

impl NodeSettings {
    /// The settings of a node.
    #[must_use]
    pub(crate) fn of(cluster: &Cluster, node: &str) -> Self {
        let mut settings = Self::default();
        for name in ["default".to_owned(), format!("node.{node}")] {
            if let Some(Resource::FelixConfiguration(object)) =
                cluster.get(Kind::FelixConfiguration, "", &name)
            {
                settings.overlay(&object.spec);
            }
        }
        if let Some(action) = cluster.endpoint_to_host_action() {
            settings.endpoint_to_host = action;
        }
        settings
    }

    fn overlay(&mut self, spec: &FelixConfigurationSpec) {
        if let Some(action) = ToHost::from_name(spec.default_endpoint_to_host_action.as_str()) {
            self.endpoint_to_host = action;
        }
        for (from, to) in [
            (&spec.failsafe_inbound_host_ports, &mut self.failsafe_inbound),
            (&spec.failsafe_outbound_host_ports, &mut self.failsafe_outbound),
        ] {
            if let Some(ports) = from {
                *to = ports
                    .iter()
                    .map(|port| Failsafe {
                        protocol: match port.protocol.to_ascii_lowercase().as_str() {
                            "udp" => UDP,
                            "sctp" => 132,
                            _ => TCP,
                        },
                        port: port.port,
                        net: port.net.parse().ok().map(|network| network.masked()),
                    })
                    .collect();
            }
        }
        if let Some(port) = spec.vxlan_port.and_then(|port| u16::try_from(port).ok()) {
            self.vxlan_port = port;
        }
        if let Some(allow) = spec.allow_vxlan_packets_from_workloads {
            self.allow_vxlan_from_workloads = allow;
        }
        if let Some(allow) = spec.allow_ipip_packets_from_workloads {
            self.allow_ipip_from_workloads = allow;
        }
    }
}
