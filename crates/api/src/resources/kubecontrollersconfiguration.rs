//! KubeControllersConfiguration: which controllers run in the cluster and how. There is one, named `default`.

use super::felixconfiguration::EnabledOrDisabled;
use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::{ObjectMeta, StringMap};
use crate::object::{Object, Spec, StatusPart};
use crate::resources::setting_checks::{check_duration, check_regex, respell};
use crate::scalars::names::{check_annotations, check_labels, check_metadata, is_dns_subdomain};
use crate::scalars::{Duration, IpOrCidr, SelectorText};
use crate::text::{Written, string_enum};
use crate::words::GLOBAL_NAME;
use api_derive::resource_struct;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::time::Duration as Length;

/// The settings of the controllers.
pub type KubeControllersConfiguration = Object<KubeControllersConfigurationSpec>;

/// The default port for metrics.
const DEFAULT_METRICS_PORT: i64 = 9094;

/// The default time after which an unused address counts as leaked.
const DEFAULT_LEAK_GRACE_PERIOD: Length = Length::from_secs(15 * 60);

/// The settings of the controllers.
#[resource_struct]
pub struct KubeControllersConfigurationSpec {
    /// The least severe message that is logged. Default Info.
    pub log_severity_screen: KubeControllersLogSeverity,
    /// Whether health is reported.
    #[field(default = "\"Enabled\"")]
    pub health_checks: Written<EnabledOrDisabled>,
    /// How often etcd is compacted; 0 turns that off. Default 10m.
    pub etcd_v3_compaction_period: Option<Duration>,
    /// The port that metrics are served on; 0 turns that off. Default 9094.
    #[field(min = 0, max = 65535)]
    pub prometheus_metrics_port: Option<i64>,
    /// The controllers; one that is absent does not run.
    #[field(always, required)]
    pub controllers: ControllersConfig,
    /// The port that profiles are served on; without it there are none.
    #[field(min = 0, max = 65535)]
    pub debug_profile_port: Option<i32>,
}

string_enum! {
    /// How severe a log message must be.
    KubeControllersLogSeverity {
        None = "None",
        Debug = "Debug",
        Info = "Info",
        Warning = "Warning",
        Error = "Error",
        Fatal = "Fatal",
        Panic = "Panic",
    }
}

/// The settings of each controller.
#[resource_struct]
pub struct ControllersConfig {
    /// Nodes: cleans up after them, collects leaked addresses, makes host endpoints.
    pub node: Option<NodeControllerConfig>,
    /// Copies Kubernetes policies to etcd.
    pub policy: Option<PolicyControllerConfig>,
    /// Copies pods' labels to etcd.
    pub workload_endpoint: Option<WorkloadEndpointControllerConfig>,
    /// Copies service accounts to etcd.
    pub service_account: Option<ServiceAccountControllerConfig>,
    /// Copies namespaces to etcd.
    pub namespace: Option<NamespaceControllerConfig>,
    /// Gives addresses to services of type LoadBalancer.
    pub load_balancer: Option<LoadBalancerControllerConfig>,
    /// Moves stored data to newer forms.
    pub migration: Option<MigrationControllerConfig>,
}

/// The migration controllers.
#[resource_struct]
pub struct MigrationControllerConfig {
    /// Whether policies stored under old names are renamed.
    #[field(default = "\"Enabled\"")]
    pub policy_name_migrator: Written<EnabledOrDisabled>,
}

/// The node controller.
#[resource_struct]
pub struct NodeControllerConfig {
    /// How often everything is compared again. Default 5m.
    pub reconciler_period: Option<Duration>,
    /// Whether labels of Kubernetes nodes are copied. Default Enabled.
    pub sync_labels: Written<EnabledOrDisabled>,
    /// How host endpoints are made; absent makes none.
    pub host_endpoint: Option<AutoHostEndpointConfig>,
    /// After how long an unused address counts as leaked; 0 turns collection off. Default 15m.
    pub leak_grace_period: Option<Duration>,
}

/// How host endpoints are made for nodes.
#[resource_struct]
pub struct AutoHostEndpointConfig {
    /// Whether they are made at all. Default Disabled.
    pub auto_create: Written<EnabledOrDisabled>,
    /// Whether each node gets the one for all its interfaces.
    #[field(schema = without_enum)]
    pub create_default_host_endpoint: Written<EnabledOrDisabled>,
    /// Further endpoints for each node.
    #[field(list = "atomic")]
    pub templates: Vec<Template>,
}

/// Calico's definition leaves the values of this field to the client's check.
fn without_enum(schema: &mut Map<String, Value>) {
    schema.remove("enum");
}

/// A template of host endpoints.
#[resource_struct]
pub struct Template {
    /// The last part of the endpoint's name.
    #[field(max_len = 253)]
    pub generate_name: String,
    /// Which of the node's addresses the endpoint has.
    #[field(name = "interfaceCIDRs", list = "set")]
    pub interface_cidrs: Vec<IpOrCidr>,
    /// A regular expression: each interface whose name matches gets an endpoint.
    pub interface_pattern: String,
    /// Labels of the endpoint; they win over those of the node.
    pub labels: StringMap,
    /// Annotations of the endpoint.
    pub annotations: StringMap,
    /// The nodes that get it; empty means all.
    pub node_selector: SelectorText,
}

/// The policy controller.
#[resource_struct]
pub struct PolicyControllerConfig {
    /// How often everything is compared again. Default 5m.
    pub reconciler_period: Option<Duration>,
}

/// The workload endpoint controller.
#[resource_struct]
pub struct WorkloadEndpointControllerConfig {
    /// How often everything is compared again. Default 5m.
    pub reconciler_period: Option<Duration>,
}

/// The service account controller.
#[resource_struct]
pub struct ServiceAccountControllerConfig {
    /// How often everything is compared again. Default 5m.
    pub reconciler_period: Option<Duration>,
}

/// The namespace controller.
#[resource_struct]
pub struct NamespaceControllerConfig {
    /// How often everything is compared again. Default 5m.
    pub reconciler_period: Option<Duration>,
}

/// The load balancer controller.
#[resource_struct]
pub struct LoadBalancerControllerConfig {
    /// Which services get an address.
    #[field(name = "assignIPs", default = "\"AllServices\"")]
    pub assign_ips: AssignIPs,
}

string_enum! {
    /// Which services get an address: all, or those that ask for one.
    AssignIPs { AllServices = "AllServices", RequestedServicesOnly = "RequestedServicesOnly" }
}

/// What the controllers run with.
#[resource_struct]
pub struct KubeControllersConfigurationStatus {
    /// The settings in force, environment included.
    pub running_config: Option<KubeControllersConfigurationSpec>,
    /// The environment variables that had a say.
    pub environment_vars: StringMap,
}

impl StatusPart for KubeControllersConfigurationStatus {}

impl Spec for KubeControllersConfigurationSpec {
    const KIND: Kind = Kind::KubeControllersConfiguration;
    type Status = KubeControllersConfigurationStatus;

    fn set_defaults(&mut self, _metadata: &mut ObjectMeta) {
        respell(&mut self.etcd_v3_compaction_period);
        for (_, period) in self.controllers.periods_mut() {
            respell(period);
        }
        self.prometheus_metrics_port.get_or_insert(DEFAULT_METRICS_PORT);
        if let Some(node) = &mut self.controllers.node {
            node.leak_grace_period.get_or_insert_with(|| Duration::from_std(DEFAULT_LEAK_GRACE_PERIOD));
        }
        if let Some(load_balancer) = &mut self.controllers.load_balancer
            && load_balancer.assign_ips.is_unset()
        {
            load_balancer.assign_ips = AssignIPs::AllServices;
        }
    }

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        errors.require(
            metadata.name == GLOBAL_NAME,
            FieldPath::new("metadata.name"),
            &metadata.name,
            "Cannot create a Kube Controllers Configuration resource with a name other than \"default\"",
        );
        let spec = FieldPath::new("spec");
        check_duration(
            self.etcd_v3_compaction_period.as_ref(),
            &spec.child("etcdV3CompactionPeriod"),
            errors,
        );
        let controllers = spec.child("controllers");
        for (name, period) in self.controllers.clone().periods_mut() {
            check_duration(period.as_ref(), &FieldPath::new(format!("{controllers}.{name}")), errors);
        }
        let Some(endpoints) = self.controllers.node.as_ref().and_then(|node| node.host_endpoint.as_ref())
        else {
            return;
        };
        let path = controllers.child("node").child("hostEndpoint");
        errors.require(
            endpoints.create_default_host_endpoint.is_known(),
            path.child("createDefaultHostEndpoint"),
            &endpoints.create_default_host_endpoint,
            "must be one of: Enabled, Disabled",
        );
        let mut names = BTreeSet::new();
        for (index, template) in endpoints.templates.iter().enumerate() {
            let path = path.child("templates").index(index);
            if !template.generate_name.is_empty() && !names.insert(template.generate_name.as_str()) {
                errors.add(
                    path.child("generateName"),
                    &template.generate_name,
                    "Template name must be unique",
                );
            }
            template.check(&path, errors);
        }
    }
}

impl ControllersConfig {
    /// The durations of all configured controllers, by path.
    fn periods_mut(&mut self) -> Vec<(&'static str, &mut Option<Duration>)> {
        let mut periods = Vec::new();
        if let Some(node) = &mut self.node {
            periods.push(("node.reconcilerPeriod", &mut node.reconciler_period));
            periods.push(("node.leakGracePeriod", &mut node.leak_grace_period));
        }
        if let Some(policy) = &mut self.policy {
            periods.push(("policy.reconcilerPeriod", &mut policy.reconciler_period));
        }
        if let Some(workload_endpoint) = &mut self.workload_endpoint {
            periods.push(("workloadEndpoint.reconcilerPeriod", &mut workload_endpoint.reconciler_period));
        }
        if let Some(service_account) = &mut self.service_account {
            periods.push(("serviceAccount.reconcilerPeriod", &mut service_account.reconciler_period));
        }
        if let Some(namespace) = &mut self.namespace {
            periods.push(("namespace.reconcilerPeriod", &mut namespace.reconciler_period));
        }
        periods
    }
}

impl Template {
    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        if self.generate_name.is_empty() {
            errors.add(path.child("generateName"), "", "Template name must be specified");
        } else if !is_dns_subdomain(&self.generate_name) {
            errors.add(
                path.child("generateName"),
                &self.generate_name,
                "cannot be the end of an object's name",
            );
        }
        errors.require(
            !self.interface_cidrs.is_empty() || !self.interface_pattern.is_empty(),
            path.clone(),
            &self.generate_name,
            "InterfaceCIDRs or InterfacePattern must be specified",
        );
        for (index, network) in self.interface_cidrs.iter().enumerate() {
            if let Err(reason) = network.parse() {
                errors.add(path.child("interfaceCIDRs").index(index), network, reason);
            }
        }
        check_regex(&self.interface_pattern, &path.child("interfacePattern"), errors);
        check_labels(&self.labels, &path.child("labels"), errors);
        check_annotations(&self.annotations, &path.child("annotations"), errors);
        self.node_selector.validate(&path.child("nodeSelector"), errors);
    }
}
