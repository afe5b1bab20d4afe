//! The one table of client settings: the name in the file, the variable, the type, a sentence, and where it goes.
//!
//! The readers and the reference page walk this table, so a setting cannot exist in one of them alone.

use super::{DatastoreType, Settings};
use datastore::Secret;
use std::fmt::Write as _;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Text.
    Text,
    /// Text that is never printed.
    Secret,
    /// True or false.
    Bool,
    /// A number.
    Number,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The field below `spec` in the file.
    pub field: &'static str,
    /// The variable without its prefix; `None` for what only a file may hold.
    pub variable: Option<&'static str>,
    /// Whether only the variable with Calico's prefix counts.
    pub prefixed_only: bool,
    /// How the value is written.
    pub value_type: ValueType,
    /// What it is, for the reference page.
    pub doc: &'static str,
    /// Parses a value that is not empty and stores it.
    pub(super) set: fn(&mut Settings, &str) -> Result<(), String>,
}

const fn text(
    field: &'static str,
    variable: &'static str,
    doc: &'static str,
    set: fn(&mut Settings, &str) -> Result<(), String>,
) -> Parameter {
    Parameter { field, variable: Some(variable), prefixed_only: false, value_type: ValueType::Text, doc, set }
}

impl Parameter {
    const fn of_type(mut self, value_type: ValueType) -> Self {
        self.value_type = value_type;
        self
    }

    const fn file_only(mut self) -> Self {
        self.variable = None;
        self
    }

    const fn prefixed_only(mut self) -> Self {
        self.prefixed_only = true;
        self
    }
}

/// A setter that keeps the text.
macro_rules! keep {
    ($($path:ident).+) => {
        |settings, value| {
            value.clone_into(&mut settings.$($path).+);
            Ok(())
        }
    };
}

/// A setter that hides the text.
macro_rules! hide {
    ($($path:ident).+) => {
        |settings, value| {
            settings.$($path).+ = Secret::new(value);
            Ok(())
        }
    };
}

/// A setter that parses the text.
macro_rules! parse {
    ($parser:ident, $($path:ident).+) => {
        |settings, value| {
            settings.$($path).+ = $parser(value)?;
            Ok(())
        }
    };
}

/// Every setting, in the order of the reference page.
pub const PARAMETERS: &[Parameter] = &[
    text(
        "datastoreType",
        "DATASTORE_TYPE",
        "The kind of store: `etcdv3`, `kubernetes`, or `embedded` (a file on this machine). Unless set: `etcdv3` when \
         there are etcd endpoints, `embedded` when there is an embedded path, otherwise `kubernetes`.",
        |settings, value| {
            settings.datastore_type = Some(datastore_type(value)?);
            Ok(())
        },
    ),
    text("etcdEndpoints", "ETCD_ENDPOINTS", "Addresses of etcd, separated by commas.", keep!(etcd.endpoints)),
    text(
        "etcdDiscoverySrv",
        "ETCD_DISCOVERY_SRV",
        "A domain whose `etcd-client` SRV records name the addresses of etcd. Excludes `etcdEndpoints`.",
        keep!(etcd.discovery_srv),
    ),
    text(
        "etcdUsername",
        "ETCD_USERNAME",
        "The user for etcd. Used together with a password only.",
        keep!(etcd.username),
    ),
    text("etcdPassword", "ETCD_PASSWORD", "The user's password.", hide!(etcd.password))
        .of_type(ValueType::Secret),
    text(
        "etcdKeyFile",
        "ETCD_KEY_FILE",
        "The file of the client's private key for etcd.",
        keep!(etcd.key_file),
    ),
    text(
        "etcdCertFile",
        "ETCD_CERT_FILE",
        "The file of the client's certificate for etcd.",
        keep!(etcd.cert_file),
    ),
    text(
        "etcdCACertFile",
        "ETCD_CA_CERT_FILE",
        "The file of the authority that signed etcd's certificate.",
        keep!(etcd.ca_cert_file),
    ),
    text("etcdKey", "", "The client's private key for etcd, in place. Excludes the files.", hide!(etcd.key))
        .of_type(ValueType::Secret)
        .file_only(),
    text(
        "etcdCert",
        "",
        "The client's certificate for etcd, in place. Excludes the files.",
        keep!(etcd.cert),
    )
    .file_only(),
    text(
        "etcdCACert",
        "",
        "The authority of etcd's certificate, in place. Excludes the files.",
        keep!(etcd.ca_cert),
    )
    .file_only(),
    text(
        "kubeconfig",
        "KUBECONFIG",
        "A kubeconfig file, or several separated by colons. Unless set, and with no `k8sAPIEndpoint`: `.kube/config` of \
         the home directory if it is there, otherwise the service account of the pod.",
        keep!(kubernetes.kubeconfig),
    ),
    text(
        "k8sAPIEndpoint",
        "K8S_API_ENDPOINT",
        "The address of the Kubernetes API.",
        keep!(kubernetes.api_endpoint),
    ),
    text(
        "k8sKeyFile",
        "K8S_KEY_FILE",
        "The file of the client's private key for the Kubernetes API.",
        keep!(kubernetes.key_file),
    ),
    text(
        "k8sCertFile",
        "K8S_CERT_FILE",
        "The file of the client's certificate for the Kubernetes API.",
        keep!(kubernetes.cert_file),
    ),
    text(
        "k8sCAFile",
        "K8S_CA_FILE",
        "The file of the authority that signed the Kubernetes API's certificate.",
        keep!(kubernetes.ca_file),
    ),
    text("k8sAPIToken", "K8SAPITOKEN", "A bearer token for the Kubernetes API.", hide!(kubernetes.api_token))
        .of_type(ValueType::Secret)
        .prefixed_only(),
    text(
        "k8sInsecureSkipTLSVerify",
        "K8S_INSECURE_SKIP_TLS_VERIFY",
        "Whether the Kubernetes API's certificate is accepted unchecked. For tests.",
        parse!(boolean, kubernetes.insecure_skip_tls_verify),
    )
    .of_type(ValueType::Bool),
    text(
        "k8sDisableNodePoll",
        "K8S_DISABLE_NODE_POLL",
        "Accepted for compatibility: nodes are always watched, never polled.",
        parse!(boolean, kubernetes.disable_node_poll),
    )
    .of_type(ValueType::Bool),
    text(
        "usePodCIDR",
        "USE_POD_CIDR",
        "Whether blocks come from the nodes' pod ranges (host-local IPAM) instead of Calico's IPAM.",
        parse!(boolean, kubernetes.use_pod_cidr),
    )
    .of_type(ValueType::Bool),
    text(
        "kubeconfigInline",
        "",
        "The contents of a kubeconfig file, in place. Wins over `kubeconfig`.",
        hide!(kubernetes.kubeconfig_inline),
    )
    .of_type(ValueType::Secret)
    .file_only(),
    text(
        "k8sClientQPS",
        "K8S_CLIENT_QPS",
        "Requests per second to the Kubernetes API; 0 for the default.",
        parse!(number, kubernetes.client_qps),
    )
    .of_type(ValueType::Number),
    text(
        "k8sClientBurst",
        "K8S_CLIENT_BURST",
        "Requests to the Kubernetes API that may exceed that rate at once; 0 for the default, 100.",
        parse!(whole_number, kubernetes.client_burst),
    )
    .of_type(ValueType::Number),
    text(
        "k8sCurrentContext",
        "K8S_CURRENT_CONTEXT",
        "The context of the kubeconfig to use instead of its current one.",
        keep!(kubernetes.current_context),
    ),
    text(
        "calicoAPIGroup",
        "CALICO_API_GROUP",
        "`projectcalico.org/v3` to keep Calico's data in the custom resources of that group. Unless set, the Kubernetes \
         API is asked which group it has.",
        keep!(kubernetes.calico_api_group),
    ),
    text(
        "embeddedPath",
        "EMBEDDED_PATH",
        "The data directory of the embedded store. If a `tortie datastore` serves it, its socket is used; otherwise the \
         program opens the file itself for as long as it runs.",
        keep!(embedded_path),
    ),
];

fn datastore_type(value: &str) -> Result<DatastoreType, String> {
    DatastoreType::from_name(value).ok_or_else(|| {
        let names: Vec<&str> = DatastoreType::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("unknown datastore type '{value}': must be one of {}", names.join(", "))
    })
}

/// Go's spellings of a truth value, which is what scripts for Calico may use.
fn boolean(value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        other => Err(format!("'{other}' is neither true nor false")),
    }
}

fn number(value: &str) -> Result<f32, String> {
    value.parse().map_err(|_| format!("'{value}' is not a number"))
}

fn whole_number(value: &str) -> Result<i64, String> {
    value.parse().map_err(|_| format!("'{value}' is not a whole number"))
}

/// The reference page of the table, as Markdown.
#[must_use]
pub fn reference_page() -> String {
    let mut page = String::from("| Field | Variable | Type | Meaning |\n| --- | --- | --- | --- |\n");
    for parameter in PARAMETERS {
        let variables: Vec<String> =
            parameter.variables().iter().rev().map(|name| format!("`{name}`")).collect();
        let variables = if variables.is_empty() { "(file only)".to_owned() } else { variables.join(", ") };
        let value_type = match parameter.value_type {
            ValueType::Text => "text",
            ValueType::Secret => "secret",
            ValueType::Bool => "true or false",
            ValueType::Number => "number",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{}` | {variables} | {value_type} | {} |", parameter.field, parameter.doc);
    }
    page
}
