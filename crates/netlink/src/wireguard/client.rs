//! The real kernel's WireGuard devices.

use super::{Device, DeviceChange, Devices, messages};
use crate::error::{Error, Result};
use crate::generic::{Generic, body};
use rustix::io::Errno;

const GET_DEVICE: u8 = 0;
const SET_DEVICE: u8 = 1;
const VERSION: u8 = 1;

/// A socket to the WireGuard devices of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Client {
    generic: Generic,
}

impl Client {
    /// Opens the socket.
    ///
    /// # Errors
    /// When the kernel does not provide one; `is_unsupported` when it lacks WireGuard.
    pub fn open() -> Result<Self> {
        Ok(Self { generic: Generic::open("wireguard", VERSION)? })
    }
}

impl Devices for Client {
    fn device(&mut self, name: &str) -> Result<Option<Device>> {
        let mut writer = self.generic.writer(GET_DEVICE);
        writer.text(messages::NAME, name);
        let request = self.generic.request(writer);
        let what = format!("read WireGuard device {name}");
        let parts = self.generic.connection.dump(&what, &request, |_, payload| Some(body(payload).to_vec()));
        match parts {
            Ok(parts) => {
                let mut device = Device::default();
                parts.iter().for_each(|part| messages::read(&mut device, part));
                Ok(Some(device))
            }
            Err(Error::Refused { errno: Errno::NODEV, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn configure(&mut self, name: &str, change: &DeviceChange) -> Result<()> {
        let requests: Vec<_> = messages::parts(change)
            .iter()
            .map(|part| {
                let mut writer = self.generic.writer(SET_DEVICE);
                messages::write(&mut writer, name, part);
                self.generic.request(writer)
            })
            .collect();
        for answer in self.generic.connection.exchange(&requests)? {
            answer.into_result(|| format!("change WireGuard device {name}"))?;
        }
        Ok(())
    }
}
