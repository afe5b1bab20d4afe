//! The whole graph: scenarios and random worlds, each run in many ways, compared with an obvious recomputation.

mod captured;
mod computed;
mod dataplane;
mod naive;
mod random;
mod run;
mod scale;
mod scenarios;
mod services;
mod text;
mod unreadable;
mod world;
