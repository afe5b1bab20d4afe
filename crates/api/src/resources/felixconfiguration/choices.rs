//! The enumerations of Felix's parameters.
//!
//! Each choice is one closed enumeration: the meaning of a resource's field, and the value of the parameter of the same
//! name. Where Calico compares a field literally, the field is [`Written`](crate::text::Written) of it. Where Calico
//! ignores case, the field is a text type that keeps what the user wrote.

use crate::text::{choices, text_newtype};

/// A case-insensitive enumeration: `$text` keeps what was written, `$value` is its meaning.
macro_rules! any_case_enum {
    ($(#[$doc:meta])* $text:ident => $value:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        choices! {
            #[doc = concat!("What a [`", stringify!($text), "`] means.")]
            $value { $($variant = $word),+ }
        }

        impl $value {
            fn names(separator: &str) -> String {
                Self::ALL.iter().map(|value| value.as_str()).collect::<Vec<_>>().join(separator)
            }

            fn from_any_case(text: &str) -> Result<Self, String> {
                Self::ALL
                    .iter()
                    .copied()
                    .find(|value| value.as_str().eq_ignore_ascii_case(text))
                    .ok_or_else(|| format!("must be one of: {}", Self::names(", ")))
            }
        }

        text_newtype! {
            $(#[$doc])*
            $text => $value, $value::from_any_case,
            {"type": "string", "pattern": (format!("^(?i)({})?$", $value::names("|")))}
        }
    };
}

any_case_enum! {
    /// Where our rules stand in the kernel's own chains.
    ChainInsertMode => ChainInsert { Insert = "Insert", Append = "Append" }
}

any_case_enum! {
    /// What happens to traffic from a workload to its host.
    EndpointToHostAction => EndpointToHost { Drop = "Drop", Accept = "Accept", Return = "Return" }
}

any_case_enum! {
    /// What an allowed packet does.
    AllowAction => Allowed { Accept = "Accept", Return = "Return" }
}

any_case_enum! {
    /// What a denied packet meets.
    DenyAction => Denied { Drop = "Drop", Reject = "Reject" }
}

any_case_enum! {
    /// How severe a log message must be.
    LogSeverity => Severity { Trace = "Trace", Debug = "Debug", Info = "Info", Warning = "Warning", Error = "Error", Fatal = "Fatal" }
}

any_case_enum! {
    /// How much the BPF programs log.
    BPFLogLevel => BPFLogging { Off = "Off", Info = "Info", Debug = "Debug" }
}

any_case_enum! {
    /// The way of replies to clients outside the cluster.
    BPFExternalServiceMode => BPFExternalService { Tunnel = "Tunnel", DSR = "DSR" }
}

any_case_enum! {
    /// Whether the BPF connection map grows.
    BPFConntrackScaling => BPFConntrackGrowth { Disabled = "Disabled", DoubleIfFull = "DoubleIfFull" }
}

any_case_enum! {
    /// How strictly source addresses are checked in BPF mode.
    BPFEnforceRPF => BPFReversePathFilter { Disabled = "Disabled", Strict = "Strict", Loose = "Loose" }
}

any_case_enum! {
    /// Where routes to workloads come from.
    RouteSource => RouteOrigin { WorkloadIPs = "WorkloadIPs", CalicoIPAM = "CalicoIPAM" }
}

any_case_enum! {
    /// What happens to packets for service addresses that nobody uses.
    ServiceLoopPrevention => ServiceLoopAction { Drop = "Drop", Reject = "Reject", Disabled = "Disabled" }
}

any_case_enum! {
    /// Whether pods may ask for foreign source addresses.
    WorkloadSourceSpoofing => SourceSpoofing { Disabled = "Disabled", Any = "Any" }
}

choices! {
    /// A switch.
    EnabledOrDisabled { Enabled = "Enabled", Disabled = "Disabled" }
    /// The flavour of iptables.
    IptablesBackend { Legacy = "Legacy", NFT = "NFT", Auto = "Auto" }
    /// Whether nftables is used.
    NFTablesMode { Disabled = "Disabled", Enabled = "Enabled", Auto = "Auto" }
    /// Which traffic takes the kernel's flow table.
    NFTablesFlowTableOffload { All = "All", Disabled = "Disabled" }
    /// What to do with the source/destination check of an EC2 instance.
    AWSSrcDstCheck { DoNothing = "DoNothing", Enable = "Enable", Disable = "Disable" }
    /// How BPF programs are attached.
    BPFAttachType { TC = "TC", TCX = "TCX", Netkit = "Netkit" }
    /// For which services addresses are translated when a socket connects.
    BPFConnectTimeLoadBalancing { TCP = "TCP", Enabled = "Enabled", Disabled = "Disabled" }
    /// The source address of the host's own traffic over a tunnel.
    BPFOverlayHostSourceIP { TunnelAddress = "TunnelAddress", HostAddress = "HostAddress" }
    /// Where expired BPF connections are removed.
    BPFConntrackMode { Auto = "Auto", Userspace = "Userspace", BPFProgram = "BPFProgram" }
    /// How much the cleanup of BPF connections logs.
    BPFConntrackLogLevel { Off = "Off", Debug = "Debug" }
    /// Whether the kernel's strict JIT hardening is relaxed.
    BPFJITHardening { Auto = "Auto", Strict = "Strict" }
    /// Whether active flows are evaluated again when policy changes.
    FlowLogsPolicyEvaluationMode { None = "None", Continuous = "Continuous" }
    /// Which destinations keep the pod's own source address.
    NATOutgoingExclusions { IPPoolsOnly = "IPPoolsOnly", IPPoolsAndHostIPs = "IPPoolsAndHostIPs" }
    /// What the metrics server asks of a client's certificate.
    PrometheusMetricsClientAuth {
        RequireAndVerifyClientCert = "RequireAndVerifyClientCert",
        RequireAnyClientCert = "RequireAnyClientCert",
        VerifyClientCertIfGiven = "VerifyClientCertIfGiven",
        NoClientCert = "NoClientCert",
    }
    /// Whether the host answers ARP and NDP for pods and load balancers in its own subnet.
    LocalSubnetL2Reachability { Disabled = "Disabled", PodsAndLoadBalancers = "PodsAndLoadBalancers" }
    /// For which pools without VXLAN a component makes the routes to other nodes.
    ProgramClusterRoutes {
        Enabled = "Enabled",
        Disabled = "Disabled",
        EnabledIPIPOnly = "EnabledIPIPOnly",
        EnabledNoEncapOnly = "EnabledNoEncapOnly",
    }
}
