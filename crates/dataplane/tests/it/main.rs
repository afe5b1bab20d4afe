//! Integration tests of `dataplane`: the whole loop over real kernels, each in a network namespace of its own. The
//! programmed state is read back with the usual tools.

mod lab;
mod leftovers;
mod loop_cases;
mod migration;
mod neighbours;
mod runner;
mod services;
mod wireguard;

// Hosts and captures that the packet filters are tested with.
#[path = "../../../netfilter/tests/it/captured.rs"]
mod captured;
#[path = "../../../netfilter/tests/it/host.rs"]
mod host;

// The host that the rules are tested with, whose rules by Calico's Felix are known.
#[expect(dead_code, reason = "tests of the rules use all of it")]
#[path = "../../../rules/tests/it/shop.rs"]
mod shop;
#[expect(dead_code, reason = "tests of the rules use all of it")]
#[path = "../../../rules/tests/it/world.rs"]
mod world;
