//! ROUTE-REFRESH: a request to send all routes of a family again (RFC 2918, RFC 7313).

use crate::Family;

/// Which of the three messages it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefreshPhase {
    /// Please send.
    Request,
    /// The routes begin.
    Begin,
    /// The routes are complete.
    End,
}

/// A ROUTE-REFRESH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteRefresh {
    /// Of which routes.
    pub family: Family,
    /// Which message it is.
    pub phase: RefreshPhase,
}
