//! A component's health probes, and its figures for Prometheus.
//!
//! - [`health`]: which parts are alive and ready.
//! - [`metrics`]: figures, with Calico's names.
//! - [`process`]: figures that the kernel provides for every process.
//! - [`memory`]: how daemons keep their resident memory small.
//!
//! `telemetry-server` serves them. There are no timers: answers are computed on request.

pub mod health;
pub mod memory;
pub mod metrics;
pub mod process;

pub use health::{Health, Pulse, Summary};
pub use metrics::{Figure, FigureKind, Metrics};
