//! Who talks to whom, under which policies, and the expected outcome. Pure: a test compares the expectations with
//! `explain`.

use serde_json::{Value, json};

/// The port that servers listen on.
pub(super) const SERVER_PORT: u16 = 8080;
/// The port of their service.
pub(super) const SERVICE_PORT: u16 = 80;

/// The nodes and names that a test uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The test's own namespace.
    pub namespace: String,
    /// The image of the probes.
    pub image: String,
    /// One node, or two.
    pub nodes: Vec<String>,
}

/// A pod that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: String,
}

/// A pod that connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    /// A pod that policies admit.
    Friend,
    /// A pod that policies do not admit.
    Stranger,
    /// A pod in the network of the first node.
    Host,
}

impl Client {
    pub(crate) const ALL: [Self; 3] = [Self::Friend, Self::Stranger, Self::Host];

    /// The name of its pod.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Friend => "friend",
            Self::Stranger => "stranger",
            Self::Host => "host",
        }
    }
}

/// The expected outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It must arrive.
    Yes,
    /// It must not.
    No,
    /// Not judged: it depends on how nodes reach each other.
    Any,
}

/// A set of policies, and the expectations under them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Phase {
    /// Its name.
    pub name: &'static str,
    /// The policies of this phase; those of the previous phase are deleted.
    pub policies: Vec<Value>,
    /// Whether each client reaches the servers; the second value is for servers on other nodes than the client's.
    pub expected: [(Client, Reach, Reach); 3],
    /// Whether friends may not send at all.
    pub denies_egress: bool,
}

impl Layout {
    /// The pods that answer: one on each node.
    #[must_use]
    pub(crate) fn servers(&self) -> Vec<Server> {
        let server = |(index, node): (usize, &String)| Server {
            name: format!("server-{}", index + 1),
            node: node.clone(),
        };
        self.nodes.iter().enumerate().map(server).collect()
    }

    /// What a phase expects for a client and a server.
    #[must_use]
    pub(crate) fn reach(&self, phase: &Phase, client: Client, server: &Server) -> Reach {
        // Clients are on the first node.
        let is_near = self.nodes.first() == Some(&server.node);
        let found = phase.expected.iter().find(|(known, _, _)| *known == client);
        found.map_or(Reach::Any, |(_, near, far)| if is_near { *near } else { *far })
    }

    /// The namespace.
    #[must_use]
    pub(crate) fn namespace_object(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": self.namespace,
                // Stricter pod security levels refuse a probe in the host's network.
                "labels": {"pod-security.kubernetes.io/enforce": "privileged", "app.kubernetes.io/managed-by": "tortie"},
            },
        })
    }

    /// The pods that answer.
    #[must_use]
    pub(crate) fn server_objects(&self) -> Vec<Value> {
        self.servers()
            .iter()
            .map(|server| {
                let mut pod = self.pod(&server.name, &server.node, &["probe", "serve"]);
                pod["metadata"]["labels"] = json!({"app": "server"});
                pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": SERVER_PORT}]);
                pod
            })
            .collect()
    }

    /// Their service, with the IP versions of the pods: the cluster's services may have more.
    #[must_use]
    pub(crate) fn service_object(&self, versions: &[&str]) -> Value {
        let policy = if versions.len() > 1 { "RequireDualStack" } else { "SingleStack" };
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "server", "namespace": self.namespace},
            "spec": {
                "type": "NodePort", "selector": {"app": "server"},
                "ports": [{"port": SERVICE_PORT, "targetPort": SERVER_PORT}],
                "ipFamilies": versions, "ipFamilyPolicy": policy,
            },
        })
    }

    /// A client pod with these targets.
    #[must_use]
    pub(crate) fn client_object(&self, client: Client, targets: &[String]) -> Value {
        let node = self.nodes.first().map(String::as_str).unwrap_or_default();
        let mut words = vec!["probe", "watch"];
        words.extend(targets.iter().map(String::as_str));
        let mut pod = self.pod(client.name(), node, &words);
        pod["metadata"]["labels"] = json!({"role": client.name()});
        if client == Client::Host {
            pod["spec"]["hostNetwork"] = json!(true);
            pod["spec"]["dnsPolicy"] = json!("ClusterFirstWithHostNet");
        }
        pod
    }

    fn pod(&self, name: &str, node: &str, words: &[&str]) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 1,
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "probe", "image": self.image, "imagePullPolicy": "IfNotPresent",
                    "command": ["/usr/bin/tortie"], "args": words,
                }],
            },
        })
    }
}

/// All phases, in order.
#[must_use]
pub(crate) fn phases(namespace: &str) -> Vec<Phase> {
    use Client::{Friend, Host, Stranger};
    use Reach::{Any, No, Yes};
    let policy = |name: &str, spec: Value| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        })
    };
    let servers = json!({"matchLabels": {"app": "server"}});
    let deny = policy("deny-ingress", json!({"podSelector": servers, "policyTypes": ["Ingress"]}));
    let allow = policy(
        "allow-friends",
        json!({
            "podSelector": servers, "policyTypes": ["Ingress"],
            "ingress": [{
                "from": [{"podSelector": {"matchLabels": {"role": "friend"}}}],
                "ports": [{"protocol": "TCP", "port": SERVER_PORT}],
            }],
        }),
    );
    let wrong_port = policy(
        "allow-other-port",
        json!({
            "podSelector": servers, "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": SERVER_PORT + 1}]}],
        }),
    );
    let egress = policy(
        "deny-egress",
        json!({"podSelector": {"matchLabels": {"role": "friend"}}, "policyTypes": ["Egress"]}),
    );
    vec![
        Phase {
            name: "without policy",
            policies: vec![],
            expected: [(Friend, Yes, Yes), (Stranger, Yes, Yes), (Host, Yes, Yes)],
            denies_egress: false,
        },
        // A node always reaches its own pods; from another node, the source address depends on the tunnel.
        Phase {
            name: "ingress denied",
            policies: vec![deny.clone()],
            expected: [(Friend, No, No), (Stranger, No, No), (Host, Yes, Any)],
            denies_egress: false,
        },
        Phase {
            name: "friends let in",
            policies: vec![deny, allow],
            expected: [(Friend, Yes, Yes), (Stranger, No, No), (Host, Yes, Any)],
            denies_egress: false,
        },
        Phase {
            name: "another port let in",
            policies: vec![wrong_port],
            expected: [(Friend, No, No), (Stranger, No, No), (Host, Yes, Any)],
            denies_egress: false,
        },
        Phase {
            name: "egress denied",
            policies: vec![egress],
            expected: [(Friend, No, No), (Stranger, Yes, Yes), (Host, Yes, Yes)],
            denies_egress: true,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use explain::{Cluster, Query, Verdict, World};

    #[test]
    fn expectations_agree_with_explain() {
        let layout =
            Layout { namespace: "t".into(), image: "i".into(), nodes: vec!["n1".into(), "n2".into()] };
        for phase in phases(&layout.namespace) {
            let mut cluster = Cluster::new();
            cluster.add_manifest(layout.namespace_object()).unwrap();
            let mut pods = layout.server_objects();
            pods.push(layout.service_object(&["IPv4"]));
            pods.extend([Client::Friend, Client::Stranger].map(|client| layout.client_object(client, &[])));
            for (index, mut object) in pods.into_iter().enumerate() {
                if object["kind"] == "Pod" {
                    let address = format!("10.1.0.{}", index + 1);
                    object["status"] =
                        json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
                }
                cluster.add_manifest(object).unwrap();
            }
            for policy in &phase.policies {
                cluster.add_manifest(policy.clone()).unwrap();
            }
            cluster.complete();
            let world = World::new(&cluster);
            for client in [Client::Friend, Client::Stranger] {
                for server in layout.servers() {
                    let query = Query {
                        from: format!("t/{}", client.name()),
                        to: format!("t/{}:{SERVER_PORT}", server.name),
                        ..Query::default()
                    };
                    let expected = match layout.reach(&phase, client, &server) {
                        Reach::Yes => Verdict::Allow,
                        _ => Verdict::Deny,
                    };
                    let found =
                        world.verdict(&query).unwrap_or_else(|error| panic!("{}: {error}", phase.name));
                    assert_eq!(found, expected, "{}: {} to {}", phase.name, client.name(), server.name);
                }
            }
        }
    }

    #[test]
    fn the_pods_are_where_they_should_be() {
        let layout =
            Layout { namespace: "t".into(), image: "i".into(), nodes: vec!["n1".into(), "n2".into()] };
        let objects = layout.server_objects();
        assert_eq!(objects.len(), 2);
        assert_eq!(objects[1]["spec"]["nodeName"], "n2");
        let host = layout.client_object(Client::Host, &["10.0.0.1:80".into()]);
        assert_eq!(host["spec"]["hostNetwork"], true);
        assert_eq!(host["spec"]["containers"][0]["args"], json!(["probe", "watch", "10.0.0.1:80"]));
    }
}
