//! Removes the connections of addresses that are gone or have moved, so that packets of an old connection do not take
//! the route, or get the verdict, of one that belonged to another workload.
//!
//! Addresses are collected first: the connection table is read once for all of them.

use netlink::netfilter::{Error, conntrack};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The kernel operation that the cleaner needs.
pub trait Connections {
    /// Removes all connections of these addresses; returns their number.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn forget(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<usize, Error>;
}

impl Connections for conntrack::Client {
    fn forget(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<usize, Error> {
        conntrack::Client::forget(self, addresses)
    }
}

/// Addresses whose connections must be removed.
#[derive(Debug)]
pub struct Cleaner<C> {
    connections: C,
    pending: BTreeSet<IpAddr>,
}

impl<C: Connections> Cleaner<C> {
    /// A cleaner without pending addresses.
    pub fn new(connections: C) -> Self {
        Self { connections, pending: BTreeSet::new() }
    }

    /// Adds an address that is gone or has moved.
    pub fn forget(&mut self, address: IpAddr) {
        self.pending.insert(address);
    }

    /// Whether an address still waits for the removal of its connections, so that it must not get a route again yet.
    #[must_use]
    pub fn is_pending(&self, address: &IpAddr) -> bool {
        self.pending.contains(address)
    }

    /// Removes the connections of all pending addresses; returns their number. On a failure all addresses stay pending.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn apply(&mut self) -> Result<usize, Error> {
        if self.pending.is_empty() {
            return Ok(0);
        }
        let forgotten = self.connections.forget(&self.pending)?;
        tracing::debug!(addresses = self.pending.len(), forgotten, "forgot connections");
        self.pending.clear();
        Ok(forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::{Cleaner, Connections};
    use netlink::netfilter::{Error, Refusal};
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    struct Fake(Vec<BTreeSet<IpAddr>>, bool);

    impl Connections for &mut Fake {
        fn forget(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<usize, Error> {
            self.0.push(addresses.clone());
            if self.1 {
                self.1 = false;
                return Err(Error::Refused { what: "forget".into(), refusal: Refusal::new(12) });
            }
            Ok(addresses.len())
        }
    }

    #[test]
    fn all_addresses_at_once_and_again_after_a_failure() {
        let mut fake = Fake(Vec::new(), true);
        let mut cleaner = Cleaner::new(&mut fake);
        assert_eq!(cleaner.apply(), Ok(0));
        let addresses: Vec<IpAddr> =
            ["10.0.0.1", "fd00::1"].iter().map(|text| text.parse().expect("address")).collect();
        addresses.iter().for_each(|address| cleaner.forget(*address));
        assert!(cleaner.apply().is_err());
        assert!(cleaner.is_pending(&addresses[0]));
        assert_eq!(cleaner.apply(), Ok(2));
        assert!(!cleaner.is_pending(&addresses[0]));
        assert_eq!(fake.0.len(), 2);
    }
}
