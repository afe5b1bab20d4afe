//! What runs, and how: a function of the environment and the KubeControllersConfiguration `default`.
//!
//! - [`environment`]: the variables, read once from an injected source; all mistakes reported together.
//! - [`merge`]: both sources into a [`RunConfig`], and the status that tells users what became of their settings. A
//!   variable beats the resource.
//! - [`resource`]: the resource read, made if it is not there, watched, and its status written back.
//!
//! Two configurations that are equal need no restart; that is all that anybody asks of a change.

pub(crate) mod environment;
pub(crate) mod merge;
pub(crate) mod resource;

pub(crate) use environment::{Enabled, EnvironmentSettings};

use api::{AssignIPs, Template};
use daemon::log::LevelFilter;
use std::time::Duration;

/// Everything that the controllers run with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunConfig {
    /// The least severe message that is logged.
    pub log_level: LogLevel,
    /// The controllers.
    pub controllers: Controllers,
    /// How often etcd is compacted; zero for never.
    pub compaction_period: Duration,
    /// Whether health is reported.
    pub health_enabled: bool,
    /// The port of the metrics; `None` for none.
    pub metrics_port: Option<u16>,
}

/// The controllers that run, each with its settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Controllers {
    /// Nodes: clean-up, garbage collection, labels, host endpoints.
    pub node: Option<NodeConfig>,
    /// Kubernetes' policies.
    pub policy: Option<SyncConfig>,
    /// Pods.
    pub workload_endpoint: Option<SyncConfig>,
    /// Service accounts.
    pub service_account: Option<SyncConfig>,
    /// Namespaces.
    pub namespace: Option<SyncConfig>,
    /// Addresses for services.
    pub load_balancer: Option<LoadBalancerConfig>,
    /// Whether policies stored under names of old are renamed.
    pub policy_name_migrator: bool,
}

/// The settings of a controller that copies objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyncConfig {
    /// How often everything is compared again; zero for only at the start.
    pub reconciler_period: Duration,
    /// How many workers there are.
    pub workers: usize,
}

/// The settings of the node controller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeConfig {
    /// Whether labels are copied from Kubernetes' nodes to Calico's.
    pub sync_labels: bool,
    /// Whether a Calico node is deleted when its Kubernetes node is gone.
    pub delete_nodes: bool,
    /// Host endpoints that are made for nodes.
    pub host_endpoints: HostEndpointsConfig,
    /// After how long an unused address counts as leaked; zero turns collection off, `None` when nothing is said.
    pub leak_grace_period: Option<Duration>,
}

/// How host endpoints are made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostEndpointsConfig {
    /// Whether they are made at all; otherwise those made before are removed.
    pub auto_create: bool,
    /// Whether each node gets the one for all its interfaces.
    pub create_default: bool,
    /// Further endpoints.
    pub templates: Vec<Template>,
}

/// The settings of the load balancer controller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadBalancerConfig {
    /// Which services get an address.
    pub assign_ips: AssignIPs,
}

/// How severe a message must be to be logged, with the names of Calico's logging library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// `panic`
    Panic,
    /// `fatal`
    Fatal,
    /// `error`
    Error,
    /// `warning`, or `warn`
    Warning,
    /// `info`
    Info,
    /// `debug`
    Debug,
    /// `trace`
    Trace,
}

impl LogLevel {
    /// The level of this name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "panic" => Self::Panic,
            "fatal" => Self::Fatal,
            "error" => Self::Error,
            "warn" | "warning" => Self::Warning,
            "info" => Self::Info,
            "debug" => Self::Debug,
            "trace" => Self::Trace,
            _ => return None,
        })
    }

    /// The name as resources have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Panic => "Panic",
            Self::Fatal => "Fatal",
            Self::Error => "Error",
            Self::Warning => "Warning",
            Self::Info => "Info",
            Self::Debug => "Debug",
            Self::Trace => "Trace",
        }
    }

    /// The level of our own log.
    #[must_use]
    pub fn filter(self) -> LevelFilter {
        daemon::log::level(self.as_str()).unwrap_or(LevelFilter::INFO)
    }
}
