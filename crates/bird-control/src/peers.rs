//! The table of peers, `show protocols`, for people and readiness probes.
//!
//! Supports both BIRD 1 (one daemon per IP version, as Calico ships it) and BIRD 2.

use crate::BirdError;
use crate::connection::{Connection, without_code};
use model::IpVersion;
use std::path::Path;

/// The columns of tables that can be parsed.
const TITLES: [&str; 6] = ["name", "proto", "table", "state", "since", "info"];

/// One peering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The peer's address.
    pub address: String,
    /// The reason for the peering.
    pub peer_type: &'static str,
    /// The state of BIRD's protocol.
    pub state: String,
    /// When the state last changed.
    pub since: String,
    /// The state of the BGP session, with further information.
    pub info: String,
}

/// The answer of a BIRD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The peers of the family.
    pub peers: Vec<Peer>,
    /// Whether this BIRD has the peers of both families: BIRD 2 and later do.
    pub both_families: bool,
}

/// The peers of one family, from the first socket that accepts a connection.
///
/// # Errors
/// When no connection is possible, or the answer has an unknown format.
pub async fn peers(family: IpVersion, sockets: &[impl AsRef<Path>]) -> Result<Answer, BirdError> {
    let mut connection = Connection::open(family, sockets).await?;
    connection.send("show protocols").await?;
    let mut table = Table::new(family);
    while let Some(line) = connection.line().await? {
        if table.line(&line)? {
            break;
        }
    }
    Ok(table.answer)
}

/// A table being read.
struct Table {
    family: IpVersion,
    answer: Answer,
}

impl Table {
    fn new(family: IpVersion) -> Self {
        Self { family, answer: Answer::default() }
    }

    /// Processes a line; returns true for the last one.
    fn line(&mut self, line: &str) -> Result<bool, BirdError> {
        let rest = without_code(line);
        if line.starts_with("0000") {
            return Ok(true);
        } else if line.starts_with("0001") {
            // Calico's own BIRD is a BIRD 1 with the version `v0.3.3+birdv1.6.8`.
            let version = rest.strip_prefix("BIRD ").unwrap_or_default();
            self.answer.both_families = version.starts_with(|first: char| ('2'..='9').contains(&first));
        } else if line.starts_with("2002") {
            let titles = rest.split_whitespace().map(str::to_lowercase);
            if !titles.eq(TITLES) {
                return Err(BirdError::Unknown("unknown BIRD table output format".to_owned()));
            }
        } else if line.starts_with("1002") {
            self.row(rest);
        } else if let Some(row) = line.strip_prefix(' ') {
            self.row(row);
        } else {
            return Err(BirdError::Unknown("unexpected output line from BIRD".to_owned()));
        }
        Ok(false)
    }

    /// Processes a row; rows other than Calico's peerings are ignored.
    fn row(&mut self, row: &str) {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let [name, "BGP", _table, state, since, info @ ..] = columns.as_slice() else { return };
        let Some((kind, address)) = name.split_once('_').filter(|(_, address)| !address.is_empty()) else {
            return;
        };
        let peer_type = match kind {
            "Mesh" => "node-to-node mesh",
            "Node" => "node specific",
            "Global" => "global",
            _ => return,
        };
        if info.is_empty() || (self.answer.both_families && is_v4(address) != (self.family == IpVersion::V4))
        {
            return;
        }
        self.answer.peers.push(Peer {
            address: address.replace('_', crate::separator(self.family)),
            peer_type,
            state: (*state).to_owned(),
            since: (*since).to_owned(),
            info: info.join(" "),
        });
    }
}

/// Whether a protocol's name stands for an IPv4 address: four numbers, optionally with a port.
fn is_v4(address: &str) -> bool {
    let parts: Vec<&str> = address.split('_').take(4).collect();
    parts.len() == 4 && parts.iter().all(|part| part.parse::<u8>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(family: IpVersion, lines: &[&str]) -> Result<Vec<Peer>, BirdError> {
        let mut table = Table::new(family);
        for line in lines {
            if table.line(line)? {
                break;
            }
        }
        Ok(table.answer.peers)
    }

    fn rows(peers: &[Peer]) -> Vec<String> {
        let row =
            |peer: &Peer| [&peer.address, peer.peer_type, &peer.state, &peer.since, &peer.info].join("|");
        peers.iter().map(row).collect()
    }

    #[test]
    fn a_table_of_bird_1() {
        let lines = [
            "0001 BIRD v0.3.3+birdv1.6.8 ready.",
            "2002-name     proto    table    state  since       info",
            "1002-static1  Static   master   up     2026-11-15  ",
            " kernel1  Kernel   master   up     2026-11-15  ",
            " Mesh_172_17_8_102 BGP      master   up     2026-11-15  Established   ",
            " Global_10_0_0_1 BGP master start 09:12:01 Connect Socket: Connection refused",
            " Node_10_0_0_2 BGP master up 2026-11-15 Established",
            " mine BGP master up 2026-11-15 Established",
            " Other_10_0_0_3 BGP master up 2026-11-15 Established",
            "0000 ",
            " Mesh_10_0_0_9 BGP master up 2026-11-15 Established",
        ];
        let peers = read(IpVersion::V4, &lines).expect("a table");
        assert_eq!(
            rows(&peers),
            [
                "172.17.8.102|node-to-node mesh|up|2026-11-15|Established",
                "10.0.0.1|global|start|09:12:01|Connect Socket: Connection refused",
                "10.0.0.2|node specific|up|2026-11-15|Established",
            ]
        );
        let lines = [
            "0001 BIRD 1.6.8 ready.",
            "1002-Mesh_fd80_24e2_f998_72d6__2 BGP master up 09:00 Established",
            "0000",
        ];
        assert_eq!(
            rows(&read(IpVersion::V6, &lines).expect("a table")),
            ["fd80:24e2:f998:72d6::2|node-to-node mesh|up|09:00|Established"]
        );
    }

    #[test]
    fn bird_2_has_both_families() {
        let lines = [
            "0001 BIRD 2.0.12 ready.",
            "2002-Name       Proto      Table      State  Since         Info",
            "1002-device1    Device     ---        up     21:22:33.444  ",
            " Mesh_10_0_0_1 BGP     ---        up     21:22:33.444  Established",
            " Mesh_fd00__1 BGP     ---        start  21:22:33.444  Active        Socket: Connection refused",
            "0000 ",
        ];
        for (family, expected) in [
            (IpVersion::V4, "10.0.0.1|node-to-node mesh|up|21:22:33.444|Established"),
            (IpVersion::V6, "fd00::1|node-to-node mesh|start|21:22:33.444|Active Socket: Connection refused"),
        ] {
            assert_eq!(rows(&read(family, &lines).expect("a table")), [expected]);
        }
    }

    #[test]
    fn other_answers_are_refused() {
        for (line, expected) in [
            ("2002-name proto table", "unknown BIRD table output format"),
            ("9001 syntax error", "unexpected output line from BIRD"),
            ("", "unexpected output line from BIRD"),
        ] {
            let error = read(IpVersion::V4, &[line]).expect_err(line);
            assert_eq!(error.to_string(), expected);
        }
        // Truncated lines with a known code are ignored.
        assert_eq!(read(IpVersion::V4, &["1002", " ", "0000"]).expect("nothing"), []);
    }
}
