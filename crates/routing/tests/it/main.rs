//! Integration tests of `routing`: limits of bandwidth and connections in the kernel, each in a network namespace of its own.

mod bandwidth;
mod conntrack;

#[expect(dead_code, reason = "tests of packet filters use all of it")]
#[path = "../../../netfilter/tests/it/host.rs"]
mod host;
