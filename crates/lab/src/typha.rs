//! Typhas of a lab: they run at the router, between the datastore and all nodes, with TLS on both sides.
//!
//! On Kubernetes nodes find them through their service, so that a node whose Typha fails finds the next one. Elsewhere
//! each node gets one address, in turn, and waits for that one. Agents choose their Typha by their variables, not by
//! this module.

use crate::authority::{Authority, Signed};
use crate::inside::{Place, base_environment, node_program};
use crate::keeper::{Keeper, Request};
use crate::settings::{self, Variables, host_and_port};
use crate::state::Folder;
use crate::topology::{Datastore, Node, Topology};
use crate::{accounts, servers};
use anyhow::Result;
use serde_json::{Value, json};

/// The port of the first Typha; the others use the following ports.
const PORT: u16 = 5473;
/// The port where the first Typha reports whether it is ready.
const HEALTH_PORT: u16 = 9598;
/// The service, and its port.
const SERVICE: &str = "calico-typha";
/// The names in the certificates of both sides.
const SERVER_NAME: &str = "typha-server";
const CLIENT_NAME: &str = "typha-client";
/// The authority's certificate.
const AUTHORITY: &str = "typha-ca";

fn port(number: usize) -> u16 {
    PORT + u16::try_from(number).unwrap_or_default()
}

/// The programs' names in `lab status` and `lab logs`.
pub(crate) fn names(topology: &Topology) -> Vec<String> {
    (1..=topology.typhas).map(|number| format!("typha{number}")).collect()
}

/// Creates the certificates and starts the Typhas.
///
/// # Errors
/// When a file cannot be written or a Typha cannot be started.
pub(crate) fn start(
    folder: &Folder,
    topology: &Topology,
    keeper: &Keeper,
    keeper_pid: u32,
    router: &Place,
) -> Result<()> {
    let authority = Authority::new(folder, AUTHORITY)?;
    let server = authority.sign(folder, SERVER_NAME, &[])?;
    authority.sign(folder, CLIENT_NAME, &[])?;
    for (number, name) in names(topology).into_iter().enumerate() {
        let mut environment = base_environment(folder);
        environment.extend(settings::datastore_for_node(folder, topology));
        environment.extend(told(folder, &server, number));
        let words = router.words(keeper_pid, &[&node_program(), "typha"]);
        keeper.ask(&Request::Start { name, words, environment })?;
    }
    let address = topology.server_address();
    for (number, name) in names(topology).iter().enumerate() {
        servers::wait(folder, keeper, name, || servers::answers(router, address, port(number)))?;
    }
    Ok(())
}

/// The variables of a Typha, in addition to the datastore's.
fn told(folder: &Folder, server: &Signed, number: usize) -> Variables {
    let health = HEALTH_PORT + u16::try_from(number).unwrap_or_default();
    [
        ("TYPHA_SERVERPORT", port(number).to_string()),
        ("TYPHA_SERVERKEYFILE", server.key.display().to_string()),
        ("TYPHA_SERVERCERTFILE", server.certificate.display().to_string()),
        ("TYPHA_CAFILE", folder.file(&format!("{AUTHORITY}.pem")).display().to_string()),
        ("TYPHA_CLIENTCN", CLIENT_NAME.to_owned()),
        ("TYPHA_HEALTHENABLED", "true".to_owned()),
        ("TYPHA_HEALTHHOST", "127.0.0.1".to_owned()),
        ("TYPHA_HEALTHPORT", health.to_string()),
        ("TYPHA_LOGSEVERITYSCREEN", "info".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// The variables of agents; none in a lab without Typhas. `number` selects a Typha where there is no service.
pub(crate) fn for_agents(folder: &Folder, topology: &Topology, number: usize) -> Variables {
    if topology.typhas == 0 {
        return Variables::new();
    }
    let file = |name: &str| folder.file(name).display().to_string();
    let mut variables: Variables = [
        ("FELIX_TYPHAKEYFILE", file(&format!("{CLIENT_NAME}-key.pem"))),
        ("FELIX_TYPHACERTFILE", file(&format!("{CLIENT_NAME}.pem"))),
        ("FELIX_TYPHACAFILE", file(&format!("{AUTHORITY}.pem"))),
        ("FELIX_TYPHACN", SERVER_NAME.to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let place = match topology.datastore {
        Datastore::Kubernetes => [
            ("FELIX_TYPHAK8SSERVICENAME", SERVICE.to_owned()),
            ("FELIX_TYPHAK8SNAMESPACE", accounts::NAMESPACE.to_owned()),
        ]
        .to_vec(),
        Datastore::Embedded | Datastore::Etcd => {
            let address = host_and_port(topology.server_address(), port(number % topology.typhas));
            vec![("FELIX_TYPHAADDR", address)]
        }
    };
    variables.extend(place.into_iter().map(|(name, value)| (name.to_owned(), value)));
    variables
}

/// The index of a node among those that get an address.
pub(crate) fn number_of(topology: &Topology, node: &Node) -> usize {
    topology.nodes.iter().position(|one| one.name == node.name).unwrap_or_default()
}

/// The service and its endpoints: a slice for each Typha, because their ports differ.
pub(crate) fn objects(topology: &Topology) -> Vec<Value> {
    if topology.typhas == 0 {
        return Vec::new();
    }
    let address = topology.server_address();
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, "namespace": accounts::NAMESPACE},
        "spec": {"clusterIP": "None", "ports": [{"name": SERVICE, "port": PORT, "targetPort": PORT}]},
    })];
    for (number, name) in names(topology).iter().enumerate() {
        objects.push(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{SERVICE}-{name}"), "namespace": accounts::NAMESPACE,
                "labels": {"kubernetes.io/service-name": SERVICE},
            },
            "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
            "ports": [{"name": SERVICE, "port": port(number), "protocol": "TCP"}],
            "endpoints": [{"addresses": [address.to_string()], "conditions": {"ready": true}}],
        }));
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Wish, plan};

    #[test]
    fn variables_of_agents_and_typhas() {
        let folder = Folder::of("lab").unwrap();
        let wish = Wish { typhas: Some(2), ..Wish::default() };
        let topology = plan("lab", &wish).unwrap();
        let told: Vec<String> = topology
            .nodes
            .iter()
            .map(|node| for_agents(&folder, &topology, number_of(&topology, node)))
            .map(|variables| variables["FELIX_TYPHAADDR"].clone())
            .collect();
        assert_eq!(told, ["10.65.0.254:5473", "10.65.0.254:5474", "10.65.0.254:5473"]);
        let kubernetes = Wish { datastore: Some(Datastore::Kubernetes), ..wish };
        let topology = plan("lab", &kubernetes).unwrap();
        let variables = for_agents(&folder, &topology, 0);
        assert_eq!(variables["FELIX_TYPHAK8SSERVICENAME"], "calico-typha");
        assert!(!variables.contains_key("FELIX_TYPHAADDR"));
        assert_eq!(objects(&topology).len(), 3);
        let none = plan("lab", &Wish::default()).unwrap();
        assert_eq!((for_agents(&folder, &none, 0).len(), objects(&none).len()), (0, 0));
    }
}
