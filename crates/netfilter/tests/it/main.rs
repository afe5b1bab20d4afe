//! Integration tests of `netfilter`: real nftables, iptables of both variants and IP sets, each in a network namespace of its
//! own; what was programmed is read back with the tools of the trade.

mod captured;
mod expressions;
#[expect(dead_code, reason = "tests of the whole loop use all of it")]
mod host;
mod ipsets;
mod iptables;
mod meaning;
mod nftables;
mod takeover;

// The same host that the rules are tested with: what Calico's Felix programmed for it is known.
#[expect(dead_code, reason = "tests of the rules use all of it")]
#[path = "../../../rules/tests/it/shop.rs"]
mod shop;
#[expect(dead_code, reason = "tests of the rules use all of it")]
#[path = "../../../rules/tests/it/world.rs"]
mod world;
