//! What a component shows to those who watch over it: health probes, and figures for Prometheus.
//!
//! - [`health`]: which parts are alive and ready.
//! - [`metrics`]: figures, with Calico's names.
//! - [`process`]: figures that the kernel has of every process.
//! - [`memory`]: how daemons keep their resident memory small.
//!
//! `telemetry-server` shows them. It refuses to run timers: answers are made when someone asks.

pub mod health;
pub mod memory;
pub mod metrics;
pub mod process;

pub use health::{Health, Pulse, Summary};
pub use metrics::{Figure, FigureKind, Metrics};
