//! Logs the changes of BIRD's sessions: each change of state once, with BIRD's own reason.

use bgp::IpVersion;
use bird_control::Peer;
use daemon::Shutdown;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How often BIRD is queried.
const LOOK: Duration = Duration::from_secs(10);

/// A change of one session.
#[derive(Debug, PartialEq, Eq)]
enum News<'a> {
    /// It is up, down, or in another state: address, state, and BIRD's reason, if any.
    State(&'a str, &'a str, &'a str),
    /// It is no longer configured.
    Gone(&'a str),
}

/// Queries BIRD periodically until shutdown. A BIRD that does not answer has just ended, which is reported elsewhere.
pub(crate) async fn follow(version: IpVersion, socket: PathBuf, shutdown: Shutdown) {
    let mut known = BTreeMap::new();
    let sockets = [socket];
    while shutdown.sleep(LOOK).await {
        let Ok(answer) = bird_control::peers(version, &sockets).await else { continue };
        let current: BTreeMap<String, String> =
            answer.peers.into_iter().map(|Peer { address, info, .. }| (address, info)).collect();
        for news in changes(&known, &current) {
            match news {
                News::State(peer, "Established", _) => tracing::info!(peer, "BGP session established"),
                News::State(peer, state, "") => tracing::info!(peer, state, "BGP session not established"),
                News::State(peer, state, reason) => {
                    tracing::warn!(peer, state, reason, "BGP session not established");
                }
                News::Gone(peer) => tracing::info!(peer, "BGP session removed"),
            }
        }
        known = current;
    }
}

fn changes<'a>(before: &'a BTreeMap<String, String>, now: &'a BTreeMap<String, String>) -> Vec<News<'a>> {
    let mut news = Vec::new();
    for (peer, info) in now {
        if before.get(peer) != Some(info) {
            let (state, reason) = info.split_once(char::is_whitespace).unwrap_or((info, ""));
            news.push(News::State(peer, state, reason.trim()));
        }
    }
    news.extend(before.keys().filter(|peer| !now.contains_key(*peer)).map(|peer| News::Gone(peer)));
    news
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, &str)]) -> BTreeMap<String, String> {
        rows.iter().map(|(peer, info)| ((*peer).to_owned(), (*info).to_owned())).collect()
    }

    #[test]
    fn each_change_once() {
        let before =
            table(&[("10.0.0.1", "Established"), ("10.0.0.2", "Active"), ("10.0.0.3", "Established")]);
        let now = table(&[
            ("10.0.0.1", "Active Socket: Connection refused"),
            ("10.0.0.2", "Active"),
            ("10.0.0.4", "Established"),
        ]);
        assert_eq!(
            changes(&before, &now),
            [
                News::State("10.0.0.1", "Active", "Socket: Connection refused"),
                News::State("10.0.0.4", "Established", ""),
                News::Gone("10.0.0.3"),
            ]
        );
        assert!(changes(&now, &now).is_empty());
    }
}
