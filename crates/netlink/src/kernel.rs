//! The trait that managers and plugins are written against, and its operations.

use crate::Family;
use crate::datagram::Request;
use crate::error::Result;
use crate::route::address::Address;
use crate::route::link::{self, Link, LinkChange, LinkRef, NewLink};
use crate::route::neighbour::Neighbour;
use crate::route::routes::{Route, RouteKind};
use crate::route::rule::Rule;
use std::fmt;

/// The network objects of one network namespace.
pub trait Kernel {
    /// Returns all devices.
    ///
    /// # Errors
    /// When they cannot be read.
    fn links(&mut self) -> Result<Vec<Link>>;

    /// Returns one device; `None` when it does not exist.
    ///
    /// # Errors
    /// When it cannot be read.
    fn link(&mut self, link: &LinkRef) -> Result<Option<Link>>;

    /// Returns the addresses of one family and device, or of all.
    ///
    /// # Errors
    /// When they cannot be read.
    fn addresses(&mut self, family: Option<Family>, index: Option<u32>) -> Result<Vec<Address>>;

    /// Returns the routes that the filter selects. What the kernel can filter out is never read into memory.
    ///
    /// # Errors
    /// When they cannot be read.
    fn routes(&mut self, filter: &RouteFilter) -> Result<Vec<Route>>;

    /// Returns the neighbours of one family, of one device or all.
    ///
    /// # Errors
    /// When they cannot be read.
    fn neighbours(&mut self, family: Family, index: Option<u32>) -> Result<Vec<Neighbour>>;

    /// Returns the forwarding table of one device.
    ///
    /// # Errors
    /// When it cannot be read.
    fn forwarding(&mut self, index: u32) -> Result<Vec<Neighbour>>;

    /// Returns the policy routing rules of one family.
    ///
    /// # Errors
    /// When they cannot be read.
    fn rules(&mut self, family: Family) -> Result<Vec<Rule>>;

    /// Carries out the operations in order. A refused operation does not stop the others; the outcomes are in the order
    /// of the operations.
    fn apply(&mut self, operations: &[Operation]) -> Vec<Result<()>>;
}

/// Selects routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteFilter {
    /// The family.
    pub family: Family,
    /// Only this table.
    pub table: Option<u32>,
    /// Only routes of this protocol.
    pub protocol: Option<u8>,
    /// Only routes by this device.
    pub device: Option<u32>,
    /// Only routes of this kind.
    pub kind: Option<RouteKind>,
}

impl RouteFilter {
    /// All routes of a family.
    #[must_use]
    pub fn all(family: Family) -> Self {
        Self { family, table: None, protocol: None, device: None, kind: None }
    }

    /// Whether the filter selects this route.
    #[must_use]
    pub fn selects(&self, route: &Route) -> bool {
        fn fits<T: PartialEq + Copy>(wanted: Option<T>, found: T) -> bool {
            wanted.is_none_or(|wanted| wanted == found)
        }
        route.family() == self.family
            && fits(self.table, route.table)
            && fits(self.protocol, route.protocol)
            && fits(self.kind, route.kind)
            && (self.device.is_none() || self.device == route.device)
    }
}

/// One change to the kernel's objects.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Creates a device that must not exist yet.
    AddLink(NewLink),
    /// Changes a device.
    ChangeLink(LinkRef, LinkChange),
    /// Deletes a device, and with it its peer.
    DeleteLink(LinkRef),
    /// Adds an address that the device must not have yet.
    AddAddress(Address),
    /// Adds an address to a device, or changes its properties.
    ReplaceAddress(Address),
    /// Removes an address from a device.
    DeleteAddress(Address),
    /// Creates a route that must not exist yet.
    AddRoute(Route),
    /// Creates a route, or replaces one with the same destination, table and metric.
    ReplaceRoute(Route),
    /// Adds a route beside others with the same destination and table.
    AppendRoute(Route),
    /// Deletes a route.
    DeleteRoute(Route),
    /// Creates or changes a neighbour or forwarding entry.
    ReplaceNeighbour(Neighbour),
    /// Adds a forwarding entry beside others for the same hardware address.
    AppendNeighbour(Neighbour),
    /// Deletes a neighbour or forwarding entry.
    DeleteNeighbour(Neighbour),
    /// Creates a rule that must not exist yet.
    AddRule(Rule),
    /// Deletes a rule.
    DeleteRule(Rule),
}

impl Operation {
    /// Sets a device up.
    #[must_use]
    pub fn up(index: u32) -> Self {
        Self::ChangeLink(index.into(), LinkChange { up: Some(true), ..LinkChange::default() })
    }

    pub(crate) fn request(&self) -> Request {
        match self {
            Self::AddLink(new) => new.request(),
            Self::ChangeLink(link, change) => change.request(link),
            Self::DeleteLink(link) => link::delete_request(link),
            Self::AddAddress(address) => address.add_request(),
            Self::ReplaceAddress(address) => address.replace_request(),
            Self::DeleteAddress(address) => address.delete_request(),
            Self::AddRoute(route) => route.add_request(),
            Self::ReplaceRoute(route) => route.replace_request(),
            Self::AppendRoute(route) => route.append_request(),
            Self::DeleteRoute(route) => route.delete_request(),
            Self::ReplaceNeighbour(neighbour) => neighbour.replace_request(),
            Self::AppendNeighbour(neighbour) => neighbour.append_request(),
            Self::DeleteNeighbour(neighbour) => neighbour.delete_request(),
            Self::AddRule(rule) => rule.add_request(),
            Self::DeleteRule(rule) => rule.delete_request(),
        }
    }
}

/// As errors quote it: `cannot <this>: <reason>`.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddLink(new) => write!(f, "create {} device {}", new.kind.name(), new.name),
            Self::ChangeLink(link, change) => match change {
                LinkChange { up: Some(true), .. } => write!(f, "set {link} up"),
                LinkChange { up: Some(false), .. } => write!(f, "set {link} down"),
                LinkChange { mac: Some(mac), .. } => write!(f, "set the hardware address of {link} to {mac}"),
                LinkChange { mtu: Some(mtu), .. } => write!(f, "set the MTU of {link} to {mtu}"),
                _ => write!(f, "change {link}"),
            },
            Self::DeleteLink(link) => write!(f, "delete {link}"),
            Self::AddAddress(address) => write!(f, "add {address}"),
            Self::ReplaceAddress(address) => write!(f, "set {address}"),
            Self::DeleteAddress(address) => write!(f, "delete {address}"),
            Self::AddRoute(route) | Self::AppendRoute(route) => write!(f, "add {route}"),
            Self::ReplaceRoute(route) => write!(f, "set {route}"),
            Self::DeleteRoute(route) => write!(f, "delete {route}"),
            Self::ReplaceNeighbour(neighbour) => write!(f, "set {neighbour}"),
            Self::AppendNeighbour(neighbour) => write!(f, "add {neighbour}"),
            Self::DeleteNeighbour(neighbour) => write!(f, "delete {neighbour}"),
            Self::AddRule(rule) => write!(f, "add {rule}"),
            Self::DeleteRule(rule) => write!(f, "delete {rule}"),
        }
    }
}

/// Returns the first failure of a batch, if there is one.
///
/// # Errors
/// That failure.
pub fn first_failure(outcomes: Vec<Result<()>>) -> Result<()> {
    outcomes.into_iter().collect()
}
