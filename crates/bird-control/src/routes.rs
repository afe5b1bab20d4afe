//! The routes known to the daemon: `show route`.

use crate::BirdError;
use crate::connection::{Connection, without_code};
use model::IpVersion;
use std::path::Path;

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The destination network.
    pub destination: String,
    /// The next hop; `N/A` for a route without one.
    pub gateway: String,
    /// The outgoing interface, or what happens to packets instead.
    pub interface: String,
    /// The protocol that provided it.
    pub learned_from: String,
    /// Whether it is the preferred route to its destination.
    pub primary: bool,
}

/// The routes of one family.
///
/// # Errors
/// When no connection is possible, or the answer has an unknown format.
pub async fn routes(family: IpVersion, sockets: &[impl AsRef<Path>]) -> Result<Vec<Route>, BirdError> {
    Ok(read(&Connection::open(family, sockets).await?.ask("show route").await?))
}

fn read(lines: &[String]) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    for line in lines.iter().filter(|line| line.starts_with("1007") || line.starts_with(' ')) {
        let text = without_code(line);
        // An additional route to the same destination leaves the first column empty.
        let previous = routes.last().map(|route| route.destination.clone());
        if let Some(route) = parse(text, previous) {
            routes.push(route);
        }
    }
    routes
}

/// Parses a row: `DESTINATION via GATEWAY on INTERFACE [PROTOCOL since from address] * (preference)`, and variants.
fn parse(row: &str, previous: Option<String>) -> Option<Route> {
    let (path, origin) = row.split_once(" [")?;
    let (origin, rest) = origin.split_once(']')?;
    let learned_from = origin.split_whitespace().next()?.to_owned();
    let words: Vec<&str> = path.split_whitespace().collect();
    let (destination, way) = match words.as_slice() {
        [first, ..] if matches!(*first, "via" | "dev" | "blackhole" | "unreachable") => {
            (previous?, words.as_slice())
        }
        [destination, way @ ..] => ((*destination).to_owned(), way),
        [] => return None,
    };
    let (gateway, interface) = match way {
        ["via", gateway, "on", interface, ..] => (*gateway, *interface),
        ["dev", interface, ..] => ("N/A", *interface),
        [fate @ ("blackhole" | "unreachable"), ..] => ("N/A", *fate),
        _ => return None,
    };
    Some(Route {
        destination,
        gateway: gateway.to_owned(),
        interface: interface.to_owned(),
        learned_from,
        primary: rest.starts_with(" *"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_of_all_kinds() {
        let lines = [
            "0001 BIRD v0.3.3+birdv1.6.8 ready.",
            "1007-0.0.0.0/0          via 172.17.0.1 on eth0 [kernel1 20:10:57] * (10)",
            " 192.168.110.128/26 via 172.17.0.5 on eth0 [Mesh_172_17_0_5 20:10:57] * (100/0) [i]",
            "                    via 172.17.0.6 on eth0 [Node_172_17_0_6 20:11:00] (100/0) [i]",
            " 192.168.162.128/26 blackhole [static1 20:10:56] * (200)",
            " 192.168.162.128/32 dev tunl0 [direct1 20:10:56] * (240)",
            " 10.9.0.0/16        unreachable [Mesh_172_17_0_7 20:10:56 from 172.17.0.7] (100/-) [i]",
            " something else entirely",
            "0000 ",
        ]
        .map(str::to_owned);
        let rows: Vec<String> = read(&lines)
            .iter()
            .map(|route| {
                let mark = if route.primary { "*" } else { "" };
                [route.destination.as_str(), &route.gateway, &route.interface, &route.learned_from, mark]
                    .join("|")
            })
            .collect();
        assert_eq!(
            rows,
            [
                "0.0.0.0/0|172.17.0.1|eth0|kernel1|*",
                "192.168.110.128/26|172.17.0.5|eth0|Mesh_172_17_0_5|*",
                "192.168.110.128/26|172.17.0.6|eth0|Node_172_17_0_6|",
                "192.168.162.128/26|N/A|blackhole|static1|*",
                "192.168.162.128/32|N/A|tunl0|direct1|*",
                "10.9.0.0/16|N/A|unreachable|Mesh_172_17_0_7|",
            ]
        );
    }

    #[test]
    fn a_row_without_destination_needs_one_before_it() {
        assert_eq!(read(&["1007- via 10.0.0.1 on eth0 [kernel1 20:10:57] * (10)".to_owned()]), []);
    }
}
