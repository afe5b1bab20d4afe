//! OPEN: our offer, and the outcome of two offers.

use super::event::{Agreed, Moment};
use super::settings::Settings;
use bgp_wire::{
    AddPathMode, Capability, Cause, Family, GracefulRestart, GracefulRestartFamily, Notification, Open,
    OpenFault, SessionOptions,
};
use std::time::Duration;

/// How long a connected peer may take to send its OPEN (RFC 4271, 8.2.2: a large value).
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_mins(4);

/// A connection before its session is up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handshake {
    /// We have sent OPEN.
    OpenSent {
        /// When the peer's OPEN must have arrived.
        hold: Moment,
    },
    /// The peer's OPEN is acceptable, but the other connection would be preferred and has no OPEN yet. We send nothing
    /// until that one has ended or won: if both sides continued with the connection they saw first, they would end each
    /// other's session.
    Waiting {
        /// The parameters that both would agree on.
        agreed: Box<Agreed>,
        /// Whether the peer has sent its keepalive.
        consented: bool,
        /// When waiting for the other connection ends.
        hold: Moment,
    },
    /// The peer's OPEN is acceptable, and we have confirmed it.
    OpenConfirm {
        /// The parameters that both agreed on.
        agreed: Box<Agreed>,
        /// When the peer's keepalive must have arrived.
        hold: Option<Moment>,
        /// When our next keepalive is due.
        keepalive: Option<Moment>,
    },
}

impl Handshake {
    /// The state of a connection that waits for the peer's OPEN.
    pub(super) fn open_sent(now: Moment) -> Self {
        Self::OpenSent { hold: now + OPEN_TIMEOUT }
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        match self {
            Self::OpenSent { hold } | Self::Waiting { hold, .. } => Some(*hold),
            Self::OpenConfirm { hold, keepalive, .. } => earlier(*hold, *keepalive),
        }
    }
}

/// The earlier of two deadlines.
pub(super) fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Our OPEN. `restarting`: this speaker has restarted and still forwards by its previous routes.
pub(super) fn offer(settings: &Settings, restarting: bool) -> Open {
    let mut open = Open::new(settings.local_as, settings.hold_time, settings.router_id);
    let own = std::mem::take(&mut open.capabilities);
    let families = || Family::ALL.into_iter().filter(|family| settings.families[family.index()]);
    open.capabilities.extend(families().map(Capability::Multiprotocol));
    open.capabilities.push(Capability::RouteRefresh);
    if settings.extended_next_hop && settings.families[Family::Ipv4.index()] {
        open.capabilities.push(Capability::ExtendedNextHop);
    }
    open.capabilities.push(Capability::ExtendedMessage);
    if let Some(restart_time) = settings.graceful_restart {
        let families =
            families().map(|family| GracefulRestartFamily { family, forwarding: restarting }).collect();
        let restart = GracefulRestart { restarting, notification: false, restart_time, families };
        open.capabilities.push(Capability::GracefulRestart(restart));
    }
    open.capabilities.extend(own);
    // Several paths per prefix can be received but are never sent: we have one best path.
    open.capabilities
        .push(Capability::AddPath(families().map(|family| (family, AddPathMode::Receive)).collect()));
    open.capabilities.push(Capability::EnhancedRouteRefresh);
    open
}

/// Combines our offer and the peer's.
///
/// # Errors
/// When the peer is not the expected one, or no family can be exchanged with it.
pub(super) fn agree(settings: &Settings, open: Open) -> Result<Agreed, Notification> {
    if open.system() != settings.peer_as {
        return Err(Notification::new(
            Cause::Open(OpenFault::PeerAs),
            open.system().two_bytes().to_be_bytes(),
        ));
    }
    // Within a system identifiers are unique; another system may use ours (RFC 6286).
    if open.router_id == settings.router_id && !settings.is_external() {
        return Err(Notification::new(Cause::Open(OpenFault::Identifier), open.router_id.0.to_be_bytes()));
    }
    let theirs = open.families();
    let families = Family::ALL.map(|family| settings.families[family.index()] && theirs.contains(&family));
    if !families.contains(&true) {
        // The missing capability, encoded as the peer would have to send it (RFC 5492, 5).
        let missing = Family::ALL.into_iter().find(|family| settings.families[family.index()]);
        let missing = missing.map_or(0, Family::afi).to_be_bytes();
        return Err(Notification::new(
            Cause::Open(OpenFault::Capability),
            [1, 4, missing[0], missing[1], 0, 1],
        ));
    }
    let hold_time = settings.hold_time.min(open.hold_time);
    let keepalive_time = match settings.keepalive_time {
        _ if hold_time == 0 => 0,
        Some(keepalive) => keepalive.clamp(1, hold_time),
        None => (hold_time / 3).max(1),
    };
    let add_path_receive = Family::ALL
        .map(|family| families[family.index()] && open.add_path(family).is_some_and(AddPathMode::sends));
    let options = SessionOptions {
        four_byte_as: open.four_byte_as().is_some(),
        extended_messages: open.has(&Capability::ExtendedMessage),
        external: settings.is_external(),
        families,
        extended_next_hop: settings.extended_next_hop
            && families[Family::Ipv4.index()]
            && open.has(&Capability::ExtendedNextHop),
        add_path_receive,
        add_path_send: [false; 2],
    };
    let restart = settings.graceful_restart.and_then(|longest| {
        let theirs = open.graceful_restart()?;
        let kept = Family::ALL.map(|family| {
            families[family.index()] && theirs.families.iter().any(|entry| entry.family == family)
        });
        Some((kept, theirs.restart_time.min(longest)))
    });
    let route_refresh = open.has(&Capability::RouteRefresh) || open.has(&Capability::EnhancedRouteRefresh);
    Ok(Agreed {
        options,
        hold_time,
        keepalive_time,
        route_refresh,
        enhanced_refresh: open.has(&Capability::EnhancedRouteRefresh),
        restart,
        peer_restarting: open.graceful_restart().is_some_and(|restart| restart.restarting),
        open,
    })
}
