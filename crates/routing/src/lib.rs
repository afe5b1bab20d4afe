//! Drivers of everything in the kernel except packet filters: where packets go, by which devices, and how fast.
//!
//! - [`routes`]: routes, neighbours, forwarding entries, tunnel devices, addresses of links.
//! - [`wireguard`]: the WireGuard device, its peers, its table and rule.
//! - [`limits`] and [`bandwidth`]: the bandwidth limits of workloads' interfaces, and the driver that applies them.
//! - [`conntrack`]: removes the connections of addresses that are gone.
//!
//! Each takes the desired state, reads the actual state, and writes the difference in one batch. None decides where
//! packets should go, and none touches objects that are not recognisably ours.

pub mod bandwidth;
pub mod conntrack;
#[cfg(test)]
mod faults;
pub mod limits;
pub mod routes;
pub mod wireguard;
