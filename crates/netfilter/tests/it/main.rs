//! Integration tests of `netfilter`: real nftables, iptables of both variants and IP sets, each in a network namespace
//! of its own. The programmed state is read back with the usual tools.

mod captured;
mod expressions;
#[expect(dead_code, reason = "tests of the whole loop use all of it")]
mod host;
mod ipsets;
mod iptables;
mod meaning;
mod nftables;
mod takeover;

// The host that the rules are tested with, whose rules by Calico's Felix are known.
#[expect(dead_code, reason = "tests of the rules use all of it")]
#[path = "../../../rules/tests/it/shop.rs"]
mod shop;
#[expect(dead_code, reason = "tests of the rules use all of it")]
#[path = "../../../rules/tests/it/world.rs"]
mod world;
