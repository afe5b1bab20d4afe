//! Facts derived from a configuration, which several parts of Felix need and which must be the same everywhere.

use crate::choices::{EtcdScheme, PolicyMode};
use crate::sources::Sources;
use crate::table::Config;
use crate::values::{Interval, RouteTableRange};
use api::{Allowed, Denied, EnabledOrDisabled, ProgramClusterRoutes};
use messages::Encapsulation;
use settings::DatastoreType;

/// The route tables that are ours by default.
const DEFAULT_ROUTE_TABLES: RouteTableRange = RouteTableRange { min: 1, max: 250 };

/// The flavours of Kubernetes that Felix treats specially.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// No known flavour.
    #[default]
    None,
    /// Amazon's.
    Eks,
    /// Google's.
    Gke,
    /// Microsoft's.
    Aks,
    /// Red Hat's.
    OpenShift,
    /// Mirantis'.
    DockerEnterprise,
}

/// The parameters that exist separately for iptables and nftables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSettings {
    /// What allowed packets do in the filter table.
    pub filter_allow: Allowed,
    /// What allowed packets do in the mangle table.
    pub mangle_allow: Allowed,
    /// What happens to denied packets.
    pub filter_deny: Denied,
    /// The packet mark bits that are ours.
    pub mark_mask: u32,
    /// How often rules are read back and repaired.
    pub refresh_interval: Interval,
    /// How policies of workloads are programmed.
    pub policy_mode: Option<PolicyMode>,
}

/// How to reach the datastore, according to Felix's own parameters; anything absent comes from the client's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatastoreOverrides {
    /// The kind of store.
    pub datastore_type: Option<DatastoreType>,
    /// The URLs of etcd, separated by commas.
    pub etcd_endpoints: Option<String>,
    /// The private key.
    pub etcd_key_file: Option<String>,
    /// The certificate.
    pub etcd_cert_file: Option<String>,
    /// The certificate authority.
    pub etcd_ca_file: Option<String>,
}

impl Config {
    /// The prefixes of the names of workload interfaces.
    pub fn interface_prefixes(&self) -> impl Iterator<Item = &str> {
        self.interface_prefix.split(',')
    }

    /// Whether this is an OpenStack cluster: its type says so, or a parameter is set that only OpenStack uses.
    #[must_use]
    pub fn is_openstack(&self) -> bool {
        self.cluster_type.to_lowercase().contains(api::words::OPENSTACK)
            || !matches!(self.metadata_addr.as_str(), "" | "127.0.0.1")
            || !matches!(self.metadata_port, 0 | 8775)
            || self.interface_prefixes().any(|prefix| prefix == "tap")
    }

    /// The flavour of Kubernetes, by the first word of the cluster's type that names one.
    #[must_use]
    pub fn provider(&self) -> Provider {
        let known = |word: &str| match word.to_lowercase().as_str() {
            // A type without words names no provider, either.
            "" => Some(Provider::None),
            "eks" | "ecs" => Some(Provider::Eks),
            "gke" => Some(Provider::Gke),
            "aks" => Some(Provider::Aks),
            "openshift" => Some(Provider::OpenShift),
            "dockerenterprise" => Some(Provider::DockerEnterprise),
            _ => None,
        };
        self.cluster_type.split(',').find_map(known).unwrap_or_default()
    }

    /// Whether Felix programs the routes of pools with IP in IP.
    #[must_use]
    pub fn programs_ipip_routes(&self) -> bool {
        use ProgramClusterRoutes::{Enabled, EnabledIPIPOnly};
        matches!(self.program_cluster_routes, Some(Enabled | EnabledIPIPOnly))
    }

    /// Whether Felix programs the routes of pools without encapsulation.
    #[must_use]
    pub fn programs_no_encap_routes(&self) -> bool {
        use ProgramClusterRoutes::{Enabled, EnabledNoEncapOnly};
        matches!(self.program_cluster_routes, Some(Enabled | EnabledNoEncapOnly))
    }

    /// Whether anything on this host uses routes to other nodes, given the encapsulation of the pools.
    #[must_use]
    pub fn needs_routes(&self, pools: &Encapsulation) -> bool {
        self.bpf_enabled
            || self.wireguard_enabled
            || self.wireguard_enabled_v6
            || pools.vxlan
            || pools.vxlan_v6
            || pools.no_encap
            || (pools.ipip && self.programs_ipip_routes())
    }

    /// Whether flows are logged anywhere.
    #[must_use]
    pub fn logs_flows(&self) -> bool {
        !self.flow_logs_goldmane_server.is_empty()
            || self.flow_logs_local_reporter == Some(EnabledOrDisabled::Enabled)
    }

    /// Whether this Felix enforces policy, rather than another product.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.variant == "Calico"
    }

    /// The parameters for iptables or for nftables.
    #[must_use]
    pub fn tables(&self, is_nftables: bool) -> TableSettings {
        if is_nftables {
            TableSettings {
                filter_allow: self.nftables_filter_allow_action.unwrap_or(Allowed::Accept),
                mangle_allow: self.nftables_mangle_allow_action.unwrap_or(Allowed::Accept),
                filter_deny: self.nftables_filter_deny_action.unwrap_or(Denied::Drop),
                mark_mask: self.nftables_mark_mask,
                refresh_interval: self.nftables_refresh_interval,
                policy_mode: self.nftables_policy_mode,
            }
        } else {
            TableSettings {
                filter_allow: self.iptables_filter_allow_action.unwrap_or(Allowed::Accept),
                mangle_allow: self.iptables_mangle_allow_action.unwrap_or(Allowed::Accept),
                filter_deny: self.iptables_filter_deny_action.unwrap_or(Denied::Drop),
                mark_mask: self.iptables_mark_mask,
                refresh_interval: self.iptables_refresh_interval,
                policy_mode: self.iptables_policy_mode,
            }
        }
    }

    /// The route tables that are ours: those of the new parameter, else of the old one, else 1 to 250.
    #[must_use]
    pub fn route_tables(&self) -> Vec<RouteTableRange> {
        if self.route_table_ranges.is_empty() {
            vec![self.route_table_range.unwrap_or(DEFAULT_ROUTE_TABLES)]
        } else {
            self.route_table_ranges.clone()
        }
    }

    /// How to reach the datastore, according to the parameters that the file or the environment sets.
    #[must_use]
    pub fn datastore_overrides(&self, sources: &Sources) -> DatastoreOverrides {
        let by_hand = |name: &str| sources.is_set_by_hand(name);
        let file = |name: &str, path: &String| by_hand(name).then(|| path.clone());
        let mut overrides = DatastoreOverrides {
            datastore_type: self.datastore_type.filter(|_| by_hand("DatastoreType")),
            etcd_endpoints: None,
            etcd_key_file: file("EtcdKeyFile", &self.etcd_key_file),
            etcd_cert_file: file("EtcdCertFile", &self.etcd_cert_file),
            etcd_ca_file: file("EtcdCaFile", &self.etcd_ca_file),
        };
        if by_hand("EtcdEndpoints") && !self.etcd_endpoints.is_empty() {
            overrides.etcd_endpoints = Some(self.etcd_endpoints.join(","));
        } else if by_hand("EtcdAddr") {
            let scheme = self.etcd_scheme.map_or("", EtcdScheme::as_str);
            overrides.etcd_endpoints = Some(format!("{scheme}://{}", self.etcd_addr));
        }
        // Setting etcd's endpoints selects etcd.
        if overrides.etcd_endpoints.is_some() {
            overrides.datastore_type = Some(DatastoreType::EtcdV3);
        }
        overrides
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::NoSurroundings;
    use crate::sources::Source;

    fn config(change: impl FnOnce(&mut Config)) -> Config {
        let mut config = Config::with_defaults(&NoSurroundings);
        change(&mut config);
        config
    }

    #[test]
    fn openstack_and_providers_are_recognised() {
        assert!(!config(|_| {}).is_openstack());
        assert!(config(|config| config.cluster_type = "k8s,OpenStack".into()).is_openstack());
        assert!(config(|config| config.metadata_addr = "10.0.0.1".into()).is_openstack());
        assert!(config(|config| config.metadata_port = 9697).is_openstack());
        assert!(!config(|config| config.metadata_addr.clear()).is_openstack());
        assert!(config(|config| config.interface_prefix = "cali,tap".into()).is_openstack());
        for (cluster_type, expected) in [
            ("", Provider::None),
            ("k8s,bgp", Provider::None),
            ("k8s,EKS,kdd", Provider::Eks),
            ("ecs", Provider::Eks),
            ("OpenShift,gke", Provider::OpenShift),
        ] {
            assert_eq!(config(|config| config.cluster_type = cluster_type.into()).provider(), expected);
        }
    }

    #[test]
    fn routes_are_needed_if_something_uses_them() {
        let none = Encapsulation::default();
        let ipip = Encapsulation { ipip: true, ..none };
        assert!(!config(|_| {}).needs_routes(&none));
        assert!(config(|_| {}).needs_routes(&ipip));
        let by_bgp = config(|config| config.program_cluster_routes = Some(ProgramClusterRoutes::Disabled));
        assert!(!by_bgp.needs_routes(&ipip));
        assert!(by_bgp.needs_routes(&Encapsulation { vxlan_v6: true, ..none }));
        assert!(config(|config| config.wireguard_enabled_v6 = true).needs_routes(&none));
        assert!(config(|config| config.bpf_enabled = true).needs_routes(&none));
    }

    #[test]
    fn the_new_route_table_parameter_takes_precedence() {
        let (old, new) = (RouteTableRange { min: 5, max: 9 }, RouteTableRange { min: 10, max: 2000 });
        assert_eq!(config(|_| {}).route_tables(), [DEFAULT_ROUTE_TABLES]);
        assert_eq!(config(|config| config.route_table_range = Some(old)).route_tables(), [old]);
        let both = config(|config| {
            config.route_table_range = Some(old);
            config.route_table_ranges = vec![new];
        });
        assert_eq!(both.route_tables(), [new]);
    }

    #[test]
    fn the_file_and_the_environment_choose_the_datastore() {
        let overrides = |texts: &[(&str, &str)]| {
            let mut sources = Sources::default();
            let texts = texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            sources.set(Source::EnvironmentVariable, texts);
            let effective = crate::resolve(&sources, &NoSurroundings).unwrap();
            effective.config.datastore_overrides(&sources)
        };
        assert_eq!(overrides(&[]), DatastoreOverrides::default());
        assert_eq!(
            overrides(&[("datastoretype", "kubernetes")]).datastore_type,
            Some(DatastoreType::Kubernetes)
        );
        let address = overrides(&[("etcdaddr", "etcd:2379"), ("datastoretype", "kubernetes")]);
        assert_eq!(address.datastore_type, Some(DatastoreType::EtcdV3));
        assert_eq!(address.etcd_endpoints.as_deref(), Some("http://etcd:2379"));
        let endpoints =
            overrides(&[("etcdendpoints", "https://a:1, https://b:2"), ("etcdaddr", "etcd:2379")]);
        assert_eq!(endpoints.etcd_endpoints.as_deref(), Some("https://a:1/,https://b:2/"));
    }
}
