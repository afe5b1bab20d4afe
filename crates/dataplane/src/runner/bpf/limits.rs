//! Configured features that are not supported yet: each is named, so that a node is never reported as ready with less
//! than it was configured for.

use bpf_driver::Filters;
use felix_config::Config;

/// Parameters whose other values request less than is supported, concern unused features, or lines in a log: a warning
/// names those.
const ASK_FOR_NOTHING: [&str; 6] = [
    "BPFCTLBLogFilter",
    "BPFConnectTimeLoadBalancingEnabled",
    "BPFConntrackCleanupMode",
    "BPFConntrackLogLevel",
    "BPFExportBufferSizeMB",
    "BPFPolicyDebugEnabled",
];

/// The reasons.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// Reasons that do not change while this process runs.
    fixed: Vec<String>,
}

impl Limits {
    /// The limits that the configuration runs into.
    pub(super) fn new(config: &Config) -> Self {
        let asked = felix_config::without_effect(config).into_iter();
        let asked = asked.filter(|name| {
            let is_size = name.starts_with("BPFMapSize");
            name.starts_with("BPF") && !is_size && !ASK_FOR_NOTHING.contains(name)
        });
        let asked = asked.map(|name| format!("{name} requires something that is not supported yet"));
        let filters = Filters::read(&config.bpf_log_filters).err();
        let filters = filters
            .map(|error| format!("BPFLogFilters requires something that is not supported yet: {error}"));
        let fixed = asked.chain(filters).collect();
        Self { fixed }
    }

    /// Adds a reason.
    pub(super) fn refuse(&mut self, reason: String) {
        self.fixed.push(reason);
    }

    /// All reasons.
    pub(super) fn all(&self) -> impl Iterator<Item = String> {
        self.fixed.iter().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::Limits;
    use felix_config::choices::{ConnectLogFilter, RedirectToPeer};
    use felix_config::kinds::NoSurroundings;
    use felix_config::{Config, Pattern};

    fn reasons(limits: &Limits) -> Vec<String> {
        limits.all().collect()
    }

    #[test]
    fn parameters_that_require_unsupported_features_are_named() {
        let plain = Config { bpf_enabled: true, ..Config::with_defaults(&NoSurroundings) };
        assert_eq!(reasons(&Limits::new(&plain)), Vec::<String>::new());
        let less = Config {
            bpf_redirect_to_peer: Some(RedirectToPeer::Disabled),
            bpf_connect_time_load_balancing: Some(api::BPFConnectTimeLoadBalancing::Disabled),
            bpf_map_size_conntrack: 1000,
            bpf_maglev_max_services: 10,
            bpf_log_filters: [("all".to_owned(), "tcp port 80".to_owned())].into(),
            bpf_external_service_mode: Some(api::BPFExternalService::DSR),
            bpf_kube_proxy_iptables_cleanup_enabled: false,
            bpf_ip_fragment_reassembly_enabled: false,
            bpf_ctlb_log_filter: Some(ConnectLogFilter::All),
            bpf_conntrack_log_level: Some(api::BPFConntrackLogLevel::Debug),
            bpf_force_track_packets_from_ifaces: vec!["eth+".to_owned()],
            bpf_profiling: Some(api::EnabledOrDisabled::Enabled),
            bpf_host_conntrack_bypass: true,
            bpf_overlay_host_source_ip: Some(api::BPFOverlayHostSourceIP::HostAddress),
            bpf_disable_gro_for_ifaces: Pattern::new("eth0"),
            ..plain.clone()
        };
        assert_eq!(reasons(&Limits::new(&less)), Vec::<String>::new());
        let more = Config { bpf_log_filters: [("all".to_owned(), "vlan 5".to_owned())].into(), ..plain };
        let found = reasons(&Limits::new(&more)).join("\n");
        assert!(found.contains("BPFLogFilters requires"), "{found}");
    }
}
