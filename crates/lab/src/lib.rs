//! A whole cluster on one machine: nodes and pods are network namespaces, and everything in them is this program itself
//! (node start-up, Felix, the CNI plugin, `calicoctl`), with real packets between.
//!
//! - [`topology`]: what a lab is to look like, and what is impossible; [`topology_file`]: the same from a file.
//! - [`lab`]: bringing it up and down; `keeper` holds its namespaces and programs, `inside` puts a program in its place.
//! - `wire`: bridges, router, nodes; `servers`: the datastore; `pods`: the CNI plugin and a responder per pod.
//! - [`matrix`]: everybody to everybody, measured by `probe` and expected by `explain`; [`html`]: as a page.
//! - [`picture`]: the lab as SVG; `list`, `status`, `logs`: what there is; `outside`: the lab's datastore from this machine.
//! - [`demo`], [`scenario`]: what `make lab` shows, and walk-throughs with a verdict on each line. `flows`: who talked to whom;
//!   `ui`: a cluster with traffic, in the browser.
//!
//! It refuses to touch the machine's own rules, routes, namespaces and files outside the folder of labs.

mod accounts;
mod authority;
mod bgp;
mod called;
mod cli;
mod demo;
mod flows;
mod host_folder;
mod html;
mod inside;
mod interrupt;
mod keeper;
mod lab;
mod list;
mod logs;
mod manifests;
mod matrix;
mod measure;
mod outside;
mod picture;
mod pods;
mod probe;
mod responder;
mod rights;
mod scenario;
mod screen;
mod servers;
mod settings;
mod shell;
mod state;
mod status;
mod table;
mod topology;
mod topology_file;
mod typha;
mod ui;
mod wire;

pub use cli::{Arguments, run};
