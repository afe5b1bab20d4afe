//! The objects of the route family (`NETLINK_ROUTE`), with encoding and decoding.

pub mod address;
pub mod link;
pub mod neighbour;
pub mod routes;
pub mod rule;

/// Message types.
pub(crate) const NEW_LINK: u16 = 16;
pub(crate) const DEL_LINK: u16 = 17;
pub(crate) const GET_LINK: u16 = 18;
pub(crate) const NEW_ADDRESS: u16 = 20;
pub(crate) const DEL_ADDRESS: u16 = 21;
pub(crate) const GET_ADDRESS: u16 = 22;
pub(crate) const NEW_ROUTE: u16 = 24;
pub(crate) const DEL_ROUTE: u16 = 25;
pub(crate) const GET_ROUTE: u16 = 26;
pub(crate) const NEW_NEIGHBOUR: u16 = 28;
pub(crate) const DEL_NEIGHBOUR: u16 = 29;
pub(crate) const GET_NEIGHBOUR: u16 = 30;
pub(crate) const NEW_RULE: u16 = 32;
pub(crate) const DEL_RULE: u16 = 33;
pub(crate) const GET_RULE: u16 = 34;

/// Flags of requests that create something.
pub(crate) const REPLACE: u16 = 0x100;
pub(crate) const EXCLUSIVE: u16 = 0x200;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const APPEND: u16 = 0x800;
