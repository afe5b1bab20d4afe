//! The facts that start-up needs about the machine: its interfaces, its routes, its name. Behind a trait, so that
//! decisions can be tested on fictitious machines.

use crate::autodetect::Interface;
use async_trait::async_trait;
use model::IpVersion;
use netlink::{Handle, Kernel as _};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// A machine.
#[async_trait]
pub trait Host: Send + Sync {
    /// Its interfaces with their addresses.
    ///
    /// # Errors
    /// When the kernel returns an error.
    fn interfaces(&self) -> Result<Vec<Interface>, HostError>;

    /// The local address from which it would reach a destination.
    ///
    /// # Errors
    /// The reason why it cannot reach the destination.
    async fn reach(&self, destination: &str, family: IpVersion) -> Result<IpAddr, String>;

    /// Its own name.
    fn name(&self) -> String;

    /// Whether its kernel supports IPv6.
    fn has_ipv6(&self) -> bool;
}

/// The machine's state cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the interfaces of this host: {0}")]
pub struct HostError(#[source] pub netlink::Error);

/// The machine that this process runs on.
#[derive(Clone, Debug)]
pub struct ThisHost {
    /// The root of its file system: `/`, except in tests.
    pub root: PathBuf,
}

#[async_trait]
impl Host for ThisHost {
    fn interfaces(&self) -> Result<Vec<Interface>, HostError> {
        let mut kernel = Handle::open().map_err(HostError)?;
        let links = kernel.links().map_err(HostError)?;
        // One dump of all addresses: a query per interface would read them all each time.
        let mut addresses: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for address in kernel.addresses(None, None).map_err(HostError)? {
            addresses.entry(address.index).or_default().push(address.address);
        }
        let interface = |link: netlink::Link| Interface {
            addresses: addresses.remove(&link.index).unwrap_or_default(),
            index: link.index,
            name: link.name,
        };
        Ok(links.into_iter().map(interface).collect())
    }

    async fn reach(&self, destination: &str, family: IpVersion) -> Result<IpAddr, String> {
        // Connecting a UDP socket sends nothing: the kernel only looks up the route and selects the source.
        const PORT: u16 = 80;
        let bare = destination.trim_start_matches('[').trim_end_matches(']');
        let found = tokio::net::lookup_host((bare, PORT)).await.map_err(|error| error.to_string())?;
        let target = found
            .into_iter()
            .find(|target| family.has(&target.ip()))
            .ok_or_else(|| format!("it has no IPv{family} address"))?;
        let any: SocketAddr = match family {
            IpVersion::V4 => (Ipv4Addr::UNSPECIFIED, 0).into(),
            IpVersion::V6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = tokio::net::UdpSocket::bind(any).await.map_err(|error| error.to_string())?;
        socket.connect(target).await.map_err(|error| error.to_string())?;
        let local = socket.local_addr().map_err(|error| error.to_string())?;
        Ok(local.ip())
    }

    fn name(&self) -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }

    fn has_ipv6(&self) -> bool {
        self.root.join("proc/sys/net/ipv6").exists()
    }
}
