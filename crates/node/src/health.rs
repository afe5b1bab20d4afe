//! `node health`: whether Felix and the BGP daemons are alive or ready. A kubelet's probes run it every few seconds.
//!
//! All requested checks run at once; each one that fails reports that with Calico's message. Nothing is repaired.

mod felix;
mod services;

pub use felix::probe;
pub(crate) use services::SERVICES;
pub(crate) use services::speaks_bgp;

use crate::context::Context;
use crate::supervise::plan::{CONFD, NATIVE_SPEAKER};
use futures::future::join_all;
use model::IpVersion;
use services::{check_running, is_supervised};
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, SystemTime};
use typha_client::state_file;
use typha_wire::SyncerType;

/// The parts to check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// Felix answers.
    pub felix_live: bool,
    /// Felix is ready.
    pub felix_ready: bool,
    /// The IPv4 daemon runs and answers.
    pub bird_live: bool,
    /// The IPv6 daemon runs and answers.
    pub bird6_live: bool,
    /// The IPv4 sessions are up.
    pub bird_ready: bool,
    /// The IPv6 sessions are up.
    pub bird6_ready: bool,
}

/// The state of a daemon's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sessions {
    /// The number of peers with an established session.
    pub established: usize,
    /// The addresses of the other peers.
    pub missing: Vec<String>,
}

/// A running check; its error is the problem.
type Check<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// The default of `--threshold-time`.
pub const THRESHOLD: Duration = Duration::from_secs(30);

/// Runs the checks.
///
/// # Errors
/// The problems, one line each, in the order of the checks.
pub async fn check(context: &Context, checks: Checks, threshold: Duration) -> Result<(), Vec<String>> {
    if checks == Checks::default() {
        return Err(vec![
            "calico/node check error: must specify at least one of -bird-live, -bird6-live, -felix-live, -bird, -bird6, \
             or -felix"
                .to_owned(),
        ]);
    }
    let mut running: Vec<Check<'_>> = Vec::new();
    if checks.felix_live {
        running.push(Box::pin(async move {
            let outcome = felix::ask(context, "liveness", threshold).await;
            outcome.map_err(|error| format!("calico/node is not ready: Felix is not live: {error}"))
        }));
    }
    for (wanted, family) in [(checks.bird_live, IpVersion::V4), (checks.bird6_live, IpVersion::V6)] {
        if wanted {
            running.push(Box::pin(bird_live(context, family)));
        }
    }
    if checks.felix_ready {
        for kind in [SyncerType::TunnelIpAllocation, SyncerType::NodeStatus] {
            running.push(Box::pin(async move { follows_typha(context, kind) }));
        }
        running.push(Box::pin(async move {
            let outcome = felix::ask(context, "readiness", threshold).await;
            outcome.map_err(|error| format!("calico/node is not ready: felix is not ready: {error}"))
        }));
    }
    if checks.bird_ready || checks.bird6_ready {
        running.push(Box::pin(async move { follows_typha(context, SyncerType::Bgp) }));
    }
    for (wanted, family) in [(checks.bird_ready, IpVersion::V4), (checks.bird6_ready, IpVersion::V6)] {
        if wanted {
            running.push(Box::pin(async move {
                let outcome = bird_ready(context, family, threshold).await;
                let name = bird_control::daemon(family).to_uppercase();
                outcome.map_err(|error| format!("calico/node is not ready: {name} is not ready: {error}"))
            }));
        }
    }
    let wrong: Vec<String> = join_all(running).await.into_iter().filter_map(Result::err).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Felix itself reports whether it is connected to Typha; the other services of the node leave a file.
fn follows_typha(context: &Context, kind: SyncerType) -> Result<(), String> {
    match state_file::read(&context.path(state_file::FOLDER), kind) {
        None => Ok(()),
        Some(reason) => Err(format!("calico/node is not ready: {kind}: {reason}")),
    }
}

fn sockets(context: &Context, family: IpVersion) -> Vec<std::path::PathBuf> {
    let folders: Vec<_> = bird_control::SOCKET_FOLDERS.iter().map(|folder| context.path(folder)).collect();
    bird_control::sockets(family, &folders)
}

async fn bird_live(context: &Context, family: IpVersion) -> Result<(), String> {
    let name = bird_control::daemon(family);
    // Under our own supervision one process serves both families: the native speaker, or confd, which runs BIRD. In a
    // container of Calico's each family has its own service.
    let services: &[&str] = if is_supervised(context, NATIVE_SPEAKER) {
        &[NATIVE_SPEAKER]
    } else if is_supervised(context, CONFD) {
        &[CONFD]
    } else {
        &[CONFD, name]
    };
    for service in services {
        check_running(context, service)
            .map_err(|error| format!("calico/node is not ready: {name}/confd is not live: {error}"))?;
    }
    match bird_control::status(family, &sockets(context, family)).await {
        Ok(status) if status.ready => Ok(()),
        Ok(_) => Err(format!(
            "calico/node is not ready: bad response from {name}: it does not say that it is ready"
        )),
        Err(error) => Err(format!("calico/node is not ready: {name} is not live: {error}")),
    }
}

async fn bird_ready(context: &Context, family: IpVersion, threshold: Duration) -> Result<(), String> {
    // Every start-up writes the file, so its age is the node's uptime.
    let file = context.path(&context.settings.nodename_file);
    let written = std::fs::metadata(&file)
        .and_then(|metadata| metadata.modified())
        .map_err(|error| format!("failed to stat() nodename file: {error}"))?;
    let age = SystemTime::now().duration_since(written).unwrap_or_default();
    let sockets = sockets(context, family);
    let answer = bird_control::peers(family, &sockets)
        .await
        .map_err(|error| format!("error querying BIRD: {error}"))?;
    let sessions = sessions(&answer.peers);
    if is_ready(&sessions, age < threshold)? == Verdict::UnlessRestarting {
        let status = bird_control::status(family, &sockets)
            .await
            .map_err(|error| format!("error querying BIRD: {error}"))?;
        if status.graceful_restart {
            return Err("graceful restart in progress".to_owned());
        }
    }
    Ok(())
}

fn sessions(peers: &[bird_control::Peer]) -> Sessions {
    let is_established =
        |peer: &&bird_control::Peer| peer.info.split_whitespace().next() == Some("Established");
    Sessions {
        established: peers.iter().filter(is_established).count(),
        missing: peers.iter().filter(|peer| !is_established(peer)).map(|peer| peer.address.clone()).collect(),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ready,
    /// Ready, unless the daemon is still waiting for routes from before its restart.
    UnlessRestarting,
}

/// Just after the start all sessions must be up, so that a rolling update waits for this node. Later one is enough: a
/// node that went down must not make all others unready.
fn is_ready(sessions: &Sessions, is_young: bool) -> Result<Verdict, String> {
    let missing = || format!("BGP not established with {}", sessions.missing.join(","));
    match (sessions.established, sessions.missing.is_empty()) {
        (0, true) => Ok(Verdict::Ready),
        (_, true) if is_young => Ok(Verdict::UnlessRestarting),
        (_, false) if is_young => Err(missing()),
        (0, false) => Err(missing()),
        _ => Ok(Verdict::Ready),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_depends_on_sessions_and_age() {
        let sessions = |established, missing: &[&str]| Sessions {
            established,
            missing: missing.iter().map(|peer| (*peer).to_owned()).collect(),
        };
        for (sessions, is_young, expected) in [
            (sessions(0, &[]), true, Ok(Verdict::Ready)),
            (sessions(0, &[]), false, Ok(Verdict::Ready)),
            (sessions(2, &[]), true, Ok(Verdict::UnlessRestarting)),
            (sessions(2, &[]), false, Ok(Verdict::Ready)),
            (sessions(2, &["10.0.0.3"]), true, Err("BGP not established with 10.0.0.3".to_owned())),
            (sessions(2, &["10.0.0.3"]), false, Ok(Verdict::Ready)),
            (
                sessions(0, &["10.0.0.3", "10.0.0.4"]),
                false,
                Err("BGP not established with 10.0.0.3,10.0.0.4".to_owned()),
            ),
        ] {
            assert_eq!(is_ready(&sessions, is_young), expected, "{sessions:?} {is_young}");
        }
    }

    #[test]
    fn a_session_is_established_by_its_first_word() {
        let peer = |address: &str, info: &str| bird_control::Peer {
            address: address.to_owned(),
            peer_type: "global",
            state: "up".to_owned(),
            since: String::new(),
            info: info.to_owned(),
        };
        let found = sessions(&[peer("a", "Established"), peer("b", "Active Socket: Connection refused")]);
        assert_eq!(found, Sessions { established: 1, missing: vec!["b".to_owned()] });
    }
}
