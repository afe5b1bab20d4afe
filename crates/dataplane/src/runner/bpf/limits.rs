//! What is asked for and not there yet: each reason by name, so that a node is never called ready with less than it was asked
//! for.

use felix_config::Config;
use messages::{ToDataplane, WorkloadEndpoint};
use std::collections::BTreeMap;

/// Parameters whose other values ask for less than there is, or for what is not used.
const ASK_FOR_NOTHING: [&str; 5] = [
    "BPFConnectTimeLoadBalancingEnabled",
    "BPFDisableUnprivileged",
    "BPFIPFragmentReassemblyEnabled",
    "BPFPolicyDebugEnabled",
    "BPFRedirectToPeer",
];

/// The reasons.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// What does not change while this process runs.
    fixed: Vec<String>,
    /// By endpoint, what of it is not there.
    endpoints: BTreeMap<String, &'static str>,
}

impl Limits {
    /// What the configuration asks for in vain.
    pub(super) fn new(config: &Config) -> Self {
        let asked = felix_config::without_effect(config).into_iter();
        let asked = asked.filter(|name| {
            let is_size = name.starts_with("BPFMapSize") || name.starts_with("BPFMaglevMax");
            name.starts_with("BPF") && !is_size && !ASK_FOR_NOTHING.contains(name)
        });
        let fixed = asked.map(|name| format!("{name} asks for something that is not there yet")).collect();
        Self { fixed, endpoints: BTreeMap::new() }
    }

    /// One reason more.
    pub(super) fn refuse(&mut self, reason: String) {
        self.fixed.push(reason);
    }

    /// Takes note of endpoints that ask for something.
    pub(super) fn hear(&mut self, message: &ToDataplane) {
        match message {
            ToDataplane::WorkloadEndpointUpdate(id, endpoint) => {
                self.note(format!("workload {}", id.workload), of_workload(endpoint));
            }
            ToDataplane::WorkloadEndpointRemove(id) => self.note(format!("workload {}", id.workload), None),
            _ => {}
        }
    }

    fn note(&mut self, who: String, what: Option<&'static str>) {
        match what {
            Some(what) => _ = self.endpoints.insert(who, what),
            None => _ = self.endpoints.remove(&who),
        }
    }

    /// All reasons; of endpoints the first, and how many more there are.
    pub(super) fn all(&self) -> impl Iterator<Item = String> {
        let first = self.endpoints.iter().next().map(|(who, what)| {
            let more = match self.endpoints.len() {
                1 => String::new(),
                count => format!(" (and {} more endpoints)", count - 1),
            };
            format!("{who} asks for {what}, which is not there yet{more}")
        });
        self.fixed.iter().cloned().chain(first)
    }
}

fn of_workload(endpoint: &WorkloadEndpoint) -> Option<&'static str> {
    let limits = endpoint.qos_controls.as_deref()?;
    let rules = [
        limits.ingress_max_connections,
        limits.egress_max_connections,
        limits.ingress_packet_rate,
        limits.egress_packet_rate,
    ];
    rules.iter().any(|limit| *limit != 0).then_some("limits of packets or connections")
}

#[cfg(test)]
mod tests {
    use super::Limits;
    use api::QoSControls;
    use felix_config::kinds::NoSurroundings;
    use felix_config::{Config, choices};
    use messages::{ToDataplane, WorkloadEndpoint, WorkloadEndpointId};

    fn reasons(limits: &Limits) -> Vec<String> {
        limits.all().collect()
    }

    #[test]
    fn parameters_that_ask_for_what_is_not_there_are_named() {
        let plain = Config { bpf_enabled: true, ..Config::with_defaults(&NoSurroundings) };
        assert_eq!(reasons(&Limits::new(&plain)), Vec::<String>::new());
        let less = Config {
            bpf_redirect_to_peer: choices::RedirectToPeer::Disabled,
            bpf_connect_time_load_balancing: choices::ConnectTimeLoadBalancing::Disabled,
            bpf_map_size_conntrack: 1000,
            bpf_kube_proxy_iptables_cleanup_enabled: false,
            ..plain.clone()
        };
        assert_eq!(reasons(&Limits::new(&less)), Vec::<String>::new());
        let more = Config {
            bpf_external_service_mode: choices::ExternalServiceMode::Dsr,
            bpf_host_conntrack_bypass: true,
            bpf_log_filters: [("all".to_owned(), "tcp".to_owned())].into(),
            ..plain
        };
        let found = reasons(&Limits::new(&more)).join("\n");
        for name in ["BPFExternalServiceMode", "BPFHostConntrackBypass", "BPFLogFilters"] {
            assert!(found.contains(&format!("{name} asks for")), "{found}");
        }
    }

    #[test]
    fn endpoints_that_ask_for_what_is_not_there_are_named_until_they_do_not() {
        let mut limits = Limits::default();
        let id = |name: &str| WorkloadEndpointId {
            orchestrator: "k8s".into(),
            workload: name.into(),
            endpoint: "eth0".into(),
        };
        let controls = QoSControls { ingress_packet_rate: 10, ..QoSControls::default() };
        let limited =
            WorkloadEndpoint { qos_controls: Some(Box::new(controls)), ..WorkloadEndpoint::default() };
        limits.hear(&ToDataplane::WorkloadEndpointUpdate(id("a"), Box::new(limited.clone())));
        limits.hear(&ToDataplane::WorkloadEndpointUpdate(id("b"), Box::new(limited)));
        let found = reasons(&limits);
        let expected = "workload a asks for limits of packets or connections, which is not there yet (and 1 more endpoints)";
        assert_eq!(found, [expected]);
        limits.hear(&ToDataplane::WorkloadEndpointRemove(id("b")));
        limits.hear(&ToDataplane::WorkloadEndpointUpdate(id("a"), Box::default()));
        assert_eq!(reasons(&limits), Vec::<String>::new());
    }
}
