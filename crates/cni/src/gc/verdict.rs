//! Decides from records what GC of one network removes. No IO.
//!
//! Nothing in an endpoint names its network, and a handle is `NETWORK.CONTAINER`, where both may contain dots. So only
//! what certainly belongs to this network is removed. For an endpoint, the evidence is the handle of its own
//! container's addresses, or the profile of a network without a policy of its own; for a handle, a container without a
//! dot, or an endpoint that was found to be this network's. Addresses of an endpoint that stays also stay, whatever
//! their handle.

use api::WorkloadEndpoint;
use model::HandleId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The scope of a GC: the network on this node, and its containers that are attached.
#[derive(Clone, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) network: &'a str,
    pub(crate) node: &'a str,
    pub(crate) valid: BTreeSet<&'a str>,
}

/// An address that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) address: IpAddr,
    pub(crate) handle: HandleId,
    pub(crate) owner: BTreeMap<String, String>,
}

impl Taken {
    fn owner(&self, name: &str) -> &str {
        self.owner.get(name).map_or("", String::as_str)
    }
}

/// What is removed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Verdict {
    /// Endpoints to delete.
    pub(crate) delete: Vec<WorkloadEndpoint>,
    /// Endpoints that leave the network and stay in others, in their new form.
    pub(crate) leave: Vec<WorkloadEndpoint>,
    /// Handles whose addresses are released, each with the endpoint that must be gone first, as an index into `delete`.
    pub(crate) release: BTreeMap<HandleId, Option<usize>>,
}

/// Decides what is removed.
#[must_use]
pub(crate) fn judge(question: &Question<'_>, endpoints: Vec<WorkloadEndpoint>, taken: &[Taken]) -> Verdict {
    let holders: BTreeMap<IpAddr, &HandleId> = taken.iter().map(|it| (it.address, &it.handle)).collect();
    let mut verdict = Verdict::default();
    let mut stays: BTreeSet<IpAddr> = BTreeSet::new();
    for mut endpoint in endpoints {
        match fate(question, &endpoint, &holders) {
            Fate::Delete => verdict.delete.push(endpoint),
            Fate::Leave => {
                stays.extend(addresses(&endpoint));
                endpoint.spec.profiles.retain(|profile| profile != question.network);
                verdict.leave.push(endpoint);
            }
            Fate::Stay => stays.extend(addresses(&endpoint)),
        }
    }
    let mut kept = BTreeSet::new();
    for it in taken {
        let Some(container) = stale_container(question, it) else { continue };
        let endpoint = verdict.delete.iter().position(|endpoint| endpoint.spec.container_id == container);
        let is_certain = !container.contains('.') || endpoint.is_some();
        if !is_certain || stays.contains(&it.address) {
            kept.insert(it.handle.clone());
        } else {
            verdict.release.insert(it.handle.clone(), endpoint);
        }
    }
    // A handle is released as a whole.
    verdict.release.retain(|handle, _| !kept.contains(handle));
    verdict
}

enum Fate {
    Delete,
    Leave,
    Stay,
}

fn fate(question: &Question<'_>, endpoint: &WorkloadEndpoint, holders: &BTreeMap<IpAddr, &HandleId>) -> Fate {
    let spec = &endpoint.spec;
    let container = spec.container_id.as_str();
    if spec.node != question.node || container.is_empty() || question.valid.contains(container) {
        return Fate::Stay;
    }
    match spec.orchestrator.as_str() {
        "cni" if !spec.profiles.iter().any(|profile| profile == question.network) => Fate::Stay,
        "cni" if spec.profiles.iter().any(|profile| profile != question.network) => Fate::Leave,
        "cni" => Fate::Delete,
        api::words::KUBERNETES => {
            let own = HandleId::from(format!("{}.{container}", question.network));
            let mut found = addresses(endpoint).filter_map(|address| holders.get(&address)).peekable();
            if found.peek().is_some() && found.all(|handle| **handle == own) {
                Fate::Delete
            } else {
                Fate::Stay
            }
        }
        _ => Fate::Stay,
    }
}

fn addresses(endpoint: &WorkloadEndpoint) -> impl Iterator<Item = IpAddr> + '_ {
    endpoint.spec.ip_networks.iter().filter_map(|it| it.as_str().split('/').next()?.parse().ok())
}

/// The container that an address is held for, if it may be of this network and is not attached.
fn stale_container<'a>(question: &Question<'_>, taken: &'a Taken) -> Option<&'a str> {
    let container = taken.handle.strip_prefix(question.network)?.strip_prefix('.')?;
    let is_here = taken.owner("node") == question.node;
    // A virtual machine's addresses stay with it until it is deleted.
    let is_machine = container.starts_with("vmi.") || !taken.owner("vmi-name").is_empty();
    // Calico 2 named handles after namespace and pod.
    let is_old = taken.owner("namespace") == question.network && taken.owner("pod") == container;
    (is_here && !is_machine && !is_old && !question.valid.contains(container)).then_some(container)
}

#[cfg(test)]
mod tests {
    use super::{HandleId, Question, Taken, Verdict, judge};
    use api::WorkloadEndpoint;

    fn endpoint(orchestrator: &str, container: &str, address: &str, profiles: &[&str]) -> WorkloadEndpoint {
        let mut endpoint = WorkloadEndpoint::default();
        endpoint.metadata.name = format!("{orchestrator}-{container}");
        endpoint.spec.node = "node-a".into();
        endpoint.spec.orchestrator = orchestrator.into();
        endpoint.spec.container_id = container.into();
        endpoint.spec.ip_networks = vec![format!("{address}/32").as_str().into()];
        endpoint.spec.profiles = profiles.iter().map(|it| (*it).to_owned()).collect();
        endpoint
    }

    fn taken(handle: &str, address: &str) -> Taken {
        let owner = [("node".to_owned(), "node-a".to_owned())].into();
        Taken { address: address.parse().unwrap(), handle: handle.into(), owner }
    }

    fn verdict(network: &str, valid: &[&str], endpoints: &[WorkloadEndpoint], taken: &[Taken]) -> Verdict {
        let question = Question { network, node: "node-a", valid: valid.iter().copied().collect() };
        judge(&question, endpoints.to_vec(), taken)
    }

    fn names(endpoints: &[WorkloadEndpoint]) -> Vec<&str> {
        endpoints.iter().map(|it| it.metadata.name.as_str()).collect()
    }

    fn handles(verdict: &Verdict) -> Vec<&str> {
        verdict.release.keys().map(HandleId::as_str).collect()
    }

    #[test]
    fn pods_of_other_networks_stay() {
        let pods = [
            endpoint("k8s", "aaa", "10.0.0.1", &["kns.shop"]),
            endpoint("k8s", "bbb", "10.0.0.2", &["kns.shop"]),
            // Addresses that another IPAM plugin assigned: their network cannot be determined.
            endpoint("k8s", "ccc", "10.9.0.3", &["kns.shop"]),
        ];
        let records = [taken("k8s-pod-network.aaa", "10.0.0.1"), taken("second-net.bbb", "10.0.0.2")];
        let second = verdict("second-net", &[], &pods, &records);
        assert_eq!((names(&second.delete), handles(&second)), (vec!["k8s-bbb"], vec!["second-net.bbb"]));
        let first = verdict("k8s-pod-network", &[], &pods, &records);
        assert_eq!((names(&first.delete), handles(&first)), (vec!["k8s-aaa"], vec!["k8s-pod-network.aaa"]));
        assert_eq!(verdict("k8s-pod-network", &["aaa"], &pods, &records), Verdict::default());
        // A network with the same name as a profile.
        assert_eq!(verdict("kns.shop", &[], &pods, &records), Verdict::default());
    }

    #[test]
    fn names_with_dots() {
        let records = [
            taken("net.aaaa", "10.0.0.1"),
            taken("net.two.bbbb", "10.0.0.2"),
            taken("net.with.dots", "10.0.0.3"),
        ];
        let plain = [
            endpoint("cni", "aaaa", "10.0.0.1", &["net"]),
            endpoint("cni", "bbbb", "10.0.0.2", &["net.two"]),
            endpoint("cni", "with.dots", "10.0.0.3", &["net"]),
        ];
        // Without endpoints only what is certain is removed.
        assert_eq!(handles(&verdict("net", &["aaaa"], &[], &records)), Vec::<&str>::new());
        let all = verdict("net", &[], &plain, &records);
        assert_eq!(
            (names(&all.delete), handles(&all)),
            (vec!["cni-aaaa", "cni-with.dots"], vec!["net.aaaa", "net.with.dots"])
        );
        assert_eq!(handles(&verdict("net.two", &[], &plain, &records)), ["net.two.bbbb"]);
        assert_eq!(verdict("net.two", &["bbbb"], &plain, &records), Verdict::default());
        assert_eq!(verdict("ne", &[], &plain, &records), Verdict::default());
    }

    #[test]
    fn a_container_in_two_networks_leaves_only_one() {
        let joined = [endpoint("cni", "aaa", "10.0.0.1", &["net", "other"])];
        let records = [taken("net.aaa", "10.0.0.1")];
        let gone = verdict("net", &[], &joined, &records);
        assert_eq!((gone.delete.len(), handles(&gone)), (0, vec![]), "its address is in use");
        assert_eq!(gone.leave[0].spec.profiles, ["other"]);
    }

    #[test]
    fn machines_old_handles_and_other_nodes_stay() {
        let mut machine = taken("net.vmi.shop.vm1", "10.0.0.1");
        machine.owner.insert("vmi-name".into(), "vm1".into());
        let mut old = taken("net.web", "10.0.0.2");
        old.owner.extend([("namespace".into(), "net".into()), ("pod".into(), "web".into())]);
        let mut far = taken("net.aaa", "10.0.0.3");
        far.owner.insert("node".into(), "node-b".into());
        let records = [machine, old, far];
        for network in ["net", "net.vmi", "net.vmi.shop"] {
            assert_eq!(verdict(network, &[], &[], &records), Verdict::default(), "{network}");
        }
    }
}
