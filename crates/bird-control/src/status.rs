//! The state of the daemon itself: `show status`.

use crate::BirdError;
use crate::connection::{Connection, without_code};
use model::IpVersion;
use std::path::Path;

/// The state reported by a daemon; times are in its own spelling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Whether it reported that it is ready.
    pub ready: bool,
    /// Its version.
    pub version: String,
    /// Its router id.
    pub router_id: String,
    /// Its current time.
    pub server_time: String,
    /// When it was started.
    pub last_boot: String,
    /// When its configuration was last changed.
    pub last_reconfiguration: String,
    /// Whether its graceful restart is still in progress.
    pub graceful_restart: bool,
}

/// Queries a daemon's state.
///
/// # Errors
/// When no connection is possible, or the answer has an unknown format.
pub async fn status(family: IpVersion, sockets: &[impl AsRef<Path>]) -> Result<Status, BirdError> {
    Ok(read(&Connection::open(family, sockets).await?.ask("show status").await?))
}

fn read(lines: &[String]) -> Status {
    let mut status = Status::default();
    for line in lines {
        let text = without_code(line).trim();
        let fields = [
            ("Router ID is ", &mut status.router_id),
            ("Current server time is ", &mut status.server_time),
            ("Last reboot on ", &mut status.last_boot),
            ("Last reconfiguration on ", &mut status.last_reconfiguration),
        ];
        if line.starts_with("0001") {
            status.ready = text.contains("BIRD") && text.contains("ready");
        } else if line.starts_with("0024") {
            status.graceful_restart = true;
        } else if line.starts_with("1000") {
            text.strip_prefix("BIRD ").unwrap_or(text).clone_into(&mut status.version);
        } else if let Some((value, field)) =
            fields.into_iter().find_map(|(title, field)| Some((text.strip_prefix(title)?, field)))
        {
            value.clone_into(field);
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_a_daemon_reports() {
        let lines = [
            "0001 BIRD v0.3.3+birdv1.6.8 ready.",
            "1000-BIRD v0.3.3+birdv1.6.8",
            "1011-Router ID is 172.17.0.3",
            " Current server time is 2021-09-19 20:48:43",
            " Last reboot on 2021-09-19 20:10:56",
            " Last reconfiguration on 2021-09-19 20:10:57",
            "0013 Daemon is up and running",
        ]
        .map(str::to_owned);
        let status = read(&lines);
        assert_eq!(
            status,
            Status {
                ready: true,
                version: "v0.3.3+birdv1.6.8".into(),
                router_id: "172.17.0.3".into(),
                server_time: "2021-09-19 20:48:43".into(),
                last_boot: "2021-09-19 20:10:56".into(),
                last_reconfiguration: "2021-09-19 20:10:57".into(),
                graceful_restart: false,
            }
        );
    }

    #[test]
    fn a_graceful_restart_is_seen_between_the_other_lines() {
        let lines = [
            "0001 BIRD 1.6.8 ready.",
            "1011-Router ID is 10.0.0.1",
            "0024-Graceful restart recovery in progress",
            " Waiting for 1 protocols to recover",
            "0013 Daemon is up and running",
        ]
        .map(str::to_owned);
        let status = read(&lines);
        assert!(status.graceful_restart && status.router_id == "10.0.0.1", "{status:?}");
    }
}
