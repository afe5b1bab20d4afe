//! Drivers of everything in the kernel that is not a packet filter: where packets go, by which devices, and how fast.
//!
//! - [`routes`]: routes, neighbours, forwarding entries, tunnel devices, addresses of links.
//! - [`wireguard`]: the WireGuard device, its peers, its table and rule.
//! - [`limits`] and [`bandwidth`]: what workloads' interfaces are limited to, and the driver that does it.
//! - [`conntrack`]: connections of addresses that are gone.
//!
//! Each takes what should be there, reads what is there, and writes the difference in one batch. None decides where
//! packets should go, and none touches what is not recognisably ours.

pub mod bandwidth;
pub mod conntrack;
#[cfg(test)]
mod faults;
pub mod limits;
pub mod routes;
pub mod wireguard;
