//! The real kernel, through one `NETLINK_ROUTE` socket.

use crate::Family;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, Operation, RouteFilter};
use crate::route::address::{self, Address};
use crate::route::link::{self, Link, LinkRef};
use crate::route::neighbour::{self, Neighbour};
use crate::route::routes::{self, Route};
use crate::route::rule::{self, Rule};
use crate::route::{NEW_ADDRESS, NEW_LINK, NEW_NEIGHBOUR, NEW_ROUTE, NEW_RULE};
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::io::Errno;

/// The network objects of the namespace in which the handle was opened.
#[derive(Debug)]
pub struct Handle {
    connection: Connection,
}

impl Handle {
    /// Opens a handle on the network namespace of this thread.
    ///
    /// # Errors
    /// When the kernel does not provide a socket.
    pub fn open() -> Result<Self> {
        Ok(Self { connection: Connection::open(NETLINK_ROUTE)? })
    }

    /// Carries out operations and then reads one device, in one send: what the kernel assigned to a device (its number,
    /// its hardware address) is known right after it was created.
    ///
    /// # Errors
    /// When the socket fails or the device cannot be read; the outcomes of the operations are returned beside it.
    pub fn apply_and_read(
        &mut self,
        operations: &[Operation],
        link: &LinkRef,
    ) -> (Vec<Result<()>>, Result<Link>) {
        let mut requests: Vec<_> = operations.iter().map(Operation::request).collect();
        requests.push(link::get_request(link));
        let mut answers = match self.connection.exchange(&requests) {
            Ok(answers) => answers,
            Err(error) => return (vec![Err(error.clone()); operations.len()], Err(error)),
        };
        let what = || format!("read {link}");
        let found = answers.pop().unwrap_or_default().into_result(what).and_then(|messages| {
            let read =
                messages.iter().find_map(|(kind, payload)| (*kind == NEW_LINK).then(|| link::read(payload)));
            read.flatten()
                .ok_or_else(|| Error::Unreadable { what: what(), reason: "it names no device".to_owned() })
        });
        let outcomes = answers.into_iter().zip(operations);
        let outcomes =
            outcomes.map(|(answer, operation)| answer.into_result(|| operation.to_string()).map(drop));
        (outcomes.collect(), found)
    }

    /// Returns the number of the device that packets to this address leave by; `None` when no route leads there.
    ///
    /// # Errors
    /// When the socket fails.
    pub fn device_towards(&mut self, address: std::net::IpAddr) -> Result<Option<u32>> {
        let mut answers = self.connection.exchange(&[routes::lookup_request(address)])?;
        let answer = answers.pop().unwrap_or_default();
        match answer.into_result(|| format!("look up the route to {address}")) {
            Ok(messages) => Ok(messages
                .iter()
                .filter(|(kind, _)| *kind == NEW_ROUTE)
                .find_map(|(_, payload)| routes::read_device(payload))),
            Err(Error::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Kernel for Handle {
    fn links(&mut self) -> Result<Vec<Link>> {
        self.connection.dump("list devices", &link::dump_request(), |kind, payload| {
            (kind == NEW_LINK).then(|| link::read(payload)).flatten()
        })
    }

    fn link(&mut self, link: &LinkRef) -> Result<Option<Link>> {
        match self.apply_and_read(&[], link).1 {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn addresses(&mut self, family: Option<Family>, index: Option<u32>) -> Result<Vec<Address>> {
        let request = address::dump_request(family, index);
        let selected = |found: &Address| {
            family.is_none_or(|family| family == found.family())
                && index.is_none_or(|index| index == found.index)
        };
        let outcome = self.connection.dump("list addresses", &request, |kind, payload| {
            (kind == NEW_ADDRESS).then(|| address::read(payload)).flatten().filter(selected)
        });
        match outcome {
            // The device has disappeared, so it has no addresses.
            Err(error) if index.is_some() && error.is_missing() => Ok(Vec::new()),
            outcome => outcome,
        }
    }

    fn routes(&mut self, filter: &RouteFilter) -> Result<Vec<Route>> {
        let what = format!("list {} routes", filter.family);
        let outcome = self.connection.dump(&what, &routes::dump_request(filter), |kind, payload| {
            (kind == NEW_ROUTE).then(|| routes::read(payload)).flatten().filter(|route| filter.selects(route))
        });
        match outcome {
            // A table without routes does not exist, and a removed device has none.
            Err(Error::Refused { errno: Errno::NOENT | Errno::NODEV, .. }) => Ok(Vec::new()),
            outcome => outcome,
        }
    }

    fn neighbours(&mut self, family: Family, index: Option<u32>) -> Result<Vec<Neighbour>> {
        let request = neighbour::dump_request(family, index);
        self.connection.dump("list neighbours", &request, |kind, payload| {
            let found = (kind == NEW_NEIGHBOUR).then(|| neighbour::read(payload)).flatten();
            found.filter(|found| !found.forwarding && index.is_none_or(|index| index == found.index))
        })
    }

    fn forwarding(&mut self, index: u32) -> Result<Vec<Neighbour>> {
        let request = neighbour::dump_forwarding_request(index);
        let what = format!("list the forwarding table of device {index}");
        self.connection.dump(&what, &request, |kind, payload| {
            let found = (kind == NEW_NEIGHBOUR).then(|| neighbour::read(payload)).flatten();
            found.filter(|found| found.forwarding && found.index == index)
        })
    }

    fn rules(&mut self, family: Family) -> Result<Vec<Rule>> {
        self.connection.dump(&format!("list {family} rules"), &rule::dump_request(family), |kind, payload| {
            (kind == NEW_RULE).then(|| rule::read(payload)).flatten().filter(|rule| rule.family == family)
        })
    }

    fn apply(&mut self, operations: &[Operation]) -> Vec<Result<()>> {
        let requests: Vec<_> = operations.iter().map(Operation::request).collect();
        match self.connection.exchange(&requests) {
            Ok(answers) => answers
                .into_iter()
                .zip(operations)
                .map(|(answer, operation)| answer.into_result(|| operation.to_string()).map(drop))
                .collect(),
            Err(error) => vec![Err(error); operations.len()],
        }
    }
}
