//! The commands on resources.
//!
//! - [`target`]: which object is meant: kinds, names, namespaces.
//! - [`operations`]: what create, apply, replace and delete do to one object.
//! - [`batch`]: many new objects in one step of the store.
//! - [`pipeline`]: many objects at once, in an order that respects what depends on what.
//! - [`report`]: what is printed in the end, in Calico's words.
//! - one module per command, with its flags.

pub mod batch;
pub mod convert;
pub mod delete;
pub mod diff;
pub mod get;
pub mod label;
pub mod operations;
pub mod patch;
pub mod pipeline;
pub mod report;
pub mod target;
pub mod write;
