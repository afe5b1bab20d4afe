//! The dataplane: brings the results of the calculation into the kernel.
//!
//! ```text
//!  messages ─► runner ─► managers ─► desired state ─► drivers ─► kernel
//!              ▲ interfaces, addresses, changes by others ◄──────┘   └─► reports
//! ```
//!
//! - [`runner`]: one loop that owns everything, and the order in which the kernel is changed.
//! - `managers`: policies, endpoints, pools, tunnels and so on as pure state; they derive the desired state.
//! - `desired`: the desired state of the kernel, as a value that managers write and drivers take.
//! - [`settings`]: settings derived from Felix's configuration.
//!
//! The drivers are crates of their own: `netfilter` for rules and sets, `routing` for routes, neighbours, tunnel
//! devices, WireGuard and bandwidth limits. Each receives the desired state, reads the actual state, computes the
//! difference as a value and writes it in one batch. From then on it writes only changes.
//!
//! Nothing that is not recognisably ours is ever changed, and nothing is written before the first complete state is
//! known.

mod bpf_leftovers;
mod desired;
mod kube_proxy_rules;
mod managers;
pub mod runner;
pub mod settings;
