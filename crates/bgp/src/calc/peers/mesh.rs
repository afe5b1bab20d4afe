//! The node-to-node mesh.

use super::Sessions;
use crate::facts::{Facts, NodeFacts};
use crate::intent::Problem;
use crate::intent::session::{NextHop, Origin, Remote, Session, SessionKind, SessionName};
use model::IpVersion;

/// Connects every node with every other, unless one of the two is a route reflector.
pub(super) fn add(facts: &Facts, own: &NodeFacts, sessions: &mut Sessions) {
    let default = facts.default.as_deref();
    let enabled = default.and_then(|spec| spec.node_to_node_mesh_enabled).unwrap_or(true);
    if !enabled || own.cluster_id.is_some() {
        return;
    }
    let reference = default.and_then(|spec| spec.node_mesh_password.as_ref());
    let password = super::password(facts, reference, "BGPConfiguration default", &mut sessions.problems);
    for reason in &facts.mesh_extras.problems {
        let object = "BGPConfiguration default".to_owned();
        sessions.problems.push(Problem::Setting { object, reason: reason.clone() });
    }
    let restart_time = super::seconds(default.and_then(|spec| spec.node_mesh_max_restart_time.as_ref()));
    for version in [IpVersion::V4, IpVersion::V6] {
        let Some(own_address) = own.address(version) else { continue };
        for (name, node) in &facts.nodes {
            let Some(address) = node.address(version) else { continue };
            if address == own_address || node.cluster_id.is_some() {
                continue;
            }
            let remote = Remote::address(address);
            let session = Session {
                name: SessionName::of(SessionKind::Mesh, &remote, None),
                version,
                kind: SessionKind::Mesh,
                origin: Origin::Mesh(name.clone()),
                remote,
                port: facts.listen_port(name),
                peer_as: facts.as_of(node),
                local_as: facts.as_of(own),
                local_as_is_own: false,
                source: Some(own_address),
                passive: address.to_string() > own_address.to_string(),
                password: password.clone(),
                ttl_security: None,
                restart_time,
                keepalive_time: None,
                bfd: facts.mesh_extras.bfd,
                reflector_client: None,
                next_hop: NextHop::Auto,
                allowed_local_as: 0,
                import: Vec::new(),
                export: Vec::new(),
            };
            // Two nodes with one address are a mistake in the cluster; the first by name is used.
            sessions.family(version).entry(session.name.clone()).or_insert(session);
        }
    }
}
