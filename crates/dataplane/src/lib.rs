//! The dataplane: from what the calculation says to what is in the kernel.
//!
//! ```text
//!  messages ─► runner ─► managers ─► desired state ─► drivers ─► kernel
//!              ▲ interfaces, addresses, changes by others ◄──────┘   └─► reports
//! ```
//!
//! - [`runner`]: one loop that owns everything, and the order in which the kernel is changed.
//! - `managers`: policies, endpoints, pools, tunnels and so on as pure state; they say what should be there.
//! - `desired`: what should be in the kernel, as a value that managers write and drivers take.
//! - [`settings`]: what follows from Felix's configuration.
//!
//! The drivers are crates of their own: `netfilter` for rules and sets, `routing` for routes, neighbours, tunnel devices,
//! WireGuard and limits of bandwidth. Each receives what should be there, reads what is there, computes the difference as a
//! value and writes it in one batch; afterwards it writes what changed.
//!
//! Nothing that is not recognisably ours is ever changed, and nothing is written before everything is known once.

mod bpf_leftovers;
mod desired;
mod kube_proxy_rules;
mod managers;
pub mod runner;
pub mod settings;
