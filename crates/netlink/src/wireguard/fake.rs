//! WireGuard devices built from maps, which behave like the kernel's: a network is behind one peer only.

use super::{Device, DeviceChange, Devices, PublicKey};
use crate::error::{Error, Result};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The devices. Every name is a device, at first without key and peers.
#[derive(Clone, Debug, Default)]
pub struct FakeDevices {
    /// The current devices.
    pub devices: BTreeMap<String, Device>,
    /// Every change, as text.
    pub log: Vec<String>,
    /// How many of the next changes to refuse.
    pub refusals: usize,
}

impl Devices for FakeDevices {
    fn device(&mut self, name: &str) -> Result<Option<Device>> {
        self.log.push("read".to_owned());
        Ok(Some(self.devices.entry(name.to_owned()).or_default().clone()))
    }

    fn configure(&mut self, name: &str, change: &DeviceChange) -> Result<()> {
        if self.refusals > 0 {
            self.refusals -= 1;
            self.log.push("refused".to_owned());
            let what = format!("change WireGuard device {name}");
            return Err(Error::Refused { what, errno: Errno::NOBUFS, message: String::new() });
        }
        let device = self.devices.entry(name.to_owned()).or_default();
        if let Some(key) = &change.private_key {
            self.log.push("key".to_owned());
            // Not the real public key, but good enough: a different one for each private key.
            let mut bytes = *key.bytes();
            bytes.reverse();
            device.public_key = PublicKey::from_bytes(bytes);
        }
        if let Some(port) = change.port {
            self.log.push(format!("port {port}"));
            device.port = port;
        }
        if let Some(mark) = change.mark {
            self.log.push(format!("mark {mark:#x}"));
            device.mark = mark;
        }
        for change in &change.peers {
            let nets: Vec<String> = change.allowed.iter().map(ToString::to_string).collect();
            let word = match (change.remove, change.replace_allowed) {
                (true, _) => "remove",
                (false, true) => "replace",
                (false, false) => "add",
            };
            let endpoint = change.endpoint.map(|endpoint| format!(" at {endpoint}")).unwrap_or_default();
            self.log.push(format!("{word} {}{endpoint} [{}]", change.key, nets.join(" ")));
            if change.remove {
                device.peers.remove(&change.key);
                continue;
            }
            if change.only_known && !device.peers.contains_key(&change.key) {
                continue;
            }
            for (key, other) in &mut device.peers {
                if *key != change.key {
                    other.allowed.retain(|net| !change.allowed.contains(net));
                }
            }
            let peer = device.peers.entry(change.key).or_default();
            if change.replace_allowed {
                peer.allowed.clear();
            }
            peer.allowed.extend(change.allowed.iter().copied());
            peer.endpoint = change.endpoint.or(peer.endpoint);
            peer.keepalive = change.keepalive.unwrap_or(peer.keepalive);
        }
        Ok(())
    }
}
