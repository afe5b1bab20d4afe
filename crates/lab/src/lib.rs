//! A whole cluster on one machine: nodes and pods are network namespaces, and everything in them is this program itself
//! (node start-up, Felix, the CNI plugin, `calicoctl`), with real packets between them.
//!
//! - [`topology`]: the desired shape of a lab, and what is impossible; [`topology_file`]: the shape from a file.
//! - [`lab`]: creating and removing it; `keeper` holds its namespaces and programs, `inside` puts a program in its
//!   place.
//! - `wire`: bridges, router, nodes; `servers`: the datastore; `pods`: the CNI plugin and a responder per pod.
//! - [`matrix`]: every pod to every pod, measured by `probe` and predicted by `explain`; [`html`]: the same as a web
//!   page.
//! - [`picture`]: the lab as SVG; `list`, `status`, `logs`: its contents; `outside`: the lab's datastore from this
//!   machine.
//! - [`demo`], [`scenario`]: what `make lab` shows, and walk-throughs with a verdict on each line. `flows`: who talked
//!   to whom; `ui`: a cluster with traffic, in the browser.
//!
//! It never touches the machine's own rules, routes, namespaces and files outside the folder of labs.

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
