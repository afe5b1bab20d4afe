//! The names by which a container's endpoint, addresses and device are known.

use crate::error::{CniError, Result, code};
use crate::request::{Environment, Request};
use model::HandleId;
use model::names::{INTERFACE_PREFIX, WorkloadEndpointIdentifiers, interface_name};

/// The orchestrator of containers that are not pods.
const PLAIN: &str = "cni";
/// The namespace of containers that are not pods.
const PLAIN_NAMESPACE: &str = "default";
/// How many characters of a container's id are in the name of its device.
const ID_IN_DEVICE: usize = 11;

/// The names of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The namespace of the endpoint.
    pub namespace: String,
    /// The parts of the endpoint's name.
    pub identifiers: WorkloadEndpointIdentifiers,
    /// The network's name.
    pub network: String,
}

impl Identity {
    /// The names of a request's attachment on this node.
    #[must_use]
    pub fn of(request: &Request, node: &str) -> Self {
        let args = &request.args;
        let mut identifiers = WorkloadEndpointIdentifiers {
            node: node.to_owned(),
            endpoint: request.ifname.clone(),
            container_id: request.container_id.clone(),
            ..WorkloadEndpointIdentifiers::default()
        };
        let namespace = if args.is_pod() {
            api::words::KUBERNETES.clone_into(&mut identifiers.orchestrator);
            identifiers.pod.clone_from(&args.pod_name);
            args.pod_namespace.clone()
        } else {
            PLAIN.clone_into(&mut identifiers.orchestrator);
            if args.test_namespace.is_empty() {
                PLAIN_NAMESPACE.to_owned()
            } else {
                args.test_namespace.clone()
            }
        };
        Self { namespace, identifiers, network: request.conf.name.clone() }
    }

    /// Whether the container is a pod of Kubernetes.
    #[must_use]
    pub fn is_pod(&self) -> bool {
        !self.identifiers.pod.is_empty()
    }

    /// The endpoint's name.
    ///
    /// # Errors
    /// When a part is not allowed in a name.
    pub fn endpoint_name(&self) -> Result<String> {
        self.identifiers.name().map_err(|error| {
            CniError::new(
                code::INVALID_ENVIRONMENT,
                format!("error constructing WorkloadEndpoint name: {error}"),
            )
        })
    }

    /// The common prefix of the names of all endpoints of this container, whatever their interface.
    ///
    /// # Errors
    /// When a part is not allowed in a name.
    pub fn endpoint_prefix(&self) -> Result<String> {
        self.any_interface().prefix().map_err(|error| {
            CniError::new(
                code::INVALID_ENVIRONMENT,
                format!("error constructing WorkloadEndpoint prefix: {error}"),
            )
        })
    }

    /// Whether this is the name of an endpoint of this container.
    #[must_use]
    pub fn owns(&self, endpoint_name: &str) -> bool {
        self.any_interface().matches(endpoint_name).unwrap_or(false)
    }

    fn any_interface(&self) -> WorkloadEndpointIdentifiers {
        WorkloadEndpointIdentifiers { endpoint: String::new(), ..self.identifiers.clone() }
    }

    /// The handle that holds the container's addresses.
    #[must_use]
    pub fn handle(&self) -> HandleId {
        format!("{}.{}", self.network, self.identifiers.container_id).into()
    }

    /// The handle that Calico 2 used.
    #[must_use]
    pub fn old_handle(&self) -> HandleId {
        if self.is_pod() {
            format!("{}.{}", self.namespace, self.identifiers.pod).into()
        } else {
            self.identifiers.container_id.as_str().into()
        }
    }

    /// The name of the host's end of the container's device.
    #[must_use]
    pub fn device(&self, environment: &Environment) -> String {
        if self.is_pod() {
            interface_name(&interface_prefix(environment), &self.namespace, &self.identifiers.pod)
        } else {
            let id = &self.identifiers.container_id;
            format!("{INTERFACE_PREFIX}{}", id.get(..ID_IN_DEVICE).unwrap_or(id))
        }
    }

    /// Describes the pod or the container in messages.
    #[must_use]
    pub fn describe(&self) -> String {
        let id = &self.identifiers.container_id;
        if self.is_pod() {
            format!("pod {}/{} (container {id})", self.namespace, self.identifiers.pod)
        } else {
            format!("container {id}")
        }
    }
}

/// The prefix of the names of pods' devices: the first of Felix's prefixes.
#[must_use]
pub(crate) fn interface_prefix(environment: &Environment) -> String {
    let configured = environment.get("FELIX_INTERFACEPREFIX").map_or("", String::as_str);
    match configured.split(',').next() {
        None | Some("") => INTERFACE_PREFIX.to_owned(),
        Some(first) => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::Identity;
    use crate::request::{Environment, Request};

    fn identity(args: &str, id: &str) -> Identity {
        let environment: Environment = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", id),
            ("CNI_NETNS", "/x"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
            ("CNI_ARGS", args),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let request = Request::read(&environment, br#"{"name":"net","cniVersion":"1.0.0"}"#).unwrap();
        Identity::of(&request, "node-a")
    }

    #[test]
    fn a_plain_container() {
        let identity = identity("", "0123456789abcdef");
        assert_eq!(identity.endpoint_name().unwrap(), "node--a-cni-0123456789abcdef-eth0");
        assert_eq!(identity.endpoint_prefix().unwrap(), "node--a-cni-0123456789abcdef-");
        assert_eq!(identity.device(&Environment::new()), "cali0123456789a");
        assert_eq!(
            (identity.handle().as_str(), identity.namespace.as_str()),
            ("net.0123456789abcdef", "default")
        );
    }

    #[test]
    fn a_pod() {
        let identity = identity("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-1", "abc");
        assert_eq!(identity.endpoint_name().unwrap(), "node--a-k8s-web--1-eth0");
        assert_eq!(&*identity.old_handle(), "shop.web-1");
        assert!(identity.owns("node--a-k8s-web--1-eth1") && !identity.owns("node--a-k8s-web--1--2-eth0"));
        let prefix: Environment = [("FELIX_INTERFACEPREFIX".to_owned(), "tap,cali".to_owned())].into();
        assert!(identity.device(&prefix).starts_with("tap"));
        assert_eq!(identity.device(&Environment::new()).len(), 15);
    }
}
