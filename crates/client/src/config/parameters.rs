//! The table of client settings. The readers and the reference page all walk it, so that they always agree.

use super::environment::variables;
use super::{DatastoreType, Settings};
use settings::kinds::{go_bool, number, plain};

settings::parameters! {
    /// Every setting, in the order of the reference page.
    pub const PARAMETERS: Settings {
        /// The kind of store: `etcdv3`, `kubernetes`, or `embedded` (a file on this machine). Unless set: `etcdv3` when there
        /// are etcd endpoints, `embedded` when there is an embedded path, otherwise `kubernetes`.
        datastore_type: Text = datastore_type, "datastoreType", "DATASTORE_TYPE";
        /// Addresses of etcd, separated by commas.
        etcd.endpoints: Text = plain, "etcdEndpoints", "ETCD_ENDPOINTS";
        /// A domain whose `etcd-client` SRV records name the addresses of etcd. Excludes `etcdEndpoints`.
        etcd.discovery_srv: Text = plain, "etcdDiscoverySrv", "ETCD_DISCOVERY_SRV";
        /// The user for etcd. Used only together with a password.
        etcd.username: Text = plain, "etcdUsername", "ETCD_USERNAME";
        /// The user's password.
        etcd.password: Secret = plain, "etcdPassword", "ETCD_PASSWORD";
        /// The file of the client's private key for etcd.
        etcd.key_file: Text = plain, "etcdKeyFile", "ETCD_KEY_FILE";
        /// The file of the client's certificate for etcd.
        etcd.cert_file: Text = plain, "etcdCertFile", "ETCD_CERT_FILE";
        /// The file of the authority that signed etcd's certificate.
        etcd.ca_cert_file: Text = plain, "etcdCACertFile", "ETCD_CA_CERT_FILE";
        /// The client's private key for etcd, inline. Excludes the files.
        etcd.key: Secret = plain, "etcdKey";
        /// The client's certificate for etcd, inline. Excludes the files.
        etcd.cert: Text = plain, "etcdCert";
        /// The authority of etcd's certificate, inline. Excludes the files.
        etcd.ca_cert: Text = plain, "etcdCACert";
        /// A kubeconfig file, or several separated by colons. Unless set, and with no `k8sAPIEndpoint`: `.kube/config`
        /// in the home directory if it exists, otherwise the service account of the pod.
        kubernetes.kubeconfig: Text = plain, "kubeconfig", "KUBECONFIG";
        /// The address of the Kubernetes API.
        kubernetes.api_endpoint: Text = plain, "k8sAPIEndpoint", "K8S_API_ENDPOINT";
        /// The file of the client's private key for the Kubernetes API.
        kubernetes.key_file: Text = plain, "k8sKeyFile", "K8S_KEY_FILE";
        /// The file of the client's certificate for the Kubernetes API.
        kubernetes.cert_file: Text = plain, "k8sCertFile", "K8S_CERT_FILE";
        /// The file of the authority that signed the Kubernetes API's certificate.
        kubernetes.ca_file: Text = plain, "k8sCAFile", "K8S_CA_FILE";
        /// A bearer token for the Kubernetes API.
        kubernetes.api_token: Secret = plain, "k8sAPIToken", "K8SAPITOKEN";
        /// Whether to accept the Kubernetes API's certificate unchecked. For tests.
        kubernetes.insecure_skip_tls_verify: Bool = go_bool, "k8sInsecureSkipTLSVerify", "K8S_INSECURE_SKIP_TLS_VERIFY";
        /// Accepted for compatibility: nodes are always watched, never polled.
        kubernetes.disable_node_poll: Bool = go_bool, "k8sDisableNodePoll", "K8S_DISABLE_NODE_POLL";
        /// Whether blocks come from the nodes' pod ranges (host-local IPAM) instead of Calico's IPAM.
        kubernetes.use_pod_cidr: Bool = go_bool, "usePodCIDR", "USE_POD_CIDR";
        /// The contents of a kubeconfig file, inline. Takes precedence over `kubeconfig`.
        kubernetes.kubeconfig_inline: Secret = plain, "kubeconfigInline";
        /// Requests per second to the Kubernetes API; 0 for the default.
        kubernetes.client_qps: Number = number, "k8sClientQPS", "K8S_CLIENT_QPS";
        /// Requests to the Kubernetes API that may exceed that rate in a burst; 0 for the default, 100.
        kubernetes.client_burst: Number = number, "k8sClientBurst", "K8S_CLIENT_BURST";
        /// The context of the kubeconfig to use instead of its current one.
        kubernetes.current_context: Text = plain, "k8sCurrentContext", "K8S_CURRENT_CONTEXT";
        /// `projectcalico.org/v3` to keep Calico's data in the custom resources of that group. Unless set, the
        /// Kubernetes API is queried for its group.
        kubernetes.calico_api_group: Text = plain, "calicoAPIGroup", "CALICO_API_GROUP";
        /// The data directory of the embedded store. If a `tortie datastore` serves it, its socket is used; otherwise the
        /// program opens the file itself for as long as it runs.
        embedded_path: Text = plain, "embeddedPath", "EMBEDDED_PATH";
    }
}

fn datastore_type(value: &str) -> Result<Option<DatastoreType>, String> {
    DatastoreType::from_name(value).map(Some).ok_or_else(|| {
        let names: Vec<&str> = DatastoreType::ALL.iter().map(|kind| kind.as_str()).collect();
        format!("unknown datastore type '{value}': must be one of {}", names.join(", "))
    })
}

/// Renders the reference page of the table, as Markdown.
#[must_use]
pub fn reference_page() -> String {
    settings::parameters_page(PARAMETERS, |parameter| variables(parameter).into_iter().rev().collect())
}
