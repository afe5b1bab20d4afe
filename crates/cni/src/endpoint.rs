//! Builds the WorkloadEndpoint that ADD writes. No IO.

use crate::assigned::Assigned;
use crate::error::{CniError, Result, code};
use crate::identity::Identity;
use crate::wiring::Ends;
use api::meta::StringMap;
use api::scalars::IpOrCidr;
use api::{Action, IPNAT, Profile, ProfileSpec, Rule, WorkloadEndpoint, WorkloadEndpointPort};
use ipnet::IpNet;
use model::kubernetes::pod::allowed_source_prefixes;

/// Kubernetes' information about the pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodFacts {
    /// Labels of the endpoint.
    pub(crate) labels: StringMap,
    /// The pod's annotations.
    pub(crate) annotations: StringMap,
    /// The pod's ports.
    pub(crate) ports: Vec<WorkloadEndpointPort>,
    /// The profiles of its namespace and service account.
    pub(crate) profiles: Vec<String>,
    /// The prefix of the pod's name if Kubernetes generated the rest.
    pub(crate) generate_name: String,
    /// The pod's service account.
    pub(crate) service_account: String,
}

/// The endpoint of a container that is not a pod.
#[must_use]
pub(crate) fn plain(
    identity: &Identity,
    name: &str,
    labels: StringMap,
    assigned: &Assigned,
) -> WorkloadEndpoint {
    let mut endpoint = named(identity, name, WorkloadEndpoint::default());
    endpoint.metadata.labels = labels;
    endpoint.spec.container_id.clone_from(&identity.identifiers.container_id);
    endpoint.spec.profiles = vec![identity.network.clone()];
    set_networks(&mut endpoint, assigned);
    endpoint
}

/// The inputs that a pod's endpoint is built from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodEndpoint<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) facts: &'a PodFacts,
    /// Whether Kubernetes' profiles apply, or else that of the network.
    pub(crate) kubernetes_policy: bool,
    pub(crate) assigned: &'a Assigned,
    /// Further addresses, as the annotation has them.
    pub(crate) floating: &'a [String],
}

impl PodEndpoint<'_> {
    /// Builds a new endpoint of this name, or updates the existing one with everything that is known now.
    ///
    /// # Errors
    /// When an annotation about addresses cannot be followed.
    pub(crate) fn build(&self, name: &str, existing: Option<WorkloadEndpoint>) -> Result<WorkloadEndpoint> {
        let Self { identity, facts, assigned, .. } = self;
        let name = existing.as_ref().map_or(name, |endpoint| &endpoint.metadata.name).to_owned();
        let mut endpoint = named(identity, &name, existing.unwrap_or_default());
        endpoint.metadata.labels.clone_from(&facts.labels);
        endpoint.metadata.generate_name.clone_from(&facts.generate_name);
        let spec = &mut endpoint.spec;
        spec.pod.clone_from(&identity.identifiers.pod);
        spec.ports.clone_from(&facts.ports);
        spec.service_account_name.clone_from(&facts.service_account);
        spec.profiles =
            if self.kubernetes_policy { facts.profiles.clone() } else { vec![identity.network.clone()] };
        spec.container_id.clone_from(&identity.identifiers.container_id);
        spec.allow_spoofed_source_prefixes = allowed_source_prefixes(&facts.annotations)
            .map_err(|error| CniError::new(code::ANNOTATION, error.to_string()))?;
        spec.ip_nats = translations(self.floating, assigned)?;
        set_networks(&mut endpoint, assigned);
        Ok(endpoint)
    }
}

/// The addresses of an endpoint.
///
/// # Errors
/// When a text is not an address.
pub(crate) fn addresses_of(endpoint: &WorkloadEndpoint) -> Result<Vec<IpNet>> {
    let read = |network: &IpOrCidr| {
        network.as_str().parse().map_err(|error| {
            let message = format!("WorkloadEndpoint {}: address {network}: {error}", endpoint.metadata.name);
            CniError::new(code::DATASTORE, message)
        })
    };
    endpoint.spec.ip_networks.iter().map(read).collect()
}

/// Adds the device to an endpoint.
pub(crate) fn set_device(endpoint: &mut WorkloadEndpoint, ends: &Ends) {
    endpoint.spec.interface_name.clone_from(&ends.host_device);
    endpoint.spec.mac = ends.mac.map(|mac| mac.to_string()).unwrap_or_default().into();
}

/// The profile of a network without a policy of its own: allows all egress; allows ingress from everywhere under
/// Kubernetes, and from members of the network otherwise.
#[must_use]
pub(crate) fn network_profile(network: &str, is_pod: bool) -> Profile {
    let allow = Rule { action: Action::Allow, ..Rule::default() };
    let mut ingress = allow.clone();
    if !is_pod {
        ingress.source.selector = format!("has({network})").into();
    }
    let mut profile = Profile::default();
    network.clone_into(&mut profile.metadata.name);
    profile.spec = ProfileSpec {
        ingress: vec![ingress],
        egress: vec![allow],
        labels_to_apply: [(network.to_owned(), String::new())].into(),
        ..ProfileSpec::default()
    };
    profile
}

fn named(identity: &Identity, name: &str, mut endpoint: WorkloadEndpoint) -> WorkloadEndpoint {
    let ids = &identity.identifiers;
    name.clone_into(&mut endpoint.metadata.name);
    endpoint.metadata.namespace.clone_from(&identity.namespace);
    endpoint.spec.endpoint.clone_from(&ids.endpoint);
    endpoint.spec.node.clone_from(&ids.node);
    endpoint.spec.orchestrator.clone_from(&ids.orchestrator);
    endpoint
}

/// Sets the endpoint's networks: each address with its full prefix length, whatever its own was.
fn set_networks(endpoint: &mut WorkloadEndpoint, assigned: &Assigned) {
    endpoint.spec.ip_networks =
        assigned.ips().map(|address| IpNet::from(address).to_string().into()).collect();
}

/// Each floating address is translated to the pod's own address of the same family.
fn translations(floating: &[String], assigned: &Assigned) -> Result<Vec<IPNAT>> {
    let own = |is_v6: bool| assigned.ips().find(|address| address.is_ipv6() == is_v6);
    let translate = |external: &String| {
        let internal = own(external.contains(':')).ok_or_else(|| {
            let message = format!("the pod has no address of the family of its floating address {external}");
            CniError::new(code::ANNOTATION, message)
        })?;
        Ok(IPNAT {
            internal_ip: internal.to_string().into(),
            external_ip: external.as_str().into(),
            ..IPNAT::default()
        })
    };
    floating.iter().map(translate).collect()
}

#[cfg(test)]
mod tests {
    use super::{PodEndpoint, PodFacts, network_profile, plain, set_device};
    use crate::assigned::{Assigned, Traffic};
    use crate::identity::Identity;
    use crate::wiring::Ends;
    use api::meta::StringMap;
    use model::names::WorkloadEndpointIdentifiers;
    use netlink::MacAddress;

    fn identity(pod: &str) -> Identity {
        Identity {
            namespace: "default".into(),
            identifiers: WorkloadEndpointIdentifiers {
                node: "node-a".into(),
                orchestrator: if pod.is_empty() { "cni" } else { "k8s" }.into(),
                endpoint: "eth0".into(),
                pod: pod.into(),
                container_id: "c1".into(),
                ..WorkloadEndpointIdentifiers::default()
            },
            network: "k8s-pod-network".into(),
        }
    }

    fn assigned(addresses: &[&str]) -> Assigned {
        Assigned::of(addresses.iter().map(|text| text.parse().unwrap()).collect(), Traffic::Here)
    }

    #[test]
    fn a_plain_endpoint_equals_calicos() {
        let mut endpoint =
            plain(&identity(""), "node--a-cni-c1-eth0", StringMap::new(), &assigned(&["172.16.165.136/29"]));
        let mac = Some(MacAddress([0x22, 0xad, 0xae, 0xe3, 0xb4, 0x9b]));
        set_device(&mut endpoint, &Ends { host_device: "calic1".into(), mac });
        let spec = serde_json::to_string(&endpoint.spec).unwrap();
        assert_eq!(
            spec,
            r#"{"orchestrator":"cni","node":"node-a","containerID":"c1","endpoint":"eth0","ipNetworks":["172.16.165.136/32"],"profiles":["k8s-pod-network"],"interfaceName":"calic1","mac":"22:ad:ae:e3:b4:9b"}"#
        );
    }

    #[test]
    fn a_pods_endpoint_keeps_unknown_fields() {
        let facts = PodFacts {
            annotations: [(
                "cni.projectcalico.org/allowedSourcePrefixes".to_owned(),
                r#"["10.1.2.3/24"]"#.to_owned(),
            )]
            .into(),
            profiles: vec!["kns.default".into()],
            ..PodFacts::default()
        };
        let mut existing = api::WorkloadEndpoint::default();
        existing.metadata.resource_version = "7".into();
        let floating = ["1.2.3.4".to_owned()];
        let known = PodEndpoint {
            identity: &identity("web"),
            facts: &facts,
            kubernetes_policy: true,
            assigned: &assigned(&["10.0.0.1/26", "fd00::1/122"]),
            floating: &floating,
        };
        let endpoint = known.build("n", Some(existing)).unwrap();
        assert_eq!(endpoint.metadata.resource_version, "7");
        assert_eq!(endpoint.spec.allow_spoofed_source_prefixes[0].as_str(), "10.1.2.0/24");
        assert_eq!(endpoint.spec.ip_nats[0].internal_ip.as_str(), "10.0.0.1");
        assert_eq!(
            endpoint.spec.ip_networks.iter().map(api::scalars::IpOrCidr::as_str).collect::<Vec<_>>(),
            ["10.0.0.1/32", "fd00::1/128"]
        );
        let without = PodEndpoint { assigned: &assigned(&["fd00::1/122"]), ..known };
        assert!(without.build("n", None).unwrap_err().msg.contains("no address of the family"));
    }

    #[test]
    fn profiles_of_networks() {
        let text = |is_pod| serde_json::to_string(&network_profile("net", is_pod).spec).unwrap();
        assert_eq!(
            text(false),
            r#"{"ingress":[{"action":"Allow","source":{"selector":"has(net)"}}],"egress":[{"action":"Allow"}],"labelsToApply":{"net":""}}"#
        );
        assert!(text(true).starts_with(r#"{"ingress":[{"action":"Allow"}]"#), "{}", text(true));
    }
}
