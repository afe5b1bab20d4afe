//! Converts readings to the resource. Only the part of the family that was read changes.

use super::readings::Reading;
use api::{
    BGPDaemonState, BGPDaemonStatus, BGPPeerType, BGPSessionState, CalicoNodePeer, CalicoNodeRoute,
    CalicoNodeRouteLearnedFrom, CalicoNodeRouteSourceType, CalicoNodeRouteType, CalicoNodeStatusStatus,
};
use bird_control::{Route, Session, Status, type_and_address};
use model::IpVersion;

/// Fills in the state of a daemon.
pub(crate) fn agent(answer: &mut CalicoNodeStatusStatus, family: IpVersion, reading: Reading<Status>) {
    let part = match family {
        IpVersion::V4 => &mut answer.agent.bird_v4,
        IpVersion::V6 => &mut answer.agent.bird_v6,
    };
    *part = match reading {
        Reading::NoDaemon => {
            BGPDaemonStatus { state: BGPDaemonState::NotReady, ..BGPDaemonStatus::default() }
        }
        Reading::Said(status) => BGPDaemonStatus {
            state: if status.ready { BGPDaemonState::Ready } else { BGPDaemonState::NotReady },
            version: status.version,
            router_id: status.router_id,
            last_boot_time: status.last_boot,
            last_reconfiguration_time: status.last_reconfiguration,
            ..BGPDaemonStatus::default()
        },
    };
}

/// Fills in the sessions of a daemon.
pub(crate) fn bgp(answer: &mut CalicoNodeStatusStatus, family: IpVersion, reading: Reading<Vec<Session>>) {
    let sessions = match reading {
        Reading::NoDaemon => Vec::new(),
        Reading::Said(sessions) => sessions,
    };
    let count = |up: bool| {
        let found = sessions.iter().filter(|session| (session.state == "up") == up).count();
        i64::try_from(found).unwrap_or(i64::MAX)
    };
    let (established, not_established) = (count(true), count(false));
    let peers = sessions.iter().map(peer).collect();
    let part = &mut answer.bgp;
    match family {
        IpVersion::V4 => {
            (part.number_established_v4, part.number_not_established_v4) = (established, not_established);
            part.peers_v4 = peers;
        }
        IpVersion::V6 => {
            (part.number_established_v6, part.number_not_established_v6) = (established, not_established);
            part.peers_v6 = peers;
        }
    }
}

fn peer(session: &Session) -> CalicoNodePeer {
    let state = BGPSessionState::from(session.bgp_state.as_str());
    CalicoNodePeer {
        peer_ip: session.address.clone(),
        kind: peer_type(&session.peer_type),
        // A state that the resource cannot express is left out.
        state: if state.is_known() { state } else { BGPSessionState::Unset },
        since: session.since.clone(),
        ..CalicoNodePeer::default()
    }
}

fn peer_type(word: &str) -> BGPPeerType {
    match word {
        "Mesh" => BGPPeerType::NodeMesh,
        "Node" => BGPPeerType::NodePeer,
        "Global" => BGPPeerType::GlobalPeer,
        _ => BGPPeerType::Unset,
    }
}

/// Fills in the routes of a daemon.
pub(crate) fn routes(answer: &mut CalicoNodeStatusStatus, family: IpVersion, reading: Reading<Vec<Route>>) {
    let routes = match reading {
        Reading::NoDaemon => Vec::new(),
        Reading::Said(routes) => routes.into_iter().map(|found| route(family, found)).collect(),
    };
    match family {
        IpVersion::V4 => answer.routes.routes_v4 = routes,
        IpVersion::V6 => answer.routes.routes_v6 = routes,
    }
}

fn route(family: IpVersion, route: Route) -> CalicoNodeRoute {
    CalicoNodeRoute {
        kind: if route.primary { CalicoNodeRouteType::FIB } else { CalicoNodeRouteType::RIB },
        destination: route.destination,
        gateway: route.gateway,
        interface: route.interface,
        learned_from: learned_from(family, &route.learned_from),
        ..CalicoNodeRoute::default()
    }
}

/// The origin of a route, according to the name of BIRD's protocol.
fn learned_from(family: IpVersion, protocol: &str) -> CalicoNodeRouteLearnedFrom {
    let known = [
        ("kernel", CalicoNodeRouteSourceType::Kernel),
        ("static", CalicoNodeRouteSourceType::Static),
        ("direct", CalicoNodeRouteSourceType::Direct),
    ];
    let mut origin = CalicoNodeRouteLearnedFrom::default();
    if let Some((_, source)) = known.into_iter().find(|(prefix, _)| protocol.starts_with(prefix)) {
        origin.source_type = source;
    } else if let Some((peer_type, address)) = type_and_address(family, protocol) {
        origin.source_type = if peer_type == "Mesh" {
            CalicoNodeRouteSourceType::NodeMesh
        } else {
            CalicoNodeRouteSourceType::BGPPeer
        };
        origin.peer_ip = address;
    } else {
        // Sessions with workloads, and manually added protocols, count as peers as well.
        origin.source_type = CalicoNodeRouteSourceType::BGPPeer;
    }
    origin
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(peer_type: &str, state: &str, bgp_state: &str) -> Session {
        Session {
            name: format!("{peer_type}_10_0_0_2"),
            peer_type: peer_type.to_owned(),
            address: "10.0.0.2".to_owned(),
            state: state.to_owned(),
            since: "09:00".to_owned(),
            bgp_state: bgp_state.to_owned(),
        }
    }

    #[test]
    fn a_missing_daemon_is_not_ready() {
        let mut answer = CalicoNodeStatusStatus::default();
        let status =
            Status { ready: true, version: "v1".into(), router_id: "10.0.0.1".into(), ..Status::default() };
        agent(&mut answer, IpVersion::V4, Reading::Said(status));
        agent(&mut answer, IpVersion::V6, Reading::NoDaemon);
        assert_eq!(answer.agent.bird_v4.state, BGPDaemonState::Ready);
        assert_eq!(answer.agent.bird_v4.router_id, "10.0.0.1");
        assert_eq!(answer.agent.bird_v6.state, BGPDaemonState::NotReady);
    }

    #[test]
    fn sessions_are_counted_by_family() {
        let mut answer = CalicoNodeStatusStatus::default();
        let found = vec![
            session("Mesh", "up", "Established"),
            session("Node", "start", "Active"),
            session("Global", "start", "Strange"),
        ];
        bgp(&mut answer, IpVersion::V4, Reading::Said(found));
        bgp(&mut answer, IpVersion::V6, Reading::NoDaemon);
        let part = &answer.bgp;
        assert_eq!((part.number_established_v4, part.number_not_established_v4), (1, 2));
        assert_eq!((part.number_established_v6, part.number_not_established_v6), (0, 0));
        let kinds: Vec<&str> = part.peers_v4.iter().map(|peer| peer.kind.as_str()).collect();
        assert_eq!(kinds, ["NodeMesh", "NodePeer", "GlobalPeer"]);
        let states: Vec<&str> = part.peers_v4.iter().map(|peer| peer.state.as_str()).collect();
        assert_eq!(states, ["Established", "Active", ""]);
        // The other family's reading does not change this one's part.
        bgp(&mut answer, IpVersion::V6, Reading::Said(vec![session("Mesh", "up", "Established")]));
        assert_eq!((answer.bgp.number_established_v4, answer.bgp.number_established_v6), (1, 1));
    }

    #[test]
    fn routes_have_their_origin() {
        for (protocol, source, peer) in [
            ("kernel1", "Kernel", ""),
            ("static1", "Static", ""),
            ("direct1", "Direct", ""),
            ("Mesh_10_0_0_2", "NodeMesh", "10.0.0.2"),
            ("Node_10_0_0_2", "BGPPeer", "10.0.0.2"),
            ("Global_10_0_0_2", "BGPPeer", "10.0.0.2"),
            ("Local_Workload_10_0_0_2", "BGPPeer", ""),
        ] {
            let origin = learned_from(IpVersion::V4, protocol);
            assert_eq!((origin.source_type.as_str(), origin.peer_ip.as_str()), (source, peer), "{protocol}");
        }
    }
}
