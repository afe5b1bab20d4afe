//! `node status show`: the daemons' state, sessions and routes as tables.

use super::readings::{Daemons, Reading};
use crate::context::Context;
use bird_control::BirdError;
use model::IpVersion;
use std::fmt::Write as _;

/// Returns all tables, for both families.
pub async fn show(context: &Context) -> String {
    let folders = bird_control::SOCKET_FOLDERS.iter().map(|folder| context.path(folder)).collect();
    let daemons = Daemons(folders);
    let mut text = String::new();
    for family in IpVersion::BOTH {
        let version = family.number();
        let status = rows(daemons.status(family).await, |status| {
            vec![vec![
                status.ready.to_string(),
                status.version,
                status.router_id,
                status.server_time,
                status.last_boot,
                status.last_reconfiguration,
            ]]
        });
        let titles = ["READY", "VERSION", "ROUTEID", "SERVERTIME", "LASTBOOT", "LASTRECONFIG"];
        section(&mut text, &format!("bird v{version} status"), "birdStatus", family, &titles, status);
        let peers = rows(daemons.sessions(family).await, |sessions| {
            let row = |peer: bird_control::Session| {
                vec![peer.address, peer.peer_type, peer.state, peer.since, peer.bgp_state]
            };
            sessions.into_iter().map(row).collect()
        });
        let titles = ["PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "BGPSTATE"];
        section(&mut text, &format!("bird v{version} BGP peers"), "bird BGP peers", family, &titles, peers);
        let routes = rows(daemons.routes(family).await, |routes| {
            let row = |route: bird_control::Route| {
                let primary = if route.primary { "*" } else { "" };
                vec![
                    route.destination,
                    route.gateway,
                    route.interface,
                    route.learned_from,
                    primary.to_owned(),
                ]
            };
            routes.into_iter().map(row).collect()
        });
        let titles = ["DESTINATION", "GATEWAY", "IFACE", "LEARNEDFROM", "PRIMARY"];
        section(&mut text, &format!("bird v{version} routes"), "birdRoutes", family, &titles, routes);
        text.push_str("\n\n");
    }
    text
}

type Rows = Result<Vec<Vec<String>>, String>;

fn rows<T>(reading: Result<Reading<T>, BirdError>, cells: impl FnOnce(T) -> Vec<Vec<String>>) -> Rows {
    match reading {
        Ok(Reading::Said(said)) => Ok(cells(said)),
        Ok(Reading::NoDaemon) => Err(String::new()),
        Err(error) => Err(error.to_string()),
    }
}

fn section(text: &mut String, title: &str, what: &str, family: IpVersion, titles: &[&str], rows: Rows) {
    // Writing to a string cannot fail.
    let _ = match rows {
        Ok(rows) => write!(text, "\n{title}\n{}", table(titles, &rows)),
        Err(reason) if reason.is_empty() => {
            let version = family.number();
            writeln!(
                text,
                "Error getting {what}: Error querying BIRD: unable to connect to BIRDv{version} socket"
            )
        }
        Err(reason) => writeln!(text, "Error getting {what}: {reason}"),
    };
}

/// A boxed table.
fn table(titles: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = titles.iter().map(|title| title.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let edge: String =
        widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect::<String>() + "+\n";
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).map(|(cell, width)| format!("| {cell:width$} "));
        cells.collect::<String>() + "|\n"
    };
    let body: String = rows.iter().map(|row| line(&mut row.iter().map(String::as_str))).collect();
    let head = line(&mut titles.iter().copied());
    if rows.is_empty() { format!("{edge}{head}{edge}") } else { format!("{edge}{head}{edge}{body}{edge}") }
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn a_table_is_as_wide_as_its_cells() {
        let rows = [vec!["10.0.0.0/8".to_owned(), "*".to_owned()]];
        assert_eq!(
            table(&["DESTINATION", "P"], &rows),
            "+-------------+---+\n| DESTINATION | P |\n+-------------+---+\n| 10.0.0.0/8  | * |\n+-------------+---+\n"
        );
        assert_eq!(table(&["A"], &[]), "+---+\n| A |\n+---+\n");
    }
}
