//! What a component shows to those who watch over it: health probes, and figures for Prometheus.
//!
//! - [`errors`]: causes of errors as one line, each once.
//! - [`health`]: which parts are alive and ready.
//! - [`metrics`]: figures, with Calico's names.
//! - [`memory`]: how daemons keep their resident memory small.
//! - [`server`]: both over HTTP, listening again where a port is taken. [`tls`]: and over TLS.
//!
//! It refuses to run timers: answers are made when somebody asks.

pub mod errors;
pub mod health;
mod listen;
pub mod memory;
pub mod metrics;
mod patience;
pub mod server;
pub mod tls;

pub use errors::{Causes, causes};
pub use health::{Health, Pulse, Summary};
pub use listen::Address;
pub use metrics::{Figure, FigureKind, Metrics};
pub use tls::{ClientAuth, TlsFiles};
