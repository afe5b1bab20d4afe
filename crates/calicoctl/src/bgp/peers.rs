//! `calicoctl bgp peers`: every intended session, and its state.

use super::{Loaded, Row};
use bgp::NodeName;
use bgp::intent::{Session, SessionKind};
use serde::Serialize;

/// A session.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Peer {
    node: String,
    #[serde(rename = "peerIP")]
    peer: String,
    #[serde(rename = "type")]
    kind: &'static str,
    as_number: u32,
    local_as_number: u32,
    origin: String,
    state: String,
    since: String,
}

impl Row for Peer {
    const TITLES: &'static str = "NODE\tPEER\tTYPE\tASN\tSTATE\tSINCE\tORIGIN";

    fn line(&self) -> String {
        let Self { node, peer, kind, as_number, state, since, origin, .. } = self;
        format!("{node}\t{peer}\t{kind}\t{as_number}\t{state}\t{since}\t{origin}")
    }
}

/// The sessions that a node should have, and any others that it reports.
pub(super) fn rows(loaded: &Loaded, node: &NodeName) -> Vec<Peer> {
    let Ok(intent) = loaded.cluster.intent(node) else { return Vec::new() };
    let report = loaded.reports.get(node);
    let reported: Vec<_> =
        report.iter().flat_map(|status| status.bgp.peers_v4.iter().chain(&status.bgp.peers_v6)).collect();
    let mut rows: Vec<Peer> = intent
        .sessions()
        .map(|session| {
            let address = session.remote.to_string();
            let known = reported
                .iter()
                .find(|peer| peer.peer_ip == address && peer.kind.as_str() == kind(session))
                .or_else(|| reported.iter().find(|peer| peer.peer_ip == address));
            let (state, since) = match (known, reported.is_empty()) {
                (Some(peer), _) => (peer.state.to_string(), peer.since.clone()),
                (None, true) => ("not reported".to_owned(), String::new()),
                (None, false) => ("missing".to_owned(), String::new()),
            };
            Peer {
                node: node.to_string(),
                peer: address,
                kind: kind(session),
                as_number: session.peer_as.0,
                local_as_number: session.local_as.0,
                origin: session.origin.to_string(),
                state,
                since,
            }
        })
        .collect();
    // Sessions of the backend that are not intended: objects changed, or the backend lags.
    for peer in reported {
        if !rows.iter().any(|row| row.peer == peer.peer_ip) {
            rows.push(Peer {
                node: node.to_string(),
                peer: peer.peer_ip.clone(),
                kind: "",
                as_number: 0,
                local_as_number: 0,
                origin: "reported by the node, but no longer intended".to_owned(),
                state: peer.state.to_string(),
                since: peer.since.clone(),
            });
        }
    }
    rows
}

/// The peer type in CalicoNodeStatus' terms.
fn kind(session: &Session) -> &'static str {
    match session.kind {
        SessionKind::Mesh => "NodeMesh",
        SessionKind::Global => "GlobalPeer",
        SessionKind::Node => "NodePeer",
        SessionKind::LocalWorkload => "LocalWorkload",
    }
}
