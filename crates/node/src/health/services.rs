//! Whether a service of the node is running, under our own supervision or under runit in a container of Calico's.

use crate::context::Context;
use crate::supervise::plan::{CONFD, NATIVE_SPEAKER};
use model::IpVersion;
use std::path::PathBuf;

/// The folder where our supervision keeps one file per running service, with its process id.
pub(crate) const SERVICES: &str = "/var/run/calico/services";

/// The folder of runit's services in Calico's container.
const RUNIT: &str = "/etc/service/enabled";

/// Whether our own supervision should be running this service.
pub(super) fn is_supervised(context: &Context, service: &str) -> bool {
    context.path(SERVICES).join(service).exists()
}

/// Whether the node should be speaking BGP in this family.
#[must_use]
pub(crate) fn speaks_bgp(context: &Context, family: IpVersion) -> bool {
    let is_ours = [NATIVE_SPEAKER, CONFD].iter().any(|service| is_supervised(context, service));
    // A node without IPv6 may not have a daemon for it.
    let sockets = bird_control::sockets(family, &[context.path("/var/run/calico")]);
    let has_daemon = family == IpVersion::V4 || sockets.iter().any(|socket| socket.exists());
    (is_ours && has_daemon) || runit(context, bird_control::daemon(family)).join("run").exists()
}

fn runit(context: &Context, service: &str) -> PathBuf {
    context.path(RUNIT).join(service)
}

/// Checks that a service runs.
pub(super) fn check_running(context: &Context, service: &str) -> Result<(), String> {
    let not_running = |state: &str| Err(format!("service {service} is not running. Output << {state} >>"));
    let own = context.path(SERVICES).join(service);
    if let Ok(pid) = std::fs::read_to_string(&own) {
        let pid = pid.trim();
        let is_running = !pid.is_empty() && context.path("/proc").join(pid).exists();
        return if is_running { Ok(()) } else { not_running("down") };
    }
    let status = runit(context, service).join("supervise/status");
    match std::fs::read(&status) {
        Ok(bytes) => match runit_state(&bytes) {
            Some("run") => Ok(()),
            Some(state) => not_running(state),
            None => not_running("unreadable status"),
        },
        Err(error) => Err(format!("service {service} is not running: {}: {error}", status.display())),
    }
}

/// Parses the state from runit's file of 20 bytes: the time (12), the process id (4), paused, wanted, terminated, the
/// state.
fn runit_state(bytes: &[u8]) -> Option<&'static str> {
    match bytes.get(19)? {
        0 => Some("down"),
        1 => Some("run"),
        2 => Some("finish"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::runit_state;

    #[test]
    fn the_state_of_a_runit_service_is_parsed() {
        let mut bytes = [0; 20];
        assert_eq!(runit_state(&bytes), Some("down"));
        bytes[19] = 1;
        assert_eq!(runit_state(&bytes), Some("run"));
        bytes[19] = 7;
        assert_eq!(runit_state(&bytes), None);
        assert_eq!(runit_state(&bytes[..19]), None);
    }
}
