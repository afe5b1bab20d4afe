//! ROUTE-REFRESH: a request to send all routes of a family again, and its markers (RFC 2918, RFC 7313).

use crate::Family;

/// The type of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefreshPhase {
    /// A request for routes.
    Request,
    /// The routes begin.
    Begin,
    /// The routes are complete.
    End,
}

/// A ROUTE-REFRESH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteRefresh {
    /// The family of the routes.
    pub family: Family,
    /// The type of the message.
    pub phase: RefreshPhase,
}
