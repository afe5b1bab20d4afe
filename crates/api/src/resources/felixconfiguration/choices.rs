//! The words that Felix's parameters can be, as types.
//!
//! Two families: enumerations that Calico compares letter for letter, and enumerations that it compares in any case.
//! The second kind keeps the text as the user wrote it and gives the meaning on request.

use crate::text::{string_enum, text_newtype};

/// An enumeration in any case: `$text` keeps what was written, `$value` is what it means.
macro_rules! any_case_enum {
    ($(#[$doc:meta])* $text:ident => $value:ident { $($variant:ident),+ $(,)? }) => {
        #[doc = concat!("What a [`", stringify!($text), "`] means.")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $value {
            $(#[doc = concat!("`", stringify!($variant), "`")] $variant,)+
        }

        impl $value {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The value as Calico spells it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)+ }
            }

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
    ChainInsertMode => ChainInsert { Insert, Append }
}

any_case_enum! {
    /// What happens to traffic from a workload to its host.
    EndpointToHostAction => EndpointToHost { Drop, Accept, Return }
}

any_case_enum! {
    /// What an allowed packet does.
    AllowAction => Allowed { Accept, Return }
}

any_case_enum! {
    /// What a denied packet meets.
    DenyAction => Denied { Drop, Reject }
}

any_case_enum! {
    /// How severe a log message must be.
    LogSeverity => Severity { Trace, Debug, Info, Warning, Error, Fatal }
}

any_case_enum! {
    /// How much the BPF programs log.
    BPFLogLevel => BPFLogging { Off, Info, Debug }
}

any_case_enum! {
    /// The way of replies to clients outside the cluster.
    BPFExternalServiceMode => BPFExternalService { Tunnel, DSR }
}

any_case_enum! {
    /// Whether the BPF connection map grows.
    BPFConntrackScaling => BPFConntrackGrowth { Disabled, DoubleIfFull }
}

any_case_enum! {
    /// How strictly source addresses are checked in BPF mode.
    BPFEnforceRPF => BPFReversePathFilter { Disabled, Strict, Loose }
}

any_case_enum! {
    /// Where routes to workloads come from.
    RouteSource => RouteOrigin { WorkloadIPs, CalicoIPAM }
}

any_case_enum! {
    /// What happens to packets for service addresses that nobody uses.
    ServiceLoopPrevention => ServiceLoopAction { Drop, Reject, Disabled }
}

any_case_enum! {
    /// Whether pods may ask for foreign source addresses.
    WorkloadSourceSpoofing => SourceSpoofing { Disabled, Any }
}

string_enum! {
    /// A switch.
    EnabledOrDisabled { Enabled = "Enabled", Disabled = "Disabled" }
}

string_enum! {
    /// The flavour of iptables.
    IptablesBackend { Legacy = "Legacy", NFT = "NFT", Auto = "Auto" }
}

string_enum! {
    /// Whether nftables is used.
    NFTablesMode { Disabled = "Disabled", Enabled = "Enabled", Auto = "Auto" }
}

string_enum! {
    /// Which traffic takes the kernel's flow table.
    NFTablesFlowTableOffload { All = "All", Disabled = "Disabled" }
}

string_enum! {
    /// What to do with the source/destination check of an EC2 instance.
    AWSSrcDstCheck { DoNothing = "DoNothing", Enable = "Enable", Disable = "Disable" }
}

string_enum! {
    /// How BPF programs are attached.
    BPFAttachType { TC = "TC", TCX = "TCX", Netkit = "Netkit" }
}

string_enum! {
    /// For which services addresses are translated when a socket connects.
    BPFConnectTimeLoadBalancing { TCP = "TCP", Enabled = "Enabled", Disabled = "Disabled" }
}

string_enum! {
    /// The source address of the host's own traffic over a tunnel.
    BPFOverlayHostSourceIP { TunnelAddress = "TunnelAddress", HostAddress = "HostAddress" }
}

string_enum! {
    /// Where expired BPF connections are removed.
    BPFConntrackMode { Auto = "Auto", Userspace = "Userspace", BPFProgram = "BPFProgram" }
}

string_enum! {
    /// How much the cleanup of BPF connections logs.
    BPFConntrackLogLevel { Off = "Off", Debug = "Debug" }
}

string_enum! {
    /// Whether the kernel's strict JIT hardening is relaxed.
    BPFJITHardening { Auto = "Auto", Strict = "Strict" }
}

string_enum! {
    /// Whether active flows are evaluated again when policy changes.
    FlowLogsPolicyEvaluationMode { None = "None", Continuous = "Continuous" }
}

string_enum! {
    /// Which destinations keep the pod's own source address.
    NATOutgoingExclusions { IPPoolsOnly = "IPPoolsOnly", IPPoolsAndHostIPs = "IPPoolsAndHostIPs" }
}

string_enum! {
    /// What the metrics server asks of a client's certificate.
    PrometheusMetricsClientAuth {
        RequireAndVerifyClientCert = "RequireAndVerifyClientCert",
        RequireAnyClientCert = "RequireAnyClientCert",
        VerifyClientCertIfGiven = "VerifyClientCertIfGiven",
        NoClientCert = "NoClientCert",
    }
}

string_enum! {
    /// Whether the host answers ARP and NDP for pods and load balancers in its own subnet.
    LocalSubnetL2Reachability { Disabled = "Disabled", PodsAndLoadBalancers = "PodsAndLoadBalancers" }
}

string_enum! {
    /// For which pools without VXLAN a component makes the routes to other nodes.
    ProgramClusterRoutes {
        Enabled = "Enabled",
        Disabled = "Disabled",
        EnabledIPIPOnly = "EnabledIPIPOnly",
        EnabledNoEncapOnly = "EnabledNoEncapOnly",
    }
}
