//! A whole cluster on one machine: nodes and pods are network namespaces, and everything in them is this program itself
//! (node start-up, Felix, the CNI plugin, `calicoctl`), with real packets between.
//!
//! - [`topology`]: what a lab is to look like, and what is impossible; [`topology_file`]: the same from a file.
//! - [`lab`]: bringing it up and down; `keeper` holds its namespaces and programs, `inside` puts a program in its place.
//! - `wire`: bridges, router, nodes; `servers`: the datastore; `pods`: the CNI plugin and a responder per pod.
//! - [`matrix`]: everybody to everybody, measured by `probe` and expected by `explain`; [`html`]: as a page.
//! - [`demo`], [`scenario`]: what `make lab` shows, and walk-throughs with a verdict on each line.
//!
//! It refuses to touch the machine's own rules, routes, namespaces and files outside the folder of labs.

mod accounts;
pub mod cli;
pub mod demo;
mod expected;
mod host_folder;
pub mod html;
mod inside;
mod keeper;
pub mod lab;
pub mod matrix;
mod measure;
mod pods;
pub mod probe;
mod responder;
mod rights;
pub mod scenario;
pub mod screen;
mod servers;
mod settings;
pub mod state;
pub mod topology;
pub mod topology_file;
mod wire;

pub use cli::{Arguments, run};
