//! The words of parameters with a closed list of values.
//!
//! Choices that resources and other components share are declared there: the types of FelixConfiguration's fields in
//! `api`, and those that several components offer in `settings`. Only Felix's own are declared here. The word `none` is
//! [`None`].
//!
//! Parameters are read in any case, so the resource's words fit; Calico's reference spells some of them differently.

use crate::kinds::scalars::Choices;
use api::{
    AWSSrcDstCheck, Allowed, BPFAttachType, BPFConnectTimeLoadBalancing, BPFConntrackGrowth,
    BPFConntrackLogLevel, BPFConntrackMode, BPFExternalService, BPFJITHardening, BPFLogging,
    BPFOverlayHostSourceIP, BPFReversePathFilter, ChainInsert, Denied, EnabledOrDisabled, EndpointToHost,
    FlowLogsPolicyEvaluationMode, IptablesBackend, LocalSubnetL2Reachability, NATOutgoingExclusions,
    NFTablesFlowTableOffload, NFTablesMode, ProgramClusterRoutes, RouteOrigin, ServiceLoopAction, Severity,
    SourceSpoofing,
};
use settings::{ClientAuth, DatastoreType};

api::choices! {
    /// Whether the connect-time load balancer logs.
    ConnectLogFilter { All = "all" }
    /// The protocol to etcd.
    EtcdScheme { Http = "http", Https = "https" }
    /// How policies of workloads are programmed.
    PolicyMode { Chains = "Chains", Compiled = "Compiled" }
    /// Whether packets go straight to the workload's side of its device. The resource's field has no word for the third
    /// value.
    RedirectToPeer { Disabled = "Disabled", Enabled = "Enabled", L2Only = "L2Only" }
}

macro_rules! spelled_as_in_resources {
    ($($name:ty),+ $(,)?) => {
        $(impl Choices for $name {
            fn choices() -> impl Iterator<Item = (&'static str, Self)> {
                Self::ALL.iter().map(|value| (value.as_str(), *value))
            }
        })+
    };
}

macro_rules! spelled {
    ($($name:ty { $($variant:ident = $word:literal),+ $(,)? })+) => {
        $(impl Choices for $name {
            fn choices() -> impl Iterator<Item = (&'static str, Self)> {
                [$(($word, Self::$variant)),+].into_iter()
            }
        })+
    };
}

spelled_as_in_resources! {
    AWSSrcDstCheck, BPFAttachType, BPFConnectTimeLoadBalancing, BPFConntrackGrowth, BPFConntrackMode,
    BPFJITHardening, BPFOverlayHostSourceIP, BPFReversePathFilter, ConnectLogFilter, EnabledOrDisabled,
    EtcdScheme, FlowLogsPolicyEvaluationMode, LocalSubnetL2Reachability, NATOutgoingExclusions,
    NFTablesFlowTableOffload, NFTablesMode, PolicyMode, ProgramClusterRoutes, RedirectToPeer, RouteOrigin,
    ServiceLoopAction, SourceSpoofing,
}

spelled! {
    Allowed { Accept = "ACCEPT", Return = "RETURN" }
    BPFConntrackLogLevel { Off = "off", Debug = "debug" }
    BPFExternalService { Tunnel = "tunnel", DSR = "dsr" }
    BPFLogging { Off = "off", Info = "info", Debug = "debug" }
    ChainInsert { Insert = "insert", Append = "append" }
    Denied { Drop = "DROP", Reject = "REJECT" }
    EndpointToHost { Drop = "DROP", Return = "RETURN", Accept = "ACCEPT" }
    IptablesBackend { Legacy = "legacy", NFT = "nft", Auto = "auto" }
    Severity {
        Trace = "TRACE",
        Debug = "DEBUG",
        Info = "INFO",
        Warning = "WARNING",
        Error = "ERROR",
        Fatal = "FATAL",
    }
    // Felix does not know the embedded store: the node's program opens it.
    DatastoreType { Kubernetes = "kubernetes", EtcdV3 = "etcdv3" }
}

impl Choices for ClientAuth {
    fn choices() -> impl Iterator<Item = (&'static str, Self)> {
        Self::WORDS.iter().copied()
    }
}
