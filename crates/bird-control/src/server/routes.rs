//! `show route`, in the columns of BIRD 1.6.

use super::facts::{Distance, PathFacts, RouteFacts, RouteTarget};
use super::protocols::since;
use super::question::{Destination, RouteQuestion};
use super::text::Text;
use jiff::Timestamp;
use std::fmt::Write as _;

pub(super) fn show(
    text: &mut Text,
    question: &RouteQuestion,
    now: Timestamp,
    routes: &[RouteFacts],
    (networks, total): (usize, usize),
) {
    if question.count {
        let found = routes.len();
        return text.end(14, format_args!("{found} of {total} routes for {networks} networks"));
    }
    let one = matches!(question.destination, Some(Destination::Exact(_) | Destination::For(_)));
    if one && routes.is_empty() {
        return text.end(8001, format_args!("Network not in table"));
    }
    let mut previous = None;
    for route in routes {
        // An additional route to the same destination leaves the first column empty.
        let destination =
            if previous == Some(route.destination) { String::new() } else { route.destination.to_string() };
        previous = Some(route.destination);
        row(text, now, &destination, route);
        if question.all {
            attributes(text, route);
        }
    }
    text.end(0, format_args!(""));
}

fn row(text: &mut Text, now: Timestamp, destination: &str, route: &RouteFacts) {
    let via = match &route.target {
        RouteTarget::Via(hop) => format!("via {} on {}", hop.gateway, hop.interface),
        RouteTarget::Device(interface) => format!("dev {interface}"),
        RouteTarget::Blackhole => "blackhole".to_owned(),
        RouteTarget::Unreachable => "unreachable".to_owned(),
        RouteTarget::Multipath(_) => "multipath".to_owned(),
    };
    let from = route.from.map(|from| format!(" from {from}")).unwrap_or_default();
    let mark = if route.primary { " *" } else { "" };
    let since = since(now, route.since);
    let info = info(route);
    text.line(1007, format_args!("{destination:<18} {via} [{} {since}{from}]{mark}{info}", route.protocol));
    if let RouteTarget::Multipath(hops) = &route.target {
        for hop in hops {
            text.line(1007, format_args!("\tvia {} on {} weight 1", hop.gateway, hop.interface));
        }
    }
}

/// Preference, distance of the next hop, AS number and origin.
fn info(route: &RouteFacts) -> String {
    let mut info = format!(" ({}", route.preference);
    let Some(path) = &route.path else { return info + ")" };
    if route.stale {
        info.push('s');
    }
    match path.distance {
        // Writing to a string cannot fail.
        Distance::Metric(metric) => _ = write!(info, "/{metric}"),
        Distance::Far => info.push_str("/?"),
        Distance::Unreachable => info.push_str("/-"),
    }
    info.push_str(") [");
    if let Some(origin_as) = path.origin_as {
        let _ = write!(info, "AS{origin_as}");
    }
    info.push(path.origin);
    info.push(']');
    info
}

fn attributes(text: &mut Text, route: &RouteFacts) {
    text.line(1008, format_args!("\tType: {} unicast univ", route.source));
    for (name, value) in route.path.iter().flat_map(|PathFacts { attributes, .. }| attributes) {
        text.line(1012, format_args!("\t{name}: {value}"));
    }
}
