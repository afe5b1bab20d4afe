//! Scenarios and properties of the whole crate.

mod best_path;
mod properties;
mod scenarios;
mod world;
