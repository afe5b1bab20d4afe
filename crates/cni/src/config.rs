//! The network configuration that the runtime passes: Calico's fields, typed, along with the whole document for the
//! plugins that we delegate to.
//!
//! Unknown fields are ignored (the runtime and other plugins have their own). A known field of an unexpected type is an
//! error. `null` means "not given", as in Go.

use crate::error::{CniError, Result, code};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

settings::document! {
    /// A network configuration.
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(default)]
    pub struct NetConf {
        /// The protocol version.
        #[serde(rename = "cniVersion")]
        pub cni_version: String,
        /// The network's name.
        pub name: String,
        /// How addresses are managed.
        pub ipam: IpamConf,
        /// Requests per second to the Kubernetes API; 0 for the default.
        pub qps: i64,
        /// How many Kubernetes API requests may exceed that rate in a burst.
        pub burst: i64,
        /// Information from Mesos about the container.
        pub args: Args,
        /// The MTU; 0 for the one that the node's agent determined.
        pub mtu: i64,
        /// How many queues the pod's interface has.
        pub num_queues: i64,
        /// The node's name.
        pub nodename: String,
        /// The file that holds the node's name.
        pub nodename_file: String,
        /// Whether work may start before that file exists.
        pub nodename_file_optional: bool,
        /// An old name for `nodename`.
        pub hostname: String,
        /// The lock file by which plugins of this host take turns.
        pub ipam_lock_file: String,
        /// The type of the datastore.
        pub datastore_type: String,
        /// etcd's endpoints.
        pub etcd_endpoints: String,
        /// The domain whose SRV records name etcd's endpoints.
        pub etcd_discovery_srv: String,
        /// An old form of `etcd_endpoints`.
        pub etcd_authority: String,
        /// The scheme for `etcd_authority`.
        pub etcd_scheme: String,
        /// The file with our key for etcd.
        pub etcd_key_file: String,
        /// The file with our certificate for etcd.
        pub etcd_cert_file: String,
        /// The file with the certificate authority of etcd.
        pub etcd_ca_cert_file: String,
        /// The data directory of the embedded store; not a field of Calico's.
        pub embedded_path: String,
        /// The log level: debug, info or error.
        pub log_level: String,
        /// The file that the log is appended to.
        pub log_file_path: String,
        /// The maximum size of a log file, in MB.
        pub log_file_max_size: i64,
        /// How many days old log files are kept.
        pub log_file_max_age: i64,
        /// How many old log files are kept.
        pub log_file_max_count: i64,
        /// Where policy comes from.
        pub policy: Policy,
        /// How to reach Kubernetes.
        pub kubernetes: Kubernetes,
        /// Features that are off by default.
        pub feature_control: FeatureControl,
        /// Settings inside the container.
        pub container_settings: ContainerSettings,
        /// Whether there are default routes in addition to custom ones.
        pub include_default_routes: bool,
        /// Selects and configures the dataplane that does the wiring.
        pub dataplane_options: BTreeMap<String, Value>,
        /// The kind of the pod's interface: veth or netkit.
        pub device_type: String,
        /// Limits a node to one block; Windows' setting, which address management honours on every platform.
        pub windows_use_single_network: bool,
        /// Addresses that must answer before an ADD.
        pub readiness_gates: Vec<String>,
        /// How long an ADD waits until policy is in place; 0 for not at all.
        pub policy_setup_timeout_seconds: i64,
        /// The folder where the agent reports that policy is in place.
        pub endpoint_status_dir: String,
        /// Whether the file with the node's MTU must exist.
        pub require_mtu_file: bool,
        /// The API group of Calico's objects.
        pub calico_api_group: String,
        /// The socket of the node's agent; not a field of Calico's. Empty for the default path, `none` for never.
        pub agent_socket: String,
        /// The result of the previous plugin in the chain, or (CHECK, DEL) the result of ADD.
        #[serde(rename = "prevResult")]
        pub previous_result: Option<Value>,
        /// The attachments that are still valid (GC).
        #[serde(rename = "cni.dev/valid-attachments")]
        pub valid_attachments: Vec<Attachment>,
    }

    /// One attachment of a container to this network.
    #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
    #[serde(default)]
    pub struct Attachment {
        /// The container's id.
        #[serde(rename = "containerID")]
        pub container_id: String,
        /// The name of the interface in the container.
        pub ifname: String,
    }

    /// How addresses are managed.
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(default)]
    pub struct IpamConf {
        /// The name of the IPAM plugin.
        #[serde(rename = "type")]
        pub kind: String,
        /// "false" for no IPv4 address.
        pub assign_ipv4: Option<String>,
        /// "true" for an IPv6 address.
        pub assign_ipv6: Option<String>,
        /// Only from these IPv4 pools, by name or range.
        pub ipv4_pools: Vec<String>,
        /// Only from these IPv6 pools, by name or range.
        pub ipv6_pools: Vec<String>,
    }

    /// Where policy comes from, and older places for Kubernetes' credentials.
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(default)]
    pub struct Policy {
        /// `k8s`, or empty for a profile per network.
        #[serde(rename = "type")]
        pub kind: String,
        /// The address of the API.
        pub k8s_api_root: String,
        /// A bearer token.
        #[serde(deserialize_with = "secret")]
        #[words = "secret text"]
        pub k8s_auth_token: datastore::Secret,
        /// The file with our certificate.
        pub k8s_client_certificate: String,
        /// The file with our key.
        pub k8s_client_key: String,
        /// The file with the certificate authority of the API.
        pub k8s_certificate_authority: String,
    }

    /// How to reach Kubernetes.
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(default)]
    pub struct Kubernetes {
        /// The address of the API.
        pub k8s_api_root: String,
        /// A kubeconfig file.
        pub kubeconfig: String,
        /// The node's name in Kubernetes, if it differs.
        pub node_name: String,
    }

    /// Features that are off by default.
    #[derive(Clone, Copy, Debug, Default, Deserialize)]
    #[serde(default)]
    pub struct FeatureControl {
        /// Whether a pod may bring unmanaged addresses.
        pub ip_addrs_no_ipam: bool,
        /// Whether a pod may have floating addresses.
        pub floating_ips: bool,
    }

    /// Settings inside the container.
    #[derive(Clone, Copy, Debug, Default, Deserialize)]
    #[serde(default)]
    pub struct ContainerSettings {
        /// Whether the container may forward packets.
        pub allow_ip_forwarding: bool,
    }

    /// Information from orchestrators about the container.
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(default)]
    pub struct Args {
        /// Mesos' part.
        #[serde(rename = "org.apache.mesos")]
        pub mesos: Mesos,
    }

    /// Mesos' information about the container.
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(default)]
    pub struct Mesos {
        /// Mesos' information about the network.
        pub network_info: NetworkInfo,
    }

    /// Mesos' information about the network.
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(default)]
    pub struct NetworkInfo {
        /// The container's labels.
        pub labels: Labels,
    }

    /// A list of labels, nested one level deeper than necessary.
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(default)]
    pub struct Labels {
        /// The labels.
        pub labels: Vec<Label>,
    }

    /// One label.
    #[derive(Clone, Debug, Default, Deserialize)]
    #[serde(default)]
    pub struct Label {
        /// The label's name.
        pub key: String,
        /// The label's value.
        pub value: String,
    }
}

/// What wires the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dataplane {
    /// This plugin, using netlink.
    Linux,
    /// An external service that listens on this socket.
    Grpc(String),
}

/// The kind of device that a pod gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceType {
    /// A pair of Ethernet devices.
    #[default]
    Veth,
    /// A pair of netkit devices, if the kernel supports them.
    Netkit,
}

impl NetConf {
    /// Reads a configuration.
    ///
    /// # Errors
    /// When the document is not JSON, or a field has an unexpected type.
    pub fn parse(document: &Value) -> Result<Self> {
        let mut document = document.clone();
        drop_nulls(&mut document);
        Self::deserialize(&document).map_err(|error| {
            CniError::new(code::DECODING_FAILURE, format!("failed to load netconf: {error}"))
                .with_details("correct the field in the CNI network configuration file")
        })
    }

    /// Whether Kubernetes provides policy and labels.
    #[must_use]
    pub fn is_kubernetes_policy(&self) -> bool {
        self.policy.kind == api::words::KUBERNETES
    }

    /// Whether Calico's own IPAM provides addresses.
    #[must_use]
    pub fn is_calico_ipam(&self) -> bool {
        self.ipam.kind == "calico-ipam"
    }

    /// What wires the pod.
    ///
    /// # Errors
    /// When the configured dataplane type is unknown.
    pub fn dataplane(&self) -> Result<Dataplane> {
        match self.dataplane_options.get("type") {
            None => Ok(Dataplane::Linux),
            Some(Value::String(kind)) if kind == "grpc" => {
                match self.dataplane_options.get("socket").and_then(Value::as_str) {
                    Some(socket) if !socket.is_empty() => Ok(Dataplane::Grpc(socket.to_owned())),
                    _ => Err(CniError::new(
                        code::INVALID_CONFIGURATION,
                        "dataplane_options: socket must be set for type grpc",
                    )),
                }
            }
            Some(other) => {
                let kind = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
                Err(CniError::new(code::UNSUPPORTED_FIELD, format!("invalid dataplane type: {kind}"))
                    .with_details("dataplane_options.type may be absent or \"grpc\""))
            }
        }
    }

    /// The kind of device that a pod gets.
    ///
    /// # Errors
    /// When the configured kind is unknown.
    pub fn device(&self) -> Result<DeviceType> {
        match self.device_type.as_str() {
            "" | "veth" => Ok(DeviceType::Veth),
            "netkit" => Ok(DeviceType::Netkit),
            other => Err(CniError::new(
                code::UNSUPPORTED_FIELD,
                format!("unknown device_type {other:?} in CNI config (supported: \"veth\", \"netkit\")"),
            )),
        }
    }

    /// The environment variables that configure the client's datastore; those of the configuration override the
    /// process's.
    #[must_use]
    pub fn client_variables(&self) -> BTreeMap<&'static str, String> {
        let number = |value: i64| if value == 0 { String::new() } else { value.to_string() };
        [
            ("ETCD_AUTHORITY", self.etcd_authority.clone()),
            ("ETCD_ENDPOINTS", self.etcd_endpoints.clone()),
            ("ETCD_DISCOVERY_SRV", self.etcd_discovery_srv.clone()),
            ("ETCD_SCHEME", self.etcd_scheme.clone()),
            ("ETCD_KEY_FILE", self.etcd_key_file.clone()),
            ("ETCD_CERT_FILE", self.etcd_cert_file.clone()),
            ("ETCD_CA_CERT_FILE", self.etcd_ca_cert_file.clone()),
            ("EMBEDDED_PATH", self.embedded_path.clone()),
            ("DATASTORE_TYPE", self.datastore_type.clone()),
            ("KUBECONFIG", self.kubernetes.kubeconfig.clone()),
            ("K8S_API_ENDPOINT", self.kubernetes.k8s_api_root.clone()),
            ("K8S_API_TOKEN", self.policy.k8s_auth_token.expose().to_owned()),
            ("CALICO_API_GROUP", self.calico_api_group.clone()),
            ("K8S_CLIENT_QPS", number(self.qps)),
            ("K8S_CLIENT_BURST", number(self.burst)),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect()
    }
}

fn secret<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<datastore::Secret, D::Error> {
    String::deserialize(deserializer).map(datastore::Secret::from)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{Dataplane, DeviceType, NetConf};
    use serde_json::json;

    #[test]
    fn calicos_conflist_entry() {
        let conf = NetConf::parse(&json!({
            "name": "k8s-pod-network", "cniVersion": "1.0.0", "type": "calico", "log_level": "info",
            "log_file_path": "/var/log/calico/cni/cni.log", "datastore_type": "kubernetes", "nodename": "n1", "mtu": 0,
            "ipam": {"type": "calico-ipam", "assign_ipv6": "true", "subnet": null},
            "policy": {"type": "k8s", "k8s_auth_token": "hush"}, "kubernetes": {"kubeconfig": "/etc/cni/net.d/calico-kubeconfig"},
            "container_settings": {"allow_ip_forwarding": true}, "runtimeConfig": {"dns": {}}, "unknown": [1]
        }))
        .unwrap();
        assert!(
            conf.is_calico_ipam()
                && conf.is_kubernetes_policy()
                && conf.container_settings.allow_ip_forwarding
        );
        let variables = conf.client_variables();
        assert_eq!(variables["KUBECONFIG"], "/etc/cni/net.d/calico-kubeconfig");
        assert_eq!(variables["K8S_API_TOKEN"], "hush");
        assert!(!variables.contains_key("ETCD_ENDPOINTS"));
        assert!(!format!("{conf:?}").contains("hush"));
        assert_eq!((conf.dataplane().unwrap(), conf.device().unwrap()), (Dataplane::Linux, DeviceType::Veth));
    }

    #[test]
    fn errors_name_the_mistake() {
        let error = NetConf::parse(&json!({"mtu": "1500"})).unwrap_err();
        assert!(error.code == 6 && error.msg.contains("failed to load netconf"), "{error}");
        let conf = |value| NetConf::parse(&value).unwrap();
        assert_eq!(
            conf(json!({"dataplane_options": {"type": "vpp"}})).dataplane().unwrap_err().msg,
            "invalid dataplane type: vpp"
        );
        assert!(conf(json!({"dataplane_options": {"type": "grpc"}})).dataplane().is_err());
        let grpc = json!({"dataplane_options": {"type": "grpc", "socket": "unix:///x"}});
        assert_eq!(conf(grpc).dataplane().unwrap(), Dataplane::Grpc("unix:///x".into()));
        assert!(
            conf(json!({"device_type": "tap"}))
                .device()
                .unwrap_err()
                .msg
                .contains("unknown device_type \"tap\"")
        );
    }
}
