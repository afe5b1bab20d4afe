//! BGPConfiguration: how nodes speak BGP. `default` applies to all of them, `node.<name>` to one.

use super::felixconfiguration::{EnabledOrDisabled, LogSeverity, ProgramClusterRoutes};
use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::resources::setting_checks::{check_community, check_duration, respell};
use crate::rules::{HasRules, Reason, Rule};
use crate::scalars::names::{check_metadata, is_dns_subdomain, is_ignored_interface};
use crate::scalars::{ASNumber, Cidr, Duration, Ip};
use crate::text::{Written, string_enum};
use crate::words::GLOBAL_NAME;
use api_derive::resource_struct;

/// How nodes speak BGP.
pub type BGPConfiguration = Object<BGPConfigurationSpec>;

/// How nodes speak BGP.
#[resource_struct(rules)]
pub struct BGPConfigurationSpec {
    /// The least severe message that is logged.
    #[field(default = "\"Info\"")]
    pub log_severity_screen: LogSeverity,
    /// Whether every node peers with every other. Default true.
    pub node_to_node_mesh_enabled: Option<bool>,
    /// The AS number of nodes that have none of their own. Default 64512.
    pub as_number: Option<ASNumber>,
    /// Networks whose load balancer addresses are advertised.
    #[field(name = "serviceLoadBalancerIPs", list = "atomic")]
    pub service_load_balancer_ips: Vec<ServiceLoadBalancerIPBlock>,
    /// Networks whose external service addresses are advertised.
    #[field(name = "serviceExternalIPs", list = "atomic")]
    pub service_external_ips: Vec<ServiceExternalIPBlock>,
    /// Networks of cluster addresses that are advertised.
    #[field(name = "serviceClusterIPs", list = "atomic")]
    pub service_cluster_ips: Vec<ServiceClusterIPBlock>,
    /// Whether load balancer networks are advertised whole or address by address.
    #[field(default = "\"Enabled\"")]
    pub service_load_balancer_aggregation: Option<Written<EnabledOrDisabled>>,
    /// Names for BGP communities.
    #[field(max_items = 500, list = "atomic")]
    pub communities: Vec<Community>,
    /// Communities that advertised networks carry.
    #[field(max_items = 500, list = "atomic")]
    pub prefix_advertisements: Vec<PrefixAdvertisement>,
    /// The port that BGP listens on. Default 179.
    #[field(min = 1, max = 65535)]
    pub listen_port: u16,
    /// The password of sessions in the mesh.
    pub node_mesh_password: Option<BGPPassword>,
    /// How long a restarting node of the mesh is waited for. Default 120s.
    pub node_mesh_max_restart_time: Option<Duration>,
    /// Whether BGP listens on all addresses or on the node's own. Default None.
    pub bind_mode: Option<BindMode>,
    /// Interfaces whose routes are left alone; `*` stands for any rest.
    #[field(list = "set")]
    pub ignored_interfaces: Vec<String>,
    /// The node's address for IPv4 sessions with its own workloads.
    #[field(name = "localWorkloadPeeringIPV4")]
    pub local_workload_peering_ipv4: Ip,
    /// The node's address for IPv6 sessions with its own workloads.
    #[field(name = "localWorkloadPeeringIPV6")]
    pub local_workload_peering_ipv6: Ip,
    /// For which pools without VXLAN BGP, not Felix, makes the routes to other nodes. Default EnabledNoEncapOnly.
    pub program_cluster_routes: Option<Written<ProgramClusterRoutes>>,
    /// The metric of Felix's IPv4 routes, as Felix has it. Default 1024.
    #[field(min = 1, max = 2147483646)]
    pub ipv4_normal_route_priority: Option<i64>,
    /// The metric of Felix's IPv6 routes, as Felix has it. Default 1024.
    #[field(min = 1, max = 2147483646)]
    pub ipv6_normal_route_priority: Option<i64>,
}

string_enum! {
    /// The addresses that BGP listens on.
    BindMode { None = "None", NodeIP = "NodeIP" }
}

/// A network of load balancer addresses.
#[resource_struct(atomic)]
pub struct ServiceLoadBalancerIPBlock {
    /// The network.
    #[field(format = "cidr")]
    pub cidr: Cidr,
}

/// A network of external service addresses.
#[resource_struct(atomic)]
pub struct ServiceExternalIPBlock {
    /// The network.
    #[field(format = "cidr")]
    pub cidr: Cidr,
}

/// A network of cluster addresses.
#[resource_struct(atomic)]
pub struct ServiceClusterIPBlock {
    /// The network.
    #[field(format = "cidr")]
    pub cidr: Cidr,
}

/// A name for a BGP community.
#[resource_struct(atomic)]
pub struct Community {
    /// The name.
    #[field(max_len = 253)]
    pub name: String,
    /// The community: `aa:nn` with 16 bits each, or `aa:nn:mm` with 32 bits each.
    #[field(max_len = 40, pattern = r"^(\d+):(\d+)$|^(\d+):(\d+):(\d+)$")]
    pub value: String,
}

/// The communities of one advertised network.
#[resource_struct(atomic)]
pub struct PrefixAdvertisement {
    /// The network.
    #[field(format = "cidr")]
    pub cidr: Cidr,
    /// Communities, by value or by a name defined beside.
    #[field(max_items = 50, list = "atomic")]
    pub communities: Vec<String>,
}

/// Where a password is kept.
#[resource_struct]
pub struct BGPPassword {
    /// A key of a secret in the namespace of the node's pod.
    pub secret_key_ref: Option<SecretKeySelector>,
}

/// A key of a secret.
#[resource_struct(atomic)]
pub struct SecretKeySelector {
    /// The secret.
    #[field(default = "\"\"")]
    pub name: String,
    /// The key.
    #[field(always, required)]
    pub key: String,
    /// Whether the secret may be missing.
    pub optional: Option<bool>,
}

impl HasRules for BGPConfigurationSpec {
    fn rules() -> &'static [Rule<Self>] {
        &[
            Rule {
                cel: "!has(self.nodeMeshPassword) || !has(self.nodeToNodeMeshEnabled) || self.nodeToNodeMeshEnabled",
                message: "nodeMeshPassword cannot be set when nodeToNodeMeshEnabled is false",
                reason: Reason::Forbidden,
                holds: |spec| {
                    spec.node_mesh_password.is_none() || spec.node_to_node_mesh_enabled != Some(false)
                },
            },
            Rule {
                cel: "!has(self.nodeMeshMaxRestartTime) || !has(self.nodeToNodeMeshEnabled) \
                      || self.nodeToNodeMeshEnabled",
                message: "nodeMeshMaxRestartTime cannot be set when nodeToNodeMeshEnabled is false",
                reason: Reason::Forbidden,
                holds: |spec| {
                    spec.node_mesh_max_restart_time.is_none() || spec.node_to_node_mesh_enabled != Some(false)
                },
            },
            Rule {
                cel: "!has(self.communities) || self.communities.size() == 0 \
                      || (has(self.prefixAdvertisements) && self.prefixAdvertisements.size() > 0)",
                message: "communities are defined but not used in prefixAdvertisements",
                reason: Reason::Invalid,
                holds: |spec| spec.communities.is_empty() || !spec.prefix_advertisements.is_empty(),
            },
        ]
    }
}

impl Spec for BGPConfigurationSpec {
    const KIND: Kind = Kind::BGPConfiguration;
    type Status = NoStatus;

    fn set_defaults(&mut self, _metadata: &mut ObjectMeta) {
        respell(&mut self.node_mesh_max_restart_time);
    }

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        self.check_rules(&spec, errors);
        if metadata.name != GLOBAL_NAME {
            self.check_only_on_default(&spec, errors);
        }
        let restart_time = spec.child("nodeMeshMaxRestartTime");
        check_duration(self.node_mesh_max_restart_time.as_ref(), &restart_time, errors);
        self.check_networks(&spec, errors);
        self.check_communities(&spec, errors);
        for (index, name) in self.ignored_interfaces.iter().enumerate() {
            if !is_ignored_interface(name) {
                let path = spec.child("ignoredInterfaces").index(index);
                errors.add(path, name, "is not the name of an interface, and not a part of one with '*'");
            }
        }
        for (name, address, is_v4) in [
            ("localWorkloadPeeringIPV4", &self.local_workload_peering_ipv4, true),
            ("localWorkloadPeeringIPV6", &self.local_workload_peering_ipv6, false),
        ] {
            if !address.is_empty() && !address.parse().is_ok_and(|ip| ip.is_ipv4() == is_v4) {
                let version = if is_v4 { "IPv4" } else { "IPv6" };
                errors.add(spec.child(name), address, format!("must be a valid {version} address"));
            }
        }
    }
}

impl BGPConfigurationSpec {
    fn check_only_on_default(&self, spec: &FieldPath, errors: &mut FieldErrors) {
        for (name, title, is_set) in [
            ("nodeToNodeMeshEnabled", "nodeToNodeMeshEnabled", self.node_to_node_mesh_enabled.is_some()),
            ("asNumber", "ASNumber", self.as_number.is_some()),
            ("serviceLoadBalancerIPs", "ServiceLoadBalancerIPs", !self.service_load_balancer_ips.is_empty()),
            ("serviceExternalIPs", "ServiceExternalIPs", !self.service_external_ips.is_empty()),
            ("serviceClusterIPs", "ServiceClusterIPs", !self.service_cluster_ips.is_empty()),
            ("nodeMeshPassword", "nodeMeshPassword", self.node_mesh_password.is_some()),
            ("nodeMeshMaxRestartTime", "nodeMeshMaxRestartTime", self.node_mesh_max_restart_time.is_some()),
        ] {
            let reason = format!("Cannot set {title} on a non default BGP Configuration.");
            errors.require(!is_set, spec.child(name), "", reason);
        }
    }

    fn check_networks(&self, spec: &FieldPath, errors: &mut FieldErrors) {
        let load_balancer = self.service_load_balancer_ips.iter().map(|block| &block.cidr).enumerate();
        let external = self.service_external_ips.iter().map(|block| &block.cidr).enumerate();
        let cluster = self.service_cluster_ips.iter().map(|block| &block.cidr).enumerate();
        let named = |name: &'static str| move |(index, cidr)| (name, index, cidr);
        for (name, index, cidr) in load_balancer
            .map(named("serviceLoadBalancerIPs"))
            .chain(external.map(named("serviceExternalIPs")))
            .chain(cluster.map(named("serviceClusterIPs")))
        {
            if !cidr.is_empty()
                && let Err(reason) = cidr.parse_strict()
            {
                errors.add(spec.child(name).index(index).child("cidr"), cidr, reason);
            }
        }
    }

    fn check_communities(&self, spec: &FieldPath, errors: &mut FieldErrors) {
        for (index, community) in self.communities.iter().enumerate() {
            let path = spec.child("communities").index(index);
            if community.name.is_empty() {
                errors.add(path.child("name"), "", "is required");
            } else if !is_dns_subdomain(&community.name) {
                errors.add(
                    path.child("name"),
                    &community.name,
                    "must be lower case words joined by '-' or '.'",
                );
            }
            if let Err(reason) = check_community(&community.value) {
                errors.add(path.child("value"), &community.value, reason);
            }
        }
        for (index, prefix) in self.prefix_advertisements.iter().enumerate() {
            let path = spec.child("prefixAdvertisements").index(index);
            if let Err(reason) = prefix.cidr.parse_strict() {
                errors.add(path.child("cidr"), &prefix.cidr, reason);
            }
            errors.require(!prefix.communities.is_empty(), path.child("communities"), "", "is required");
            for (index, text) in prefix.communities.iter().enumerate() {
                if self.communities.iter().any(|community| community.name == *text) {
                    continue;
                }
                if let Err(reason) = check_community(text) {
                    // Text that is not a community at all can only be meant as a name.
                    let is_value = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
                    let reason = if is_value { reason } else { "community used is invalid or not defined." };
                    errors.add(path.child("communities").index(index), text, reason);
                }
            }
        }
    }
}
