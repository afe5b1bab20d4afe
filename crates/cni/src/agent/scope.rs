//! What the agent may do for a plugin, and what only a process on the host can do.
//!
//! The agent runs in a container of its own: it shares only the host's network, `/var/lib/calico` and
//! `/var/run/calico`. Programs and files that a configuration names belong to the host, and the agent either does not
//! see them or sees others under the same name. So it leaves such calls to the plugin, and also those that its own
//! account may not carry out. Both sides check this, because either may be of an older version.
//!
//! | fields | why the agent does not need them |
//! | --- | --- |
//! | `etcd_*_file`, `kubernetes`, `policy.k8s_*` with the datastore in Kubernetes | the agent has credentials of its own |
//! | `ipam_lock_file` | calls of one agent share writes; compare-and-swap keeps addresses apart |
//! | `mtu`, `require_mtu_file`, the usual `nodename_file` and `endpoint_status_dir` | in the two shared folders |
//! | `log_*` | the plugin and the agent log separately |

use crate::config::NetConf;
use crate::host::HostPaths;
use crate::identity::Identity;
use crate::ipam::machine;
use crate::request::{Command, Request};
use crate::run::Program;
use crate::store;
use std::path::Path;

/// Returns the reason why this call is not for the agent, or `None` if it is.
#[must_use]
pub(crate) fn only_for_the_plugin(program: Program, request: &Request) -> Option<String> {
    let conf = &request.conf;
    if program == Program::Plugin
        && let Some(reason) = host_programs(conf)
    {
        return Some(reason);
    }
    if !conf.nodename_file.is_empty() && Path::new(&conf.nodename_file) != usual().nodename {
        return Some(format!("nodename_file {} is a file of the host", conf.nodename_file));
    }
    // If the datastore is the Kubernetes API, its connection serves both purposes; otherwise there is a second
    // connection.
    if !store::is_on_kubernetes(conf, &request.environment) && has_kubernetes_settings(conf) {
        return Some("the credentials for Kubernetes are files of the host".to_owned());
    }
    needs_machines(request).then(|| "only the plugin's account may read KubeVirt's machines".to_owned())
}

/// Whether a release needs something that only a plugin on the host has. The journal contains everything else.
#[must_use]
pub(crate) fn is_release_for_plugins(request: &Request) -> bool {
    needs_machines(request)
}

fn host_programs(conf: &NetConf) -> Option<String> {
    if !conf.is_calico_ipam() {
        return Some(format!("IPAM plugin {:?} is a program of the host", conf.ipam.kind));
    }
    if conf.dataplane_options.contains_key("type") {
        return Some("the dataplane's socket is on the host".to_owned());
    }
    if !conf.readiness_gates.is_empty() {
        return Some("readiness gates are looked up and verified with the host's files".to_owned());
    }
    if !conf.endpoint_status_dir.is_empty() && Path::new(&conf.endpoint_status_dir) != usual().endpoint_status
    {
        return Some(format!("endpoint_status_dir {} is a folder of the host", conf.endpoint_status_dir));
    }
    None
}

/// The default paths, as a configuration would name them.
fn usual() -> HostPaths {
    HostPaths::below(Path::new("/"))
}

fn has_kubernetes_settings(conf: &NetConf) -> bool {
    let (policy, kubernetes) = (&conf.policy, &conf.kubernetes);
    let files = [
        &kubernetes.kubeconfig,
        &kubernetes.k8s_api_root,
        &policy.k8s_api_root,
        &policy.k8s_client_certificate,
        &policy.k8s_client_key,
        &policy.k8s_certificate_authority,
    ];
    conf.is_kubernetes_policy()
        || !policy.k8s_auth_token.expose().is_empty()
        || files.iter().any(|file| !file.is_empty())
}

/// Whether this is a pod of KubeVirt: Calico's manifests let the plugin's account read machines, but not the node's.
fn needs_machines(request: &Request) -> bool {
    matches!(request.command, Command::Add | Command::Del)
        && request.conf.is_calico_ipam()
        && machine::may_run_one(&Identity::of(request, ""))
}

#[cfg(test)]
mod tests {
    use super::only_for_the_plugin;
    use crate::request::{Environment, Request};
    use crate::run::Program;
    use serde_json::{Value, json};

    fn request(args: &str, changes: &Value) -> Request {
        let environment: Environment = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_NETNS", "/x"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
            ("CNI_ARGS", args),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let mut document = json!({"name": "net", "cniVersion": "1.0.0", "ipam": {"type": "calico-ipam"},
            "datastore_type": "kubernetes"});
        for (name, value) in changes.as_object().unwrap() {
            document[name] = value.clone();
        }
        Request::read(&environment, document.to_string().as_bytes()).unwrap()
    }

    const POD: &str = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web";

    #[test]
    fn configurations_that_name_host_files_are_for_the_plugin() {
        for (changes, part) in [
            (json!({"ipam": {"type": "host-local", "subnet": "usePodCidr"}}), "host-local"),
            (json!({"ipam": {"type": "azure-vnet-ipam"}}), "azure-vnet-ipam"),
            (json!({"ipam": {}}), "program of the host"),
            (json!({"dataplane_options": {"type": "grpc", "socket": "unix:///x"}}), "socket"),
            (json!({"readiness_gates": ["http://localhost/ready"]}), "gates"),
            (json!({"nodename_file": "/etc/node"}), "/etc/node"),
            (json!({"endpoint_status_dir": "/run/status"}), "/run/status"),
            (
                json!({"datastore_type": "etcdv3", "kubernetes": {"kubeconfig": "/etc/cni/net.d/calico-kubeconfig"}}),
                "credentials",
            ),
            (json!({"datastore_type": "etcdv3", "policy": {"type": "k8s"}}), "credentials"),
            (json!({"datastore_type": "embedded", "policy": {"k8s_auth_token": "t"}}), "credentials"),
        ] {
            let reason = only_for_the_plugin(Program::Plugin, &request(POD, &changes));
            assert!(reason.as_ref().is_some_and(|it| it.contains(part)), "{changes}: {reason:?}");
        }
    }

    #[test]
    fn other_calls_are_for_the_agent() {
        for changes in [
            json!({}),
            json!({"policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": "/etc/cni/net.d/calico-kubeconfig"}}),
            json!({"nodename_file": "/var/lib/calico/nodename"}),
            json!({"endpoint_status_dir": "/var/run/calico/endpoint-status", "policy_setup_timeout_seconds": 5}),
            json!({"ipam_lock_file": "/var/run/calico/ipam.lock", "require_mtu_file": true}),
            json!({"datastore_type": "etcdv3", "etcd_endpoints": "https://x:2379", "etcd_key_file": "/etc/cni/key"}),
            json!({"dataplane_options": {"label": "x"}}),
        ] {
            let reason = only_for_the_plugin(Program::Plugin, &request(POD, &changes));
            assert_eq!(reason, None, "{changes}");
        }
        // The IPAM plugin itself runs no other program, whatever the configuration says.
        let other = request("", &json!({"ipam": {"type": "host-local"}, "readiness_gates": ["http://x"]}));
        assert_eq!(only_for_the_plugin(Program::Ipam, &other), None);
    }

    #[test]
    fn machines_are_for_the_plugin() {
        let machine = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=virt-launcher-vm1-abc";
        for program in [Program::Plugin, Program::Ipam] {
            let reason = only_for_the_plugin(program, &request(machine, &json!({})));
            assert!(reason.is_some_and(|it| it.contains("KubeVirt")));
        }
    }
}
