//! The words that parameters with a closed list of values take.
//!
//! Where a field of FelixConfiguration has a type of its own for the choice, parameter and consumer use that type; the word
//! `none` is [`None`]. The others are declared here, with one more value, `Unset`, for that word.

use crate::kinds::scalars::Words;
use api::{Allowed, ChainInsert, Denied, EndpointToHost, RouteOrigin, ServiceLoopAction};
use settings::ClientAuth;
use std::fmt;

macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? })+) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            /// Nothing, on purpose.
            #[default]
            Unset,
            $(#[doc = concat!("`", $word, "`")] $variant,)+
        }

        impl $name {
            /// The word; empty for `Unset`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    Self::Unset => "",
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        })+
    };
}

macro_rules! choices_of_resources {
    ($($name:ty { $($variant:ident = $word:literal),+ $(,)? })+) => {
        $(impl Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        })+
    };
}

choices_of_resources! {
    Allowed { Accept = "ACCEPT", Return = "RETURN" }
    ChainInsert { Insert = "insert", Append = "append" }
    Denied { Drop = "DROP", Reject = "REJECT" }
    EndpointToHost { Drop = "DROP", Return = "RETURN", Accept = "ACCEPT" }
    RouteOrigin { WorkloadIPs = "WorkloadIPs", CalicoIPAM = "CalicoIPAM" }
    ServiceLoopAction { Drop = "Drop", Reject = "Reject", Disabled = "Disabled" }
}

impl Words for ClientAuth {
    const WORDS: &'static [(&'static str, Self)] = Self::WORDS;
}

choices! {
    /// How BPF programs are attached.
    AttachType { Netkit = "Netkit", Tcx = "TCX", Tc = "TC" }
    /// How much BPF programs log.
    BpfLogLevel { Off = "off", Info = "info", Debug = "debug" }
    /// Whether the connect-time load balancer logs.
    ConnectLogFilter { All = "all" }
    /// For which services addresses are translated when a socket connects.
    ConnectTimeLoadBalancing { Tcp = "TCP", Enabled = "Enabled", Disabled = "Disabled" }
    /// Where expired connections are removed.
    ConntrackCleanup { Auto = "Auto", Userspace = "Userspace", BpfProgram = "BPFProgram" }
    /// How much the cleanup of BPF connection tracking logs.
    ConntrackLogLevel { Off = "off", Debug = "debug" }
    /// What happens when the map of connections is full.
    ConntrackScaling { Disabled = "Disabled", DoubleIfFull = "DoubleIfFull" }
    /// The kind of datastore.
    DatastoreType { Kubernetes = "kubernetes", EtcdV3 = "etcdv3" }
    /// How etcd is spoken to.
    EtcdScheme { Http = "http", Https = "https" }
    /// How replies to clients outside the cluster travel.
    ExternalServiceMode { Tunnel = "tunnel", Dsr = "dsr" }
    /// Which traffic takes the kernel's flow table.
    FlowTableOffload { All = "All", Disabled = "Disabled" }
    /// The flavour of iptables.
    IptablesBackend { Legacy = "legacy", Nft = "nft", Auto = "auto" }
    /// How the kernel's compiler for BPF is hardened.
    JitHardening { Auto = "Auto", Strict = "Strict" }
    /// For whom the host answers ARP and NDP.
    L2Reachability { Disabled = "Disabled", PodsAndLoadBalancers = "PodsAndLoadBalancers" }
    /// The least severe message that is logged.
    LogSeverity {
        Trace = "TRACE",
        Debug = "DEBUG",
        Info = "INFO",
        Warning = "WARNING",
        Error = "ERROR",
        Fatal = "FATAL",
    }
    /// Which destinations keep the pod's own source address.
    NatExclusions { IpPoolsOnly = "IPPoolsOnly", IpPoolsAndHostIps = "IPPoolsAndHostIPs" }
    /// Whether nftables is used in place of iptables.
    NftablesMode { Enabled = "Enabled", Disabled = "Disabled", Auto = "Auto" }
    /// How policies of workloads are programmed.
    PolicyMode { Chains = "Chains", Compiled = "Compiled" }
    /// The source address of the host itself over a tunnel.
    OverlayHostSource { TunnelAddress = "TunnelAddress", HostAddress = "HostAddress" }
    /// When active flows are evaluated.
    PolicyEvaluation { None = "None", Continuous = "Continuous" }
    /// For which pools without VXLAN Felix makes the routes to other nodes.
    ProgramClusterRoutes {
        Enabled = "Enabled",
        Disabled = "Disabled",
        EnabledIpipOnly = "EnabledIPIPOnly",
        EnabledNoEncapOnly = "EnabledNoEncapOnly",
    }
    /// Whether packets go straight to the workload's side of its device.
    RedirectToPeer { Disabled = "Disabled", Enabled = "Enabled", L2Only = "L2Only" }
    /// How strictly source addresses are checked.
    ReversePathFilter { Disabled = "Disabled", Strict = "Strict", Loose = "Loose" }
    /// What to do with the source/destination check of an EC2 instance.
    SourceDestinationCheck { DoNothing = "DoNothing", Enable = "Enable", Disable = "Disable" }
    /// Whether pods may ask for foreign source addresses.
    SourceSpoofing { Disabled = "Disabled", Any = "Any" }
    /// On or off.
    Switch { Enabled = "Enabled", Disabled = "Disabled" }
}
