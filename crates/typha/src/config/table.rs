//! The table of parameters, and the reference page generated from it.

use super::kinds::{
    Given, Idle, Marked, client_auth, count, datastore_type, existing_file, flag, lenient, rebalancing,
    scheme, seconds, severity, strict,
};
use client::DatastoreType;
use daemon::log::LevelFilter;
use settings::ClientAuth;
use settings::kinds::{number, plain};
use std::fmt::Write as _;
use std::time::Duration;

settings::settings! {
    /// Every parameter, in the order of Calico's reference. An unused field does not compile, except those that begin
    /// with `_`: setting them causes a warning.
    #[derive(Clone, Debug)]
    pub(crate) struct Parameters, ROWS {
        /// The datastore.
        datastore_type: Given<Option<DatastoreType>> = Marked(strict(datastore_type)), "DatastoreType", "etcdv3";
        /// Host and port of etcd, unless `EtcdEndpoints` is set.
        etcd_addr: Given<String> = Marked(lenient(plain)), "EtcdAddr", "127.0.0.1:2379";
        /// The scheme for `EtcdAddr`.
        etcd_scheme: &'static str = lenient(scheme), "EtcdScheme", "http";
        /// The private key for etcd.
        etcd_key_file: Given<String> = Marked(strict(existing_file)), "EtcdKeyFile", "";
        /// The certificate for etcd.
        etcd_cert_file: Given<String> = Marked(strict(existing_file)), "EtcdCertFile", "";
        /// The certificate authority of etcd.
        etcd_ca_file: Given<String> = Marked(strict(existing_file)), "EtcdCaFile", "";
        /// The endpoints of etcd, separated by commas.
        etcd_endpoints: Given<String> = Marked(lenient(plain)), "EtcdEndpoints", "";
        /// The log file; `none` for none.
        log_file_path: String = lenient(plain), "LogFilePath", "/var/log/calico/typha.log";
        /// The least severe messages in the file.
        log_severity_file: Option<LevelFilter> = lenient(severity), "LogSeverityFile", "INFO";
        /// The least severe messages on standard error.
        log_severity_screen: Option<LevelFilter> = lenient(severity), "LogSeverityScreen", "INFO";
        /// The least severe messages for syslog.
        log_severity_sys: Option<LevelFilter> = lenient(severity), "LogSeveritySys", "INFO";
        /// Whether `/liveness` and `/readiness` are served.
        health_enabled: bool = lenient(flag), "HealthEnabled", "false";
        /// The host on which they are served.
        health_host: String = lenient(plain), "HealthHost", "localhost";
        /// The port for `/liveness` and `/readiness`.
        health_port: u16 = lenient(number), "HealthPort", "9098";
        /// Whether metrics are served.
        prometheus_metrics_enabled: bool = lenient(flag), "PrometheusMetricsEnabled", "false";
        /// The host on which metrics are served; all addresses unless set.
        prometheus_metrics_host: String = lenient(plain), "PrometheusMetricsHost", "";
        /// The port for metrics.
        prometheus_metrics_port: u16 = lenient(number), "PrometheusMetricsPort", "9093";
        /// Metrics of Go's runtime: this is not a Go program. Without effect; a warning says so.
        _prometheus_go_metrics_enabled: () = Idle, "PrometheusGoMetricsEnabled", "true";
        /// Whether they include metrics of the process: CPU, memory, open files.
        prometheus_process_metrics_enabled: bool = lenient(flag), "PrometheusProcessMetricsEnabled", "true";
        /// The authority of clients that may read metrics.
        prometheus_metrics_ca_file: String = lenient(plain), "PrometheusMetricsCAFile", "";
        /// The certificate for metrics.
        prometheus_metrics_cert_file: String = lenient(plain), "PrometheusMetricsCertFile", "";
        /// The private key for metrics.
        prometheus_metrics_key_file: String = lenient(plain), "PrometheusMetricsKeyFile", "";
        /// How clients of metrics are authenticated.
        prometheus_metrics_client_auth: ClientAuth = lenient(client_auth),
            "PrometheusMetricsClientAuth", "NoClientCert";
        /// Maximum number of changes in one message.
        snapshot_cache_max_batch_size: usize = lenient(count), "SnapshotCacheMaxBatchSize", "100";
        /// Maximum number of entries in one message.
        server_max_message_size: usize = lenient(count), "ServerMaxMessageSize", "100";
        /// How far behind a client may be.
        server_max_fall_behind_secs: Duration = lenient(seconds), "ServerMaxFallBehindSecs", "300";
        /// How long a new client may be further behind than that.
        server_new_client_fall_behind_grace_period: Duration = lenient(seconds),
            "ServerNewClientFallBehindGracePeriod", "300";
        /// The age from which changes are merged for a client: messages are shared by all clients here, and never
        /// merged. Without effect; a warning says so.
        _server_min_batching_age_threshold_secs: () = Idle, "ServerMinBatchingAgeThresholdSecs", "0.01";
        /// How often clients are pinged.
        server_ping_interval_secs: Duration = lenient(seconds), "ServerPingIntervalSecs", "10";
        /// How long they may take to answer a ping.
        server_pong_timeout_secs: Duration = lenient(seconds), "ServerPongTimeoutSecs", "60";
        /// How long the TLS handshake and the hello may take.
        server_handshake_timeout_secs: Duration = lenient(seconds), "ServerHandshakeTimeoutSecs", "10";
        /// How long a client may take to read.
        server_write_timeout_secs: Duration = lenient(seconds), "ServerWriteTimeoutSecs", "120";
        /// The port for clients; 0 for 5473.
        server_port: u16 = lenient(number), "ServerPort", "0";
        /// The host on which clients connect; all addresses unless set.
        server_host: String = lenient(plain), "ServerHost", "";
        /// The private key for clients. Setting one TLS parameter requires all others.
        server_key_file: String = strict(existing_file), "ServerKeyFile", "";
        /// The certificate for clients.
        server_cert_file: String = strict(existing_file), "ServerCertFile", "";
        /// The authority of clients.
        ca_file: String = strict(existing_file), "CAFile", "";
        /// The common name of clients; this or `ClientURISAN` is needed with TLS.
        client_cn: String = lenient(plain), "ClientCN", "";
        /// The URI of clients; this or `ClientCN` is needed with TLS.
        client_uri_san: String = lenient(plain), "ClientURISAN", "";
        /// The file that the process's memory profile is written to on SIGUSR1; `<timestamp>` in it is replaced by the
        /// time.
        debug_memory_profile_path: String = lenient(plain), "DebugMemoryProfilePath", "";
        /// Whether the log blocks instead of dropping messages: it always does. Without effect; a warning says so.
        _debug_disable_log_dropping: () = Idle, "DebugDisableLogDropping", "false";
        /// The host on which Go's profiler is served. Without effect; a warning says so.
        _debug_host: () = Idle, "DebugHost", "localhost";
        /// The port of Go's profiler. Without effect; a warning says so.
        _debug_port: () = Idle, "DebugPort", "0";
        /// Whether clients are balanced with the other Typhas of the service.
        connection_rebalancing_mode: bool = lenient(rebalancing), "ConnectionRebalancingMode", "none";
        /// How often an excess client is disconnected.
        connection_drop_interval_secs: Duration = lenient(seconds), "ConnectionDropIntervalSecs", "1";
        /// How long shutting down may take.
        shutdown_timeout_secs: Duration = lenient(seconds), "ShutdownTimeoutSecs", "300";
        /// The longest pause between two disconnected clients during shutdown.
        shutdown_connection_drop_interval_max_secs: Duration = lenient(seconds),
            "ShutdownConnectionDropIntervalMaxSecs", "1";
        /// Maximum number of connections.
        max_connections_upper_limit: usize = lenient(count), "MaxConnectionsUpperLimit", "10000";
        /// At least this many connections are always kept.
        max_connections_lower_limit: usize = lenient(count), "MaxConnectionsLowerLimit", "400";
        /// How often the other Typhas are counted.
        k8s_service_poll_interval_secs: Duration = lenient(seconds), "K8sServicePollIntervalSecs", "30";
        /// The namespace of Typha's service.
        k8s_namespace: String = lenient(plain), "K8sNamespace", "kube-system";
        /// The name of Typha's service.
        k8s_service_name: String = lenient(plain), "K8sServiceName", "calico-typha";
        /// The name of the service's port.
        k8s_port_name: String = lenient(plain), "K8sPortName", "calico-typha";
    }
}

/// Renders the reference page of the table, as Markdown.
#[must_use]
pub fn reference_page() -> String {
    let mut page = String::from("| Parameter | Variable | Default | Meaning |\n| --- | --- | --- | --- |\n");
    for settings::Row { name, default, doc, .. } in ROWS {
        let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{name}` | `TYPHA_{}` | {default} | {doc} |", name.to_ascii_uppercase());
    }
    page
}
