//! WireGuard in the kernel, for one IP version: device, keys, peers, a routing table of its own, and the rule that leads
//! there.
//!
//! ```text
//!  every packet ─► rule 99: not marked as WireGuard's own? ─► table 1 ─► by wireguard.cali, or "throw": as if nothing
//!                                                                       were here
//! ```
//!
//! What is ours: the device of the configured name and of kind `wireguard`; the table whose number settings give to Felix;
//! rules that lead to it. What should be in them says [`WireguardManager`]. The device's private key is made here once and
//! given to the kernel, which keeps it over restarts of Felix; the public one is the kernel's answer, and is reported.
//!
//! A kernel without WireGuard is no failure: it is said once, loudly, stands in the health report, and packets go
//! unencrypted as before, because nodes publish no key then. It is tried again with every refresh.

mod device;
mod figures;
mod peers;
mod rule;
mod tables;

pub use figures::watch;
pub use tables::first_table;

use crate::managers::{WireguardManager, WireguardSettings};
use crate::routes::{ConnectionCleanup, Outcome, Ownership, RouteTable, TableSettings};
use messages::Text;
use netlink::wireguard::{Devices, PrivateKey, PublicKey};
use netlink::{Family, Kernel, sysctl};
use rules::tree::IpVersion;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

/// What the kernel's side needs besides.
#[derive(Clone, Debug)]
pub struct KernelSettings {
    /// Whether it is to be there at all.
    pub enabled: bool,
    /// The mark of WireGuard's own packets.
    pub mark: u32,
    /// The table.
    pub table: u32,
    /// The rule's place.
    pub rule_priority: u32,
    /// The largest packet; none to leave it.
    pub mtu: Option<u32>,
    /// The protocol number of routes.
    pub protocol: u8,
    /// Whether routes are ours to make.
    pub makes_routes: bool,
    /// Whether each peer is worked on by a thread of the kernel's.
    pub threaded: bool,
}

/// Opens a socket to WireGuard.
pub type Open = Box<dyn FnMut() -> netlink::Result<Box<dyn Devices + Send>> + Send>;

/// WireGuard of one IP version.
pub struct Wireguard {
    settings: KernelSettings,
    manager: WireguardManager,
    table: Option<RouteTable>,
    open: Open,
    devices: Option<Box<dyn Devices + Send>>,
    is_link_known: bool,
    is_device_known: bool,
    is_rule_known: bool,
    is_threading_set: bool,
    /// Whether there is nothing of it any more, where it is not enabled.
    is_gone: bool,
    programmed_address: Option<Option<IpAddr>>,
    key: Option<PublicKey>,
    reported: Option<Option<PublicKey>>,
    /// Why the kernel cannot, where it cannot.
    unsupported: Option<String>,
    was_told: bool,
}

impl std::fmt::Debug for Wireguard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wireguard").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Nobody's connections are forgotten: a packet that goes by WireGuard is the same packet.
struct KeepConnections;

impl ConnectionCleanup for KeepConnections {
    fn start(&mut self, _: BTreeSet<IpAddr>) {}
    fn wait(&mut self, _: &BTreeSet<IpAddr>) {}
}

impl Wireguard {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(settings: KernelSettings, peers: WireguardSettings, open: Open) -> Self {
        let family = family(peers.version);
        let table = settings.makes_routes.then(|| {
            RouteTable::new(TableSettings {
                family,
                table: settings.table,
                ownership: Ownership {
                    whole_table: true,
                    device_protocol: settings.protocol,
                    own_devices: vec![peers.interface.clone()],
                    ..Ownership::default()
                },
                source: None,
                static_neighbours: false,
            })
        });
        Self {
            settings,
            manager: WireguardManager::new(peers),
            table,
            open,
            devices: None,
            is_link_known: false,
            is_device_known: false,
            is_rule_known: false,
            is_threading_set: false,
            is_gone: false,
            programmed_address: None,
            key: None,
            reported: None,
            unsupported: None,
            was_told: false,
        }
    }

    /// What should be there, to be told about changes; none where nothing should be.
    pub fn manager(&mut self) -> Option<&mut WireguardManager> {
        self.settings.enabled.then_some(&mut self.manager)
    }

    /// Whether it is to be there.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.settings.enabled
    }

    /// The routes.
    pub fn table(&mut self) -> Option<&mut RouteTable> {
        self.table.as_mut()
    }

    /// The IP version.
    #[must_use]
    pub fn version(&self) -> IpVersion {
        self.manager.settings().version
    }

    /// The device.
    #[must_use]
    pub fn interface(&self) -> &Text {
        &self.manager.settings().interface
    }

    /// Why packets are not encrypted although they should be.
    #[must_use]
    pub fn unsupported(&self) -> Option<&str> {
        self.unsupported.as_deref()
    }

    /// Says that somebody else may have changed anything.
    pub fn invalidate(&mut self) {
        self.is_link_known = false;
        self.is_device_known = false;
        self.is_rule_known = false;
        self.is_threading_set = false;
        self.is_gone = false;
        self.programmed_address = None;
        self.unsupported = None;
        self.table.iter_mut().for_each(RouteTable::invalidate);
    }

    /// An interface is there, up or not, or gone.
    pub fn interface_is(&mut self, name: &Text, index: Option<u32>, up: bool, now: Instant) {
        // The table has routes by no other device.
        if *name != self.manager.settings().interface {
            return;
        }
        if let Some(table) = &mut self.table {
            match index {
                Some(index) => table.device_is(name, index, up, now),
                None => table.device_gone(name),
            }
        }
        if !up {
            self.is_link_known = false;
            self.is_gone = false;
        }
        self.is_device_known = false;
    }

    /// Works out what follows from messages.
    pub fn complete(&mut self) {
        if self.settings.enabled {
            self.manager.complete(self.table.as_mut());
        }
    }

    /// Brings the kernel there.
    pub fn apply(&mut self, kernel: &mut dyn Kernel, now: Instant) -> Outcome {
        match self.settings.enabled {
            true => self.bring_about(kernel, now),
            false => self.remove(kernel, now),
        }
    }

    /// The key to be reported, if another one was reported before or the datastore has another: empty for none. To be
    /// asked after [`Wireguard::apply`].
    pub fn take_report(&mut self) -> Option<String> {
        let is_known = match self.settings.enabled {
            true => self.is_device_known || self.unsupported.is_some(),
            false => self.is_gone,
        };
        if !is_known {
            return None;
        }
        let is_contradicted = self.manager.take_contradiction(self.key);
        if self.reported == Some(self.key) && !is_contradicted {
            return None;
        }
        self.reported = Some(self.key);
        Some(self.key.map(|key| key.to_string()).unwrap_or_default())
    }

    fn bring_about(&mut self, kernel: &mut dyn Kernel, now: Instant) -> Outcome {
        if self.unsupported.is_some() {
            return Outcome::default();
        }
        match self.bring_up(kernel) {
            Ok(()) => {}
            Err(Trouble::Kernel(error)) if error.is_unsupported() => {
                self.cannot(&error.to_string());
                return Outcome::default();
            }
            Err(trouble) => return Outcome::failed(&trouble),
        }
        let mut outcome = Outcome::default();
        if let Err(error) = self.set_peers() {
            if error.is_unsupported() {
                self.cannot(&error.to_string());
                return Outcome::default();
            }
            // The next attempt begins with a socket and a look of its own.
            self.is_device_known = false;
            self.devices = None;
            outcome.failures.push(error.to_string());
        }
        if let Some(table) = &mut self.table {
            let routes = table.apply(kernel, &mut KeepConnections, now);
            outcome.failures.extend(routes.failures);
            outcome.again_in = routes.again_in;
        }
        self.set_threading();
        // Only when everything else is in place may packets look at the table.
        if outcome.is_done() && !self.is_rule_known {
            let wanted = rule::wanted(self.family(), &self.settings);
            match rule::bring_about(kernel, self.family(), self.settings.table, Some(&wanted)) {
                Ok(_) => self.is_rule_known = true,
                Err(error) => outcome.failures.push(error.to_string()),
            }
        }
        outcome
    }

    /// The link and its address.
    fn bring_up(&mut self, kernel: &mut dyn Kernel) -> Result<(), Trouble> {
        let address = self.manager.device_address();
        if self.is_link_known && self.programmed_address == Some(address) {
            return Ok(());
        }
        let peers = self.manager.settings();
        if peers.encrypt_hosts && peers.version == IpVersion::V4 {
            // Without it the reverse path check does not know that packets of the tunnel are marked.
            sysctl::ensure("net/ipv4/conf/all/src_valid_mark", "1")?;
        }
        device::bring_about(kernel, &peers.interface, self.family(), self.settings.mtu, address)?;
        self.is_link_known = true;
        self.programmed_address = Some(address);
        Ok(())
    }

    /// Key, port, mark and peers.
    fn set_peers(&mut self) -> netlink::Result<()> {
        let name = self.manager.settings().interface.clone();
        let devices = match &mut self.devices {
            Some(devices) => devices,
            None => self.devices.insert((self.open)()?),
        };
        let mut change = netlink::wireguard::DeviceChange::default();
        if !self.is_device_known {
            let found = devices.device(&name)?.ok_or_else(|| gone(&name))?;
            let found = match found.public_key {
                Some(_) => found,
                None => {
                    let private_key = Some(PrivateKey::generate().map_err(|error| no_randomness(&error))?);
                    let key = netlink::wireguard::DeviceChange { private_key, ..Default::default() };
                    devices.configure(&name, &key)?;
                    tracing::info!(device = %name, "made a new WireGuard key");
                    // The kernel works out the public half.
                    devices.device(&name)?.ok_or_else(|| gone(&name))?
                }
            };
            if self.key != found.public_key {
                self.key = found.public_key;
                self.manager.set_own_key(self.key);
                self.manager.complete(self.table.as_mut());
            }
            let port = self.manager.settings().port;
            change.port = (found.port != port).then_some(port);
            change.mark = (found.mark != self.settings.mark).then_some(self.settings.mark);
            peers::take_found(&mut self.manager.peers, &found);
        }
        change.peers = peers::changes(&self.manager.peers);
        if !change.is_empty() {
            devices.configure(&name, &change)?;
        }
        self.manager.peers.accept_all();
        self.is_device_known = true;
        Ok(())
    }

    /// The kernel takes this only from a device that has a peer.
    fn set_threading(&mut self) {
        if self.is_threading_set || !self.is_device_known || self.manager.peer_count() == 0 {
            return;
        }
        self.is_threading_set = true;
        let name = self.interface().clone();
        if let Err(error) = device::set_threading(&name, self.settings.threaded) {
            tracing::warn!(%error, device = %name, "cannot set the threading of the WireGuard device");
        }
    }

    fn cannot(&mut self, reason: &str) {
        let device = self.interface().clone();
        if !std::mem::replace(&mut self.was_told, true) {
            tracing::error!(
                reason, %device,
                "WireGuard is enabled and this kernel has none: packets between this node and others are NOT encrypted"
            );
        }
        self.key = None;
        self.devices = None;
        self.unsupported = Some(format!("WireGuard is enabled and not supported by the kernel: {reason}"));
    }

    /// Removes what an earlier Felix made, where WireGuard is not enabled.
    fn remove(&mut self, kernel: &mut dyn Kernel, now: Instant) -> Outcome {
        if self.is_gone {
            return Outcome::default();
        }
        let mut outcome = Outcome::default();
        let had_rule = match rule::bring_about(kernel, self.family(), self.settings.table, None) {
            Ok(had) => had,
            Err(error) => {
                outcome.failures.push(error.to_string());
                false
            }
        };
        let had_device = match device::remove(kernel, self.interface()) {
            Ok(had) => had,
            Err(error) => {
                outcome.failures.push(error.to_string());
                false
            }
        };
        // Where there is no other trace of WireGuard, what is in the table is somebody else's.
        if let Some(table) = self.table.as_mut().filter(|_| had_rule || had_device) {
            outcome.failures.extend(table.apply(kernel, &mut KeepConnections, now).failures);
        }
        self.is_gone = outcome.is_done();
        outcome
    }

    fn family(&self) -> Family {
        family(self.manager.settings().version)
    }
}

/// The IP version as the kernel's tables have it.
pub(crate) fn family(version: IpVersion) -> Family {
    match version {
        IpVersion::V4 => Family::V4,
        IpVersion::V6 => Family::V6,
    }
}

/// Why the device is not there.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Kernel(#[from] netlink::Error),
    #[error(transparent)]
    Setting(#[from] sysctl::SysctlError),
    #[error(transparent)]
    Device(#[from] device::NotOurs),
}

fn gone(name: &str) -> netlink::Error {
    let what = format!("read WireGuard device {name}");
    netlink::Error::Refused { what, errno: netlink::Errno::NODEV, message: String::new() }
}

fn no_randomness(error: &std::io::Error) -> netlink::Error {
    let what = format!("make a WireGuard key: {error}");
    netlink::Error::Refused { what, errno: netlink::Errno::AGAIN, message: String::new() }
}

#[cfg(test)]
mod tests;
