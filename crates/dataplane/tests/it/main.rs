//! Integration tests of `dataplane`: real nftables, iptables of both variants, IP sets and connections, each in a network
//! namespace of its own; what was programmed is read back with the tools of the trade.

mod bandwidth;
mod conntrack;
mod expressions;
mod host;
mod ipsets;
mod iptables;
mod lab;
mod leftovers;
mod loop_cases;
mod meaning;
mod migration;
mod neighbours;
mod nftables;
mod runner;
mod takeover;
mod wireguard;

// The same host that the rules are tested with: what Calico's Felix programmed for it is known.
#[expect(dead_code, reason = "tests of the rules use all of it")]
#[path = "../../../rules/tests/it/shop.rs"]
mod shop;
#[expect(dead_code, reason = "tests of the rules use all of it")]
#[path = "../../../rules/tests/it/world.rs"]
mod world;
