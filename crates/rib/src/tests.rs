//! Scenarios and properties of the whole.

mod best_path;
mod properties;
mod scenarios;
mod world;
