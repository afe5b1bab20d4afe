//! The commands on resources.
//!
//! - [`target`] and [`labels`]: which objects are meant: kinds, names, namespaces, labels.
//! - [`watch`]: objects and their changes.
//! - [`prune`]: deletes what an earlier apply of the same set wrote and this one no longer contains.
//! - [`operations`]: what create, apply, replace and delete do to one object.
//! - [`batch`]: creates many objects in one step of the store.
//! - [`pipeline`]: many objects at once, in the order of their dependencies.
//! - [`report`]: the final message, in Calico's words.
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
