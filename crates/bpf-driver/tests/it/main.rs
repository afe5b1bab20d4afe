//! The order of writes to maps that are plain values, and the whole driver on a kernel.

mod kernel;
mod order;
mod routes;
mod sockets;
#[path = "../../../bpf-policy/tests/it/state.rs"]
mod state;
mod takeover;
