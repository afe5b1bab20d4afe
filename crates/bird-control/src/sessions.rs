//! BGP sessions with their details: `show protocols`, then `show protocols all NAME` for each session of Calico.

use crate::BirdError;
use crate::connection::{Connection, without_code};
use model::IpVersion;
use std::path::Path;

/// A BGP session configured by Calico.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The name of BIRD's protocol, such as `Mesh_10_0_0_1`.
    pub name: String,
    /// The first part of the name: `Mesh`, `Node` or `Global`.
    pub peer_type: String,
    /// The peer's address.
    pub address: String,
    /// The state of BIRD's protocol: `up`, `start` and so on.
    pub state: String,
    /// When the state last changed, in BIRD's spelling.
    pub since: String,
    /// The state of the BGP session: `Established`, `Active` and so on.
    pub bgp_state: String,
}

/// The sessions of one family.
///
/// # Errors
/// When no connection is possible, or an answer has an unknown format.
pub async fn sessions(family: IpVersion, sockets: &[impl AsRef<Path>]) -> Result<Vec<Session>, BirdError> {
    let mut connection = Connection::open(family, sockets).await?;
    let mut sessions = read_table(family, &connection.ask("show protocols").await?);
    for session in &mut sessions {
        let details = connection.ask(&format!("show protocols all {}", session.name)).await?;
        read_details(session, &details);
    }
    Ok(sessions)
}

/// The type and the address in a protocol's name; `None` for names other than Calico's.
#[must_use]
pub fn type_and_address(family: IpVersion, name: &str) -> Option<(&str, String)> {
    let (peer_type, address) = name.split_once('_')?;
    let known = matches!(peer_type, "Mesh" | "Node" | "Global") && !address.is_empty();
    known.then(|| (peer_type, address.replace('_', crate::separator(family))))
}

fn read_table(family: IpVersion, lines: &[String]) -> Vec<Session> {
    let mut sessions = Vec::new();
    for line in lines.iter().filter(|line| line.starts_with("1002") || line.starts_with(' ')) {
        let columns: Vec<&str> = without_code(line).split_whitespace().collect();
        // A row without a session state is not a session yet.
        let [name, "BGP", _table, state, since, _info, ..] = columns.as_slice() else { continue };
        let Some((peer_type, address)) = type_and_address(family, name) else { continue };
        sessions.push(Session {
            name: (*name).to_owned(),
            peer_type: peer_type.to_owned(),
            address,
            state: (*state).to_owned(),
            since: (*since).to_owned(),
            bgp_state: String::new(),
        });
    }
    sessions
}

fn read_details(session: &mut Session, lines: &[String]) {
    for line in lines {
        let text = without_code(line).trim();
        if let Some(state) = text.strip_prefix("BGP state:") {
            state.trim().clone_into(&mut session.bgp_state);
        } else if let Some(address) = text.strip_prefix("Neighbor address:") {
            address.trim().clone_into(&mut session.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_gets_its_details() {
        let table = [
            "2002-name     proto    table    state  since       info",
            "1002-kernel1  Kernel   master   up     2026-11-15  ",
            " Node_10_0_0_2_port_1790 BGP master start 09:12:01 Active Socket: Connection refused",
            " mine BGP master up 2026-11-15 Established",
            " Mesh_10_0_0_3 BGP master down 2026-11-15",
            "0000 ",
        ]
        .map(str::to_owned);
        let mut sessions = read_table(IpVersion::V4, &table);
        assert_eq!(sessions.len(), 1);
        let details = [
            "1002-Node_10_0_0_2_port_1790 BGP master start 09:12:01 Active",
            "1006-  Preference:     100",
            "   BGP state:          Active",
            "     Neighbor address: 10.0.0.2",
            "0000 ",
        ]
        .map(str::to_owned);
        read_details(&mut sessions[0], &details);
        let session = &sessions[0];
        assert_eq!(
            [&session.peer_type, &session.address, &session.state, &session.since, &session.bgp_state],
            ["Node", "10.0.0.2", "start", "09:12:01", "Active"]
        );
    }

    #[test]
    fn names_contain_the_type_and_address() {
        assert_eq!(
            type_and_address(IpVersion::V6, "Mesh_fd80_24e2__2"),
            Some(("Mesh", "fd80:24e2::2".to_owned()))
        );
        for name in ["static1", "Other_10_0_0_1", "Mesh_", "Mesh"] {
            assert_eq!(type_and_address(IpVersion::V4, name), None, "{name}");
        }
    }
}
