//! The program itself: its names, its exit codes, and `tortie node` as the first process of a node.
//!
//! A node writes below `/var` and `/run`, so the ones that run here have folders of their own there: a mount namespace
//! that ends with them. Needs root.

mod guest;
mod lab;
mod names;
mod packets;
mod policy;
mod reference;
mod supervise;
