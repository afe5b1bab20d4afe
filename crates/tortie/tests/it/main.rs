//! The program itself: its names, its exit codes, `tortie node` as the first process of a node, and the controllers.
//!
//! A node writes below `/var` and `/run`, so the nodes that run here have folders of their own there: a mount namespace
//! that disappears with them. Needs root.

mod controllers;
mod documents;
mod guest;
mod lab;
mod names;
mod packets;
mod policy;
mod reference;
mod supervise;
mod watch;
