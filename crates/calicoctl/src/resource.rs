//! The commands on resources.
//!
//! - [`target`] and [`labels`]: which object is meant: kinds, names, namespaces, labels.
//! - [`watch`]: objects and their changes.
//! - [`prune`]: what an earlier apply of the same set wrote and this one does not hold.
//! - [`operations`]: what create, apply, replace and delete do to one object.
//! - [`batch`]: many new objects in one step of the store.
//! - [`pipeline`]: many objects at once, in an order that respects what depends on what.
//! - [`report`]: what is printed in the end, in Calico's words.
//! - one module per command, with its flags.

pub(crate) mod batch;
pub(crate) mod convert;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod diff;
pub(crate) mod edit;
pub(crate) mod get;
pub(crate) mod label;
pub(crate) mod labels;
pub(crate) mod operations;
pub(crate) mod patch;
pub(crate) mod pipeline;
pub(crate) mod prune;
pub(crate) mod report;
pub(crate) mod target;
pub(crate) mod watch;
pub(crate) mod write;
