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

pub mod batch;
pub mod convert;
pub mod delete;
pub mod describe;
pub mod diff;
pub mod edit;
pub mod get;
pub mod label;
pub mod labels;
pub mod operations;
pub mod patch;
pub mod pipeline;
pub mod prune;
pub mod report;
pub mod target;
pub mod watch;
pub mod write;
