//! `calicoctl bgp routes`: the routes that nodes know.

use super::{Loaded, Row};
use bgp::NodeName;
use serde::Serialize;

/// A route.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Route {
    node: String,
    destination: String,
    gateway: String,
    interface: String,
    #[serde(rename = "type")]
    kind: String,
    learned_from: String,
}

impl Row for Route {
    const TITLES: &'static str = "NODE\tDESTINATION\tGATEWAY\tINTERFACE\tTYPE\tLEARNED FROM";

    fn line(&self) -> String {
        let Self { node, destination, gateway, interface, kind, learned_from } = self;
        format!("{node}\t{destination}\t{gateway}\t{interface}\t{kind}\t{learned_from}")
    }
}

/// The routes that a node reported; empty if routes were not requested from it.
pub(super) fn rows(loaded: &Loaded, node: &NodeName) -> Vec<Route> {
    let report = loaded.reports.get(node);
    let routes =
        report.iter().flat_map(|status| status.routes.routes_v4.iter().chain(&status.routes.routes_v6));
    let row = |route: &api::CalicoNodeRoute| Route {
        node: node.to_string(),
        destination: route.destination.clone(),
        gateway: route.gateway.clone(),
        interface: route.interface.clone(),
        kind: route.kind.to_string(),
        learned_from: format!("{} {}", route.learned_from.source_type, route.learned_from.peer_ip)
            .trim()
            .to_owned(),
    };
    routes.map(row).collect()
}
