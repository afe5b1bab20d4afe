//! WireGuard in the kernel, for one IP version: device, keys, peers, a routing table of its own, and the rule that
//! leads to it.
//!
//! ```text
//!  every packet ─► rule 99: not marked as WireGuard's own? ─► table 1 ─► by wireguard.cali, or "throw": as if nothing
//!                                                                       were here
//! ```
//!
//! We own the device of the configured name and of kind `wireguard`, the table that settings reserve for Felix, and
//! rules that lead to that table. The device's private key is generated here once and given to the kernel, which keeps
//! it over restarts of Felix. The public key is read back from the kernel and reported.
//!
//! A kernel without WireGuard is not a failure: this is logged once, as an error, and appears in the health report.
//! Packets go unencrypted as before, because nodes publish no key then. Every refresh tries again.

mod device;
mod peers;
mod rule;

use crate::routes::{ConnectionCleanup, Outcome, Ownership, RouteChanges, RouteTable, TableSettings};
use delta::{Changes, Delta};
use ipnet::IpNet;
use messages::InterfaceName;
use netlink::wireguard::{Device, Devices, Peer, PrivateKey, PublicKey};
use netlink::{Family, Kernel, sysctl};
use rules::tree::IpVersion;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// The fixed settings of WireGuard for one IP version.
#[derive(Clone, Debug)]
pub struct KernelSettings {
    /// The IP version.
    pub version: IpVersion,
    /// The name of the device.
    pub interface: InterfaceName,
    /// The UDP port.
    pub port: u16,
    /// Whether packets of the hosts themselves are encrypted too.
    pub encrypt_hosts: bool,
    /// Whether WireGuard is enabled.
    pub enabled: bool,
    /// The mark of WireGuard's own packets.
    pub mark: u32,
    /// The number of the routing table.
    pub table: u32,
    /// The priority of the rule.
    pub rule_priority: u32,
    /// The MTU of the device; `None` to leave it unchanged.
    pub mtu: Option<u32>,
    /// The protocol number of routes.
    pub protocol: u8,
    /// Whether Felix programs routes.
    pub makes_routes: bool,
    /// Whether each peer is processed by its own kernel thread.
    pub threaded: bool,
}

/// The desired state of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPeer {
    /// The address at which it is reached.
    pub endpoint: SocketAddr,
    /// The interval of keepalive packets, in seconds.
    pub keepalive: u16,
    /// The networks behind it.
    pub allowed: BTreeSet<IpNet>,
}

impl WantedPeer {
    /// The state of a peer found in the kernel; a peer without endpoint gets one that is never wanted.
    #[must_use]
    pub fn found(peer: &Peer) -> Self {
        let nowhere = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
        Self {
            endpoint: peer.endpoint.unwrap_or(nowhere),
            keepalive: peer.keepalive,
            allowed: peer.allowed.clone(),
        }
    }
}

/// The changes of the desired WireGuard state since the driver took it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireguardChanges {
    /// The address of the device, if it changed.
    pub address: Option<Option<IpAddr>>,
    /// Peers by key.
    pub peers: Changes<PublicKey, WantedPeer>,
    /// Our own key as the datastore has it, if the datastore reported it.
    pub published: Option<Option<PublicKey>>,
    /// Routes of the WireGuard table.
    pub routes: RouteChanges,
}

/// Opens a socket to WireGuard.
pub type Open = Box<dyn FnMut() -> netlink::Result<Box<dyn Devices + Send>> + Send>;

/// WireGuard of one IP version.
pub struct Wireguard {
    settings: KernelSettings,
    /// The address that the device should have.
    address: Option<IpAddr>,
    /// The desired and the actual peers.
    peers: Delta<PublicKey, WantedPeer>,
    table: Option<RouteTable>,
    open: Open,
    devices: Option<Box<dyn Devices + Send>>,
    is_link_known: bool,
    is_device_known: bool,
    is_rule_known: bool,
    is_threading_set: bool,
    /// Whether nothing of it is left, where it is not enabled.
    is_gone: bool,
    programmed_address: Option<Option<IpAddr>>,
    key: Option<PublicKey>,
    /// Whether the kernel's key differs from the one that peers were chosen for.
    is_key_new: bool,
    /// The device as it was read when its new key was noticed.
    seen: Option<Device>,
    /// Our key as the datastore has it, received since it was last reported.
    published: Option<Option<PublicKey>>,
    reported: Option<Option<PublicKey>>,
    /// Why the kernel does not support it, if it does not.
    unsupported: Option<String>,
    was_told: bool,
}

impl std::fmt::Debug for Wireguard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wireguard").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Keeps all connections: a packet that goes through WireGuard is the same packet.
struct KeepConnections;

impl ConnectionCleanup for KeepConnections {
    fn start(&mut self, _: BTreeSet<IpAddr>) {}
    fn wait(&mut self, _: &BTreeSet<IpAddr>) {}
}

impl Wireguard {
    /// WireGuard before anything is known.
    #[must_use]
    pub fn new(settings: KernelSettings, open: Open) -> Self {
        let family = family(settings.version);
        let table = settings.makes_routes.then(|| {
            RouteTable::new(TableSettings {
                family,
                table: settings.table,
                ownership: Ownership {
                    whole_table: true,
                    device_protocol: settings.protocol,
                    own_devices: vec![settings.interface.clone()],
                    ..Ownership::default()
                },
                source: None,
                static_neighbours: false,
            })
        });
        Self {
            settings,
            address: None,
            peers: Delta::new(),
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
            is_key_new: false,
            seen: None,
            published: None,
            reported: None,
            unsupported: None,
            was_told: false,
        }
    }

    /// Takes over the changes of the desired state; `changes` is empty afterwards.
    pub fn take(&mut self, changes: &mut WireguardChanges) {
        if let Some(address) = changes.address.take() {
            self.address = address;
        }
        if let Some(published) = changes.published.take() {
            self.published = Some(published);
        }
        for (key, peer) in std::mem::take(&mut changes.peers) {
            match peer {
                Some(peer) => self.peers.set_desired(key, peer),
                None => _ = self.peers.remove_desired(&key),
            }
        }
        match &mut self.table {
            Some(table) => changes.routes.hand_over(table),
            None => changes.routes = RouteChanges::default(),
        }
    }

    /// The desired peers, by key.
    pub fn wanted_peers(&self) -> impl Iterator<Item = (&PublicKey, &WantedPeer)> {
        self.peers.all_desired()
    }

    /// The kernel's key, if it changed since the last call. A peer with our own key is ourselves, and the kernel would
    /// not accept it. Therefore [`Wireguard::apply`] waits until the code that chooses peers knows the key, and is then
    /// called again.
    pub fn take_new_key(&mut self) -> Option<Option<PublicKey>> {
        std::mem::take(&mut self.is_key_new).then_some(self.key)
    }

    /// Whether WireGuard is enabled.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.settings.enabled
    }

    /// The routes of the WireGuard table.
    pub fn table(&mut self) -> Option<&mut RouteTable> {
        self.table.as_mut()
    }

    /// The IP version.
    #[must_use]
    pub fn version(&self) -> IpVersion {
        self.settings.version
    }

    /// The name of the device.
    #[must_use]
    pub fn interface(&self) -> &InterfaceName {
        &self.settings.interface
    }

    /// Why packets are not encrypted although they should be.
    #[must_use]
    pub fn unsupported(&self) -> Option<&str> {
        self.unsupported.as_deref()
    }

    /// Marks everything as possibly changed by other programs.
    pub fn invalidate(&mut self) {
        self.is_link_known = false;
        self.is_device_known = false;
        self.is_rule_known = false;
        self.is_threading_set = false;
        self.is_gone = false;
        self.programmed_address = None;
        self.seen = None;
        self.unsupported = None;
        self.table.iter_mut().for_each(RouteTable::invalidate);
    }

    /// Notes that an interface exists, up or down, or is gone.
    pub fn interface_is(&mut self, name: &InterfaceName, index: Option<u32>, up: bool, now: Instant) {
        // The table has routes by this device only.
        if *name != self.settings.interface {
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
        self.seen = None;
    }

    /// Brings the kernel to the desired state.
    pub fn apply(&mut self, kernel: &mut dyn Kernel, now: Instant) -> Outcome {
        match self.settings.enabled {
            true => self.bring_about(kernel, now),
            false => self.remove(kernel, now),
        }
    }

    /// The key to report, if another key was reported before or the datastore has another: empty for none. Call it
    /// after [`Wireguard::apply`].
    pub fn take_report(&mut self) -> Option<String> {
        let is_known = match self.settings.enabled {
            true => self.is_device_known || self.unsupported.is_some(),
            false => self.is_gone,
        };
        if !is_known {
            return None;
        }
        let is_contradicted = self.published.take().is_some_and(|published| published != self.key);
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
            // The next attempt starts with a new socket and reads everything again.
            self.is_device_known = false;
            self.devices = None;
            outcome.failures.push(error.to_string());
        }
        if self.is_key_new {
            return outcome;
        }
        if let Some(table) = &mut self.table {
            let routes = table.apply(kernel, &mut KeepConnections, now);
            outcome.failures.extend(routes.failures);
            outcome.again_in = routes.again_in;
        }
        self.set_threading();
        // Packets may look at the table only once everything else is in place.
        if outcome.is_done() && !self.is_rule_known {
            let wanted = rule::wanted(self.family(), &self.settings);
            match rule::bring_about(kernel, self.family(), self.settings.table, Some(&wanted)) {
                Ok(_) => self.is_rule_known = true,
                Err(error) => outcome.failures.push(error.to_string()),
            }
        }
        outcome
    }

    /// Creates and configures the link and its address.
    fn bring_up(&mut self, kernel: &mut dyn Kernel) -> Result<(), Trouble> {
        let address = self.address;
        if self.is_link_known && self.programmed_address == Some(address) {
            return Ok(());
        }
        if self.settings.encrypt_hosts && self.settings.version == IpVersion::V4 {
            // Without this the reverse path check ignores that packets of the tunnel are marked.
            sysctl::ensure("net/ipv4/conf/all/src_valid_mark", "1")?;
        }
        device::bring_about(kernel, &self.settings.interface, self.family(), self.settings.mtu, address)?;
        self.is_link_known = true;
        self.programmed_address = Some(address);
        Ok(())
    }

    /// Sets key, port, mark and peers.
    fn set_peers(&mut self) -> netlink::Result<()> {
        let name = self.settings.interface.clone();
        let devices = match &mut self.devices {
            Some(devices) => devices,
            None => self.devices.insert((self.open)()?),
        };
        let mut change = netlink::wireguard::DeviceChange::default();
        if !self.is_device_known {
            let found = match self.seen.take() {
                Some(found) => found,
                None => devices.device(&name)?.ok_or_else(|| gone(&name))?,
            };
            let found = match found.public_key {
                Some(_) => found,
                None => {
                    let private_key = Some(PrivateKey::generate().map_err(|error| no_randomness(&error))?);
                    let key = netlink::wireguard::DeviceChange { private_key, ..Default::default() };
                    devices.configure(&name, &key)?;
                    tracing::info!(device = %name, "created a new WireGuard key");
                    // The kernel derives the public half.
                    devices.device(&name)?.ok_or_else(|| gone(&name))?
                }
            };
            if self.key != found.public_key {
                self.key = found.public_key;
                self.is_key_new = true;
            }
            if self.is_key_new {
                self.seen = Some(found);
                return Ok(());
            }
            let port = self.settings.port;
            change.port = (found.port != port).then_some(port);
            change.mark = (found.mark != self.settings.mark).then_some(self.settings.mark);
            peers::take_found(&mut self.peers, &found);
        }
        change.peers = peers::changes(&self.peers);
        if !change.is_empty() {
            devices.configure(&name, &change)?;
        }
        self.peers.accept_all();
        self.is_device_known = true;
        Ok(())
    }

    /// The kernel accepts this setting only for a device that has a peer.
    fn set_threading(&mut self) {
        if self.is_threading_set || !self.is_device_known || self.peers.desired_count() == 0 {
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
                "WireGuard is enabled but this kernel lacks it: packets between this node and others are NOT encrypted"
            );
        }
        self.key = None;
        self.devices = None;
        self.unsupported = Some(format!("WireGuard is enabled but not supported by the kernel: {reason}"));
    }

    /// Removes what an earlier Felix created, where WireGuard is not enabled.
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
        // Without any other trace of WireGuard, the routes in the table belong to another program.
        if let Some(table) = self.table.as_mut().filter(|_| had_rule || had_device) {
            outcome.failures.extend(table.apply(kernel, &mut KeepConnections, now).failures);
        }
        self.is_gone = outcome.is_done();
        outcome
    }

    fn family(&self) -> Family {
        family(self.settings.version)
    }
}

/// The family of an IP version.
#[must_use]
pub fn family(version: IpVersion) -> Family {
    match version {
        IpVersion::V4 => Family::V4,
        IpVersion::V6 => Family::V6,
    }
}

/// Why the device could not be set up.
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
    let what = format!("generate a WireGuard key: {error}");
    netlink::Error::Refused { what, errno: netlink::Errno::AGAIN, message: String::new() }
}
