//! The order of writes on maps that are only values, and the whole driver on a kernel.

mod kernel;
mod order;
mod routes;
mod sockets;
#[path = "../../../bpf-policy/tests/it/state.rs"]
mod state;
mod takeover;
