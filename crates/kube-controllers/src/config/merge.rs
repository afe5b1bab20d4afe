//! Merges the environment and the resource into the running configuration and the status that shows it.

use super::environment::{ControllerName, Enabled, EnvironmentSettings, names};
use super::{
    Controllers, HostEndpointsConfig, LoadBalancerConfig, LogLevel, NodeConfig, RunConfig, SyncConfig,
};
use api::scalars::Duration as Text;
use api::{
    AssignIPs, AutoHostEndpointConfig, ControllersConfig, EnabledOrDisabled,
    KubeControllersConfigurationSpec, KubeControllersConfigurationStatus, LoadBalancerControllerConfig,
    MigrationControllerConfig, NamespaceControllerConfig, NodeControllerConfig, PolicyControllerConfig,
    ServiceAccountControllerConfig, WorkloadEndpointControllerConfig, Written,
};
use std::time::Duration;

/// How often everything is compared by default.
const DEFAULT_RECONCILER_PERIOD: Duration = Duration::from_secs(5 * 60);

/// How often etcd is compacted by default.
const DEFAULT_COMPACTION_PERIOD: Duration = Duration::from_secs(10 * 60);

/// The leak grace period in the resource that is created if none exists.
const DEFAULT_LEAK_GRACE_PERIOD: Duration = Duration::from_secs(15 * 60);

/// The resource that is created if none exists: every controller, with its defaults written out.
#[must_use]
pub(crate) fn default_spec() -> KubeControllersConfigurationSpec {
    let period = || Some(Text::from_std(DEFAULT_RECONCILER_PERIOD));
    KubeControllersConfigurationSpec {
        log_severity_screen: LogLevel::Info.as_str().into(),
        health_checks: switch(true),
        etcd_v3_compaction_period: Some(Text::from_std(DEFAULT_COMPACTION_PERIOD)),
        controllers: ControllersConfig {
            node: Some(NodeControllerConfig {
                reconciler_period: period(),
                sync_labels: switch(true),
                host_endpoint: Some(AutoHostEndpointConfig {
                    auto_create: switch(false),
                    create_default_host_endpoint: switch(true),
                    ..AutoHostEndpointConfig::default()
                }),
                leak_grace_period: Some(Text::from_std(DEFAULT_LEAK_GRACE_PERIOD)),
                ..NodeControllerConfig::default()
            }),
            policy: Some(PolicyControllerConfig {
                reconciler_period: period(),
                ..PolicyControllerConfig::default()
            }),
            workload_endpoint: Some(WorkloadEndpointControllerConfig {
                reconciler_period: period(),
                ..WorkloadEndpointControllerConfig::default()
            }),
            service_account: Some(ServiceAccountControllerConfig {
                reconciler_period: period(),
                ..ServiceAccountControllerConfig::default()
            }),
            namespace: Some(NamespaceControllerConfig {
                reconciler_period: period(),
                ..NamespaceControllerConfig::default()
            }),
            load_balancer: Some(LoadBalancerControllerConfig {
                assign_ips: AssignIPs::AllServices,
                ..LoadBalancerControllerConfig::default()
            }),
            migration: Some(MigrationControllerConfig {
                policy_name_migrator: switch(true),
                ..MigrationControllerConfig::default()
            }),
            ..ControllersConfig::default()
        },
        ..KubeControllersConfigurationSpec::default()
    }
}

/// Merges both sources. `kubernetes` means that Calico's data are in the Kubernetes API, where nodes and their labels
/// are Kubernetes' own.
#[must_use]
pub(crate) fn merge(
    environment: &EnvironmentSettings,
    spec: &KubeControllersConfigurationSpec,
    kubernetes: bool,
) -> (RunConfig, KubeControllersConfigurationStatus) {
    let mut status = KubeControllersConfigurationStatus::default();
    let mut running = KubeControllersConfigurationSpec::default();
    for name in [
        names::LOG_LEVEL,
        names::ENABLED_CONTROLLERS,
        names::RECONCILER_PERIOD,
        names::COMPACTION_PERIOD,
        names::HEALTH_ENABLED,
    ] {
        used(environment, &mut status, name);
    }

    let log_level = environment.log_level.unwrap_or_else(|| {
        let text = spec.log_severity_screen.as_str();
        LogLevel::from_name(text).unwrap_or_else(|| {
            tracing::warn!(logSeverityScreen = text, "unknown log level; using Info");
            LogLevel::Info
        })
    });
    running.log_severity_screen = log_level.as_str().into();

    let compaction_period = environment
        .compaction_period
        .or_else(|| parsed(spec.etcd_v3_compaction_period.as_ref()))
        .unwrap_or(DEFAULT_COMPACTION_PERIOD);
    running.etcd_v3_compaction_period = Some(Text::from_std(compaction_period));

    let health_enabled =
        environment.health_enabled.unwrap_or(spec.health_checks != EnabledOrDisabled::Disabled);
    running.health_checks = switch(health_enabled);

    let controllers = controllers(environment, spec, kubernetes, &mut running.controllers, &mut status);
    status.running_config = Some(running);
    let metrics_port = spec.prometheus_metrics_port.and_then(|port| u16::try_from(port).ok());
    let config = RunConfig {
        log_level,
        controllers,
        compaction_period,
        health_enabled,
        metrics_port: metrics_port.filter(|port| *port != 0),
    };
    (config, status)
}

fn controllers(
    environment: &EnvironmentSettings,
    spec: &KubeControllersConfigurationSpec,
    kubernetes: bool,
    running: &mut ControllersConfig,
    status: &mut KubeControllersConfigurationStatus,
) -> Controllers {
    let given = &spec.controllers;
    let is_enabled = |name: ControllerName, in_resource: bool| match &environment.enabled {
        Some(Enabled::Controllers(enabled)) => enabled.contains(&name),
        Some(Enabled::FlannelMigration) => false,
        None => in_resource,
    };
    let forced = environment.reconciler_period;
    let mut controllers = Controllers::default();

    // For the four copying controllers, the resource's period applies if the resource has the controller, and the
    // variable's always does.
    macro_rules! copying {
        ($name:ident, $field:ident, $type:ident, $workers:ident) => {
            if is_enabled(ControllerName::$name, given.$field.is_some()) {
                let (period, told) =
                    period(given.$field.as_ref().map(|config| &config.reconciler_period), forced);
                controllers.$field = Some(SyncConfig {
                    reconciler_period: period,
                    workers: environment.$workers.unwrap_or(1),
                });
                running.$field = Some($type { reconciler_period: told, ..$type::default() });
            }
        };
    }
    copying!(Policy, policy, PolicyControllerConfig, policy_workers);
    copying!(
        WorkloadEndpoint,
        workload_endpoint,
        WorkloadEndpointControllerConfig,
        workload_endpoint_workers
    );
    copying!(ServiceAccount, service_account, ServiceAccountControllerConfig, profile_workers);
    copying!(Namespace, namespace, NamespaceControllerConfig, profile_workers);

    if is_enabled(ControllerName::LoadBalancer, given.load_balancer.is_some()) {
        let assign_ips = given
            .load_balancer
            .as_ref()
            .map(|config| config.assign_ips.clone())
            .filter(|assign| !assign.is_unset())
            .unwrap_or(AssignIPs::AllServices);
        running.load_balancer = Some(LoadBalancerControllerConfig {
            assign_ips: assign_ips.clone(),
            ..LoadBalancerControllerConfig::default()
        });
        controllers.load_balancer = Some(LoadBalancerConfig { assign_ips });
    }

    controllers.policy_name_migrator = given
        .migration
        .as_ref()
        .is_none_or(|config| config.policy_name_migrator != EnabledOrDisabled::Disabled);
    running.migration = Some(MigrationControllerConfig {
        policy_name_migrator: switch(controllers.policy_name_migrator),
        ..MigrationControllerConfig::default()
    });

    if is_enabled(ControllerName::Node, given.node.is_some()) {
        let mut told = NodeControllerConfig::default();
        controllers.node = Some(node(environment, given.node.as_ref(), kubernetes, &mut told, status));
        running.node = Some(told);
    }
    controllers
}

fn node(
    environment: &EnvironmentSettings,
    given: Option<&NodeControllerConfig>,
    kubernetes: bool,
    told: &mut NodeControllerConfig,
    status: &mut KubeControllersConfigurationStatus,
) -> NodeConfig {
    let sync_labels = if kubernetes {
        status.environment_vars.insert("DATASTORE_TYPE".to_owned(), "kubernetes".to_owned());
        false
    } else {
        used(environment, status, names::SYNC_NODE_LABELS);
        let in_resource = given.is_none_or(|config| config.sync_labels != EnabledOrDisabled::Disabled);
        environment.sync_node_labels.unwrap_or(in_resource)
    };
    told.sync_labels = switch(sync_labels);

    used(environment, status, names::AUTO_HOST_ENDPOINTS);
    let nothing = HostEndpointsConfig { auto_create: false, create_default: true, templates: Vec::new() };
    let in_resource = given.and_then(|config| config.host_endpoint.as_ref());
    let host_endpoints = match (environment.auto_host_endpoints, in_resource) {
        (Some(true), _) => Some(HostEndpointsConfig { auto_create: true, ..nothing.clone() }),
        (None, Some(config)) => Some(HostEndpointsConfig {
            auto_create: config.auto_create == EnabledOrDisabled::Enabled,
            create_default: matches!(
                config.create_default_host_endpoint,
                Written::Unset | Written::Known(EnabledOrDisabled::Enabled)
            ),
            templates: config.templates.clone(),
        }),
        (Some(false), _) | (None, None) => None,
    };
    told.host_endpoint = host_endpoints.as_ref().map(|config| AutoHostEndpointConfig {
        auto_create: switch(config.auto_create),
        create_default_host_endpoint: switch(config.create_default),
        templates: config.templates.clone(),
        ..AutoHostEndpointConfig::default()
    });

    told.leak_grace_period = given.and_then(|config| config.leak_grace_period.clone());
    NodeConfig {
        sync_labels,
        delete_nodes: !kubernetes,
        host_endpoints: host_endpoints.unwrap_or(nothing),
        leak_grace_period: parsed(told.leak_grace_period.as_ref()),
    }
}

/// The period of a copying controller, and its value in the status. If neither source sets one there is no period:
/// everything is compared at the start, and then followed.
fn period(given: Option<&Option<Text>>, forced: Option<Duration>) -> (Duration, Option<Text>) {
    match (forced, given) {
        (Some(forced), _) => (forced, Some(Text::from_std(forced))),
        (None, Some(given)) => (parsed(given.as_ref()).unwrap_or(DEFAULT_RECONCILER_PERIOD), given.clone()),
        (None, None) => (Duration::ZERO, None),
    }
}

fn used(
    environment: &EnvironmentSettings,
    status: &mut KubeControllersConfigurationStatus,
    name: &'static str,
) {
    if let Some(text) = environment.texts.get(name) {
        status.environment_vars.insert(name.to_owned(), text.clone());
    }
}

/// Parses a duration of the resource. Invalid ones are rejected on writing; if there is one nevertheless, the default
/// applies.
fn parsed(text: Option<&Text>) -> Option<Duration> {
    text?.parse().ok()
}

fn switch(on: bool) -> Written<EnabledOrDisabled> {
    if on { EnabledOrDisabled::Enabled } else { EnabledOrDisabled::Disabled }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;

    fn environment(variables: &[(&'static str, &'static str)]) -> EnvironmentSettings {
        EnvironmentSettings::read(&Variables::new(variables.iter().copied())).expect("good variables")
    }

    fn spec(json: serde_json::Value) -> KubeControllersConfigurationSpec {
        serde_json::from_value(json).expect("a spec")
    }

    #[test]
    fn the_default_resource_runs_everything() {
        let (config, status) = merge(&environment(&[]), &default_spec(), false);
        let period = DEFAULT_RECONCILER_PERIOD;
        let copying = Some(SyncConfig { reconciler_period: period, workers: 1 });
        assert_eq!(config.controllers.namespace, copying);
        assert_eq!(config.controllers.policy, copying);
        assert_eq!(config.controllers.workload_endpoint, copying);
        assert_eq!(config.controllers.service_account, copying);
        let node = config.controllers.node.expect("a node controller");
        assert!(node.sync_labels && node.delete_nodes && !node.host_endpoints.auto_create);
        assert_eq!(node.leak_grace_period, Some(DEFAULT_LEAK_GRACE_PERIOD));
        assert!(config.health_enabled && config.controllers.policy_name_migrator);
        assert_eq!(config.compaction_period, DEFAULT_COMPACTION_PERIOD);
        assert_eq!(config.metrics_port, None);
        // The status equals the default, except for settings that only the environment has, and the node's period,
        // which is not used.
        let mut expected = default_spec();
        if let Some(node) = &mut expected.controllers.node {
            node.reconciler_period = None;
        }
        assert_eq!(status.running_config, Some(expected));
        assert!(status.environment_vars.is_empty());
    }

    #[test]
    fn variables_override_the_resource() {
        let environment = environment(&[
            (names::LOG_LEVEL, "warning"),
            (names::ENABLED_CONTROLLERS, "node,namespace"),
            (names::RECONCILER_PERIOD, "1m45s"),
            (names::COMPACTION_PERIOD, "0"),
            (names::HEALTH_ENABLED, "false"),
            (names::SYNC_NODE_LABELS, "false"),
            (names::AUTO_HOST_ENDPOINTS, "enabled"),
        ]);
        let (config, status) = merge(&environment, &default_spec(), false);
        assert_eq!(config.log_level, LogLevel::Warning);
        assert_eq!(config.compaction_period, Duration::ZERO);
        assert!(!config.health_enabled);
        let controllers = &config.controllers;
        assert!(controllers.policy.is_none() && controllers.load_balancer.is_none());
        assert_eq!(
            controllers.namespace,
            Some(SyncConfig { reconciler_period: Duration::from_secs(105), workers: 1 })
        );
        let node = controllers.node.as_ref().expect("a node controller");
        assert!(!node.sync_labels && node.host_endpoints.auto_create && node.host_endpoints.create_default);
        assert_eq!(status.environment_vars.len(), 7);
        let running = status.running_config.expect("a running configuration");
        assert_eq!(running.log_severity_screen.as_str(), "Warning");
        assert_eq!(running.health_checks, EnabledOrDisabled::Disabled);
        assert!(running.controllers.policy.is_none());
        let period = running.controllers.namespace.and_then(|config| config.reconciler_period);
        assert_eq!(period.map(|period| period.to_string()), Some("1m45s".to_owned()));
    }

    #[test]
    fn defaults_differ_on_kubernetes() {
        let environment = environment(&[(names::SYNC_NODE_LABELS, "true")]);
        let (config, status) = merge(&environment, &default_spec(), true);
        let node = config.controllers.node.expect("a node controller");
        assert!(!node.sync_labels && !node.delete_nodes);
        assert_eq!(
            status.environment_vars,
            [("DATASTORE_TYPE".to_owned(), "kubernetes".to_owned())].into_iter().collect()
        );
    }

    #[test]
    fn controllers_that_the_resource_lacks_do_not_run() {
        let spec = spec(serde_json::json!({
            "logSeverityScreen": "loud",
            "prometheusMetricsPort": 9094,
            "controllers": {
                "node": {"hostEndpoint": {"autoCreate": "Enabled", "createDefaultHostEndpoint": "Disabled"}},
                "migration": {"policyNameMigrator": "Disabled"},
            },
        }));
        let (config, _) = merge(&environment(&[]), &spec, false);
        assert_eq!((config.log_level, config.metrics_port), (LogLevel::Info, Some(9094)));
        assert!(config.controllers.namespace.is_none() && !config.controllers.policy_name_migrator);
        let node = config.controllers.node.expect("a node controller");
        assert!(node.host_endpoints.auto_create && !node.host_endpoints.create_default);
        assert_eq!(node.leak_grace_period, None);
        // A controller that only the variable names compares everything only at the start.
        let environment = environment(&[(names::ENABLED_CONTROLLERS, "policy")]);
        let (config, _) = merge(&environment, &spec, false);
        assert_eq!(
            config.controllers.policy,
            Some(SyncConfig { reconciler_period: Duration::ZERO, workers: 1 })
        );
        assert!(config.controllers.node.is_none());
    }
}
