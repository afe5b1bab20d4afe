//! Whether the holder of an address still exists.
//!
//! The rules are Calico's. A pod has its address while it exists on the same node and either reports no address yet or
//! reports this one; a pod that was evicted or has finished has none. A machine has its address while it exists, or an
//! instance of it that no machine owns. Whatever cannot be determined counts in favour of the holder.

use super::holder::Holder;
use std::fmt;
use std::net::IpAddr;

/// The state of the cluster: a cache for the first check, the live API for the second.
pub trait World {
    /// A pod.
    fn pod(&self, namespace: &str, name: &str) -> PodFact;

    /// A KubeVirt machine, or an instance without one.
    fn machine(&self, namespace: &str, name: &str) -> MachineFact;

    /// A node that addresses and blocks name.
    fn node(&self, name: &str) -> NodeFact;
}

/// The state of a pod, if known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodFact {
    /// It does not exist.
    Absent,
    /// Its state is unknown.
    Unknown,
    /// It exists.
    Present(PodState),
}

/// A pod that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodState {
    /// The node that it is scheduled to; empty while it is not.
    pub node: String,
    /// Whether its status contains addresses.
    pub has_reported: bool,
    /// Whether it was evicted: failed permanently.
    pub is_evicted: bool,
    /// The addresses of its endpoints, empty when it has finished; `None` when they cannot be read.
    pub addresses: Option<Vec<IpAddr>>,
}

/// The state of a machine, if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineFact {
    /// Neither the machine nor an instance of it exists.
    Absent,
    /// Its state is unknown.
    Unknown,
    /// It exists.
    Present,
}

/// The state of a node that allocations name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeFact {
    /// It is in the cluster.
    Exists {
        /// Its name in Kubernetes.
        kubernetes: String,
        /// Whether its network is being migrated from flannel: then its blocks are being claimed.
        is_migrating: bool,
    },
    /// It is no longer in the cluster.
    Gone {
        /// Its name in Kubernetes, if the node's record has it; empty when that is gone, too.
        kubernetes: String,
    },
    /// It never belonged to Kubernetes, or its state is unknown: nothing of it is touched.
    Untouchable,
}

/// Why an address is leaked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its pod does not exist.
    PodGone {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
    },
    /// Its pod is on another node.
    PodElsewhere {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
        /// The node of the address.
        from: String,
        /// The node of the pod.
        to: String,
    },
    /// Its pod was evicted.
    PodEvicted {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
    },
    /// Its pod has other addresses, or has finished and has none.
    PodHasOthers {
        /// The pod's namespace.
        namespace: String,
        /// The pod's name.
        name: String,
        /// The pod's addresses.
        addresses: Vec<IpAddr>,
    },
    /// Its machine does not exist.
    MachineGone {
        /// The machine's namespace.
        namespace: String,
        /// The machine's name.
        name: String,
    },
    /// Its node does not exist.
    NodeGone {
        /// The node.
        node: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodGone { namespace, name } => write!(f, "pod {namespace}/{name} no longer exists"),
            Self::PodElsewhere { namespace, name, from, to } => write!(
                f,
                "pod {namespace}/{name} now runs on node {to}; this address is left from node {from}"
            ),
            Self::PodEvicted { namespace, name } => {
                write!(f, "pod {namespace}/{name} was evicted and never runs again")
            }
            Self::PodHasOthers { namespace, name, addresses } if addresses.is_empty() => {
                write!(f, "pod {namespace}/{name} has finished and no longer has an address")
            }
            Self::PodHasOthers { namespace, name, addresses } => {
                let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "pod {namespace}/{name} uses {}; this address is left from an earlier start of it",
                    texts.join(", ")
                )
            }
            Self::MachineGone { namespace, name } => {
                write!(
                    f,
                    "neither virtual machine {namespace}/{name} nor an instance of it exists any longer"
                )
            }
            Self::NodeGone { node } => write!(f, "node {node} no longer exists"),
        }
    }
}

/// The reason why a holder does not use its address; `None` when it does, or when that is unknown. `node` is the
/// Kubernetes name of the node that the address is recorded for; empty when it has none.
#[must_use]
pub fn judge(holder: &Holder, address: IpAddr, node: &str, world: &(impl World + ?Sized)) -> Option<Reason> {
    match holder {
        Holder::Pod { namespace, name } => {
            judge_pod(namespace, name, address, node, &world.pod(namespace, name))
        }
        Holder::Machine { namespace, name } if name.is_empty() || namespace.is_empty() => None,
        Holder::Machine { namespace, name } => {
            (world.machine(namespace, name) == MachineFact::Absent).then(|| Reason::MachineGone {
                namespace: namespace.as_ref().to_owned(),
                name: name.as_ref().to_owned(),
            })
        }
        // Tied to the node; the collector decides about these along with it.
        Holder::Tunnel | Holder::Windows | Holder::Unknown => None,
    }
}

/// The reason for a pod whose state is completely known.
#[must_use]
pub fn judge_pod(namespace: &str, name: &str, address: IpAddr, node: &str, pod: &PodFact) -> Option<Reason> {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let pod = match pod {
        PodFact::Unknown => return None,
        PodFact::Absent => return Some(Reason::PodGone { namespace, name }),
        PodFact::Present(pod) => pod,
    };
    if !pod.node.is_empty() && !node.is_empty() && pod.node != node {
        return Some(Reason::PodElsewhere { namespace, name, from: node.to_owned(), to: pod.node.clone() });
    }
    if !pod.has_reported {
        return None;
    }
    if pod.is_evicted {
        return Some(Reason::PodEvicted { namespace, name });
    }
    let addresses = pod.addresses.as_ref()?;
    (!addresses.contains(&address)).then(|| Reason::PodHasOthers {
        namespace,
        name,
        addresses: addresses.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(PodFact, MachineFact);

    impl World for One {
        fn pod(&self, _: &str, _: &str) -> PodFact {
            self.0.clone()
        }
        fn machine(&self, _: &str, _: &str) -> MachineFact {
            self.1
        }
        fn node(&self, _: &str) -> NodeFact {
            NodeFact::Untouchable
        }
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn pods_keep_their_address_until_there_is_evidence_against_it() {
        let holder = Holder::Pod { namespace: "shop".into(), name: "web".into() };
        let state = |node: &str, has_reported, is_evicted, addresses: Option<&[&str]>| {
            let addresses = addresses.map(|list| list.iter().map(|text| address(text)).collect());
            PodFact::Present(PodState { node: node.to_owned(), has_reported, is_evicted, addresses })
        };
        for (pod, node, expected) in [
            (PodFact::Absent, "n1", Some("pod shop/web no longer exists")),
            (PodFact::Unknown, "n1", None),
            (state("n1", true, false, Some(&["10.0.0.1"])), "n1", None),
            (
                state("n2", true, false, Some(&["10.0.0.1"])),
                "n1",
                Some("pod shop/web now runs on node n2; this address is left from node n1"),
            ),
            // Not yet scheduled, or the address's node is gone: only the address is evidence.
            (state("", true, false, Some(&["10.0.0.1"])), "n1", None),
            (state("n2", true, false, Some(&["10.0.0.1"])), "", None),
            (
                state("n2", true, false, Some(&["10.0.0.9", "fd00::9"])),
                "",
                Some("pod shop/web uses 10.0.0.9, fd00::9; this address is left from an earlier start of it"),
            ),
            (state("n1", false, true, Some(&[])), "n1", None),
            (
                state("n1", true, true, Some(&["10.0.0.1"])),
                "n1",
                Some("pod shop/web was evicted and never runs again"),
            ),
            (
                state("n1", true, false, Some(&[])),
                "n1",
                Some("pod shop/web has finished and no longer has an address"),
            ),
            (state("n1", true, false, None), "n1", None),
        ] {
            let reason = judge(&holder, address("10.0.0.1"), node, &One(pod.clone(), MachineFact::Absent));
            assert_eq!(reason.map(|reason| reason.to_string()).as_deref(), expected, "{pod:?} {node}");
        }
    }

    #[test]
    fn machines_and_others() {
        let machine = |name: &str| Holder::Machine { namespace: "shop".into(), name: name.into() };
        for (holder, fact, leaked) in [
            (machine("db"), MachineFact::Absent, true),
            (machine("db"), MachineFact::Present, false),
            (machine("db"), MachineFact::Unknown, false),
            (machine(""), MachineFact::Absent, false),
            (Holder::Tunnel, MachineFact::Absent, false),
            (Holder::Windows, MachineFact::Absent, false),
            (Holder::Unknown, MachineFact::Absent, false),
        ] {
            let world = One(PodFact::Absent, fact);
            assert_eq!(judge(&holder, address("10.0.0.1"), "n1", &world).is_some(), leaked, "{holder:?}");
        }
    }
}
