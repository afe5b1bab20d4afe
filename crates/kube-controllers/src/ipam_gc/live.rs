//! The second check: the API's own view of the holders of addresses that look leaked.

use super::facts::{Cached, pod_state};
use super::machines::{VirtualMachine, VirtualMachineInstance};
use super::state::kubernetes_name;
use crate::informer::kinds::{Node, Pod};
use crate::informer::{Slim, Strings};
use api::NodeSpec;
use client::Client;
use futures::StreamExt as _;
use ipam_core::garbage::{Holder, Leak, MachineFact, NodeFact, PodFact, World};
use kube_access::cluster::{Cluster, ClusterError};
use std::collections::{BTreeMap, BTreeSet};

/// How many requests run concurrently.
const AT_ONCE: usize = 32;

/// The API's answers. Anything not requested is unknown.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pods: BTreeMap<(String, String), PodFact>,
    machines: BTreeMap<(String, String), MachineFact>,
    nodes: BTreeMap<String, NodeFact>,
}

impl World for Live {
    fn pod(&self, namespace: &str, name: &str) -> PodFact {
        self.pods.get(&(namespace.to_owned(), name.to_owned())).cloned().unwrap_or(PodFact::Unknown)
    }

    fn machine(&self, namespace: &str, name: &str) -> MachineFact {
        let key = (namespace.to_owned(), name.to_owned());
        self.machines.get(&key).copied().unwrap_or(MachineFact::Unknown)
    }

    fn node(&self, name: &str) -> NodeFact {
        self.nodes.get(name).cloned().unwrap_or(NodeFact::Untouchable)
    }
}

/// A request to the API.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Pod(String, String),
    Machine(String, String),
    Node(String),
}

/// The answer to a request.
enum Answer {
    Pod(PodFact),
    Machine(MachineFact),
    Node(NodeFact),
}

/// The sources of live answers.
#[derive(Clone, Debug)]
pub(crate) struct Witness {
    /// Kubernetes.
    pub cluster: Cluster,
    /// Calico's nodes.
    pub client: Client,
    /// Whether a Calico node is simply a Kubernetes node.
    pub is_kubernetes: bool,
}

impl Witness {
    /// Checks the holders of these leaks, and nodes that are supposedly gone. Each is requested once.
    pub(crate) async fn ask(&self, leaks: &[Leak], gone: impl Iterator<Item = &str>) -> Live {
        let mut questions: BTreeSet<Question> = gone.map(|name| Question::Node(name.to_owned())).collect();
        for leak in leaks {
            match &leak.holder {
                Holder::Pod { namespace, name } => {
                    questions.insert(Question::Pod(namespace.to_string(), name.to_string()));
                }
                Holder::Machine { namespace, name } => {
                    questions.insert(Question::Machine(namespace.to_string(), name.to_string()));
                }
                Holder::Tunnel => drop(questions.insert(Question::Node(leak.node.clone()))),
                Holder::Windows | Holder::Unknown => {}
            }
        }
        let asked: Vec<_> = questions.into_iter().map(|question| self.answer(question)).collect();
        let answers: Vec<(Question, Answer)> =
            futures::stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
        let mut live = Live::default();
        for (question, answer) in answers {
            match (question, answer) {
                (Question::Pod(namespace, name), Answer::Pod(fact)) => {
                    live.pods.insert((namespace, name), fact);
                }
                (Question::Machine(namespace, name), Answer::Machine(fact)) => {
                    live.machines.insert((namespace, name), fact);
                }
                (Question::Node(name), Answer::Node(fact)) => drop(live.nodes.insert(name, fact)),
                _ => {}
            }
        }
        live
    }

    async fn answer(&self, question: Question) -> (Question, Answer) {
        let answer = match &question {
            Question::Pod(namespace, name) => Answer::Pod(self.pod(namespace, name).await),
            Question::Machine(namespace, name) => Answer::Machine(self.machine(namespace, name).await),
            Question::Node(name) => Answer::Node(self.node(name).await),
        };
        (question, answer)
    }

    async fn pod(&self, namespace: &str, name: &str) -> PodFact {
        match self.object::<Pod>(namespace, name).await {
            Ok(Some(pod)) => PodFact::Present(pod_state(&pod)),
            Ok(None) => PodFact::Absent,
            Err(error) => {
                tracing::warn!(%error, "a pod could not be read: its addresses count as used");
                PodFact::Unknown
            }
        }
    }

    async fn machine(&self, namespace: &str, name: &str) -> MachineFact {
        let (machine, instance) = futures::join!(
            self.object::<VirtualMachine>(namespace, name),
            self.object::<VirtualMachineInstance>(namespace, name)
        );
        match (machine, instance) {
            (Ok(Some(_)), _) => MachineFact::Present,
            (_, Ok(Some(instance))) if !instance.has_machine => MachineFact::Present,
            (Ok(None), Ok(_)) => MachineFact::Absent,
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!(%error, "a machine could not be read: its addresses count as used");
                MachineFact::Unknown
            }
        }
    }

    /// Looks up a node by its Calico name.
    async fn node(&self, name: &str) -> NodeFact {
        let kubernetes = if self.is_kubernetes {
            name.to_owned()
        } else {
            match self.client.resource::<NodeSpec>().get("", name).await {
                Ok(node) => match kubernetes_name(&node.spec) {
                    Some(kubernetes) => kubernetes,
                    None => return NodeFact::Untouchable,
                },
                Err(error) if error.is_does_not_exist() => {
                    return NodeFact::Gone { kubernetes: String::new() };
                }
                Err(error) => {
                    tracing::warn!(%error, node = name, "a node could not be read: nothing of it is released");
                    return NodeFact::Untouchable;
                }
            }
        };
        match self.object::<Node>("", &kubernetes).await {
            Ok(Some(_)) => NodeFact::Exists { kubernetes, is_migrating: false },
            Ok(None) => NodeFact::Gone { kubernetes },
            Err(error) => {
                tracing::warn!(%error, "a node could not be read: nothing of it is released");
                NodeFact::Untouchable
            }
        }
    }

    async fn object<T: Slim>(&self, namespace: &str, name: &str) -> Result<Option<T>, ClusterError> {
        let what = format!("read {} {namespace}/{name}", T::COLLECTION.plural);
        match self.cluster.get::<T::Wire>(&what, &T::COLLECTION.object(namespace, name)).await {
            Ok(wire) => Ok(Some(T::take(wire, &mut Strings::default()).object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether a leak was confirmed because its node is gone.
#[must_use]
pub(crate) fn is_for_gone_node(leak: &Leak, cached: &Cached<'_>) -> bool {
    matches!(cached.node(&leak.node), NodeFact::Gone { .. })
}
