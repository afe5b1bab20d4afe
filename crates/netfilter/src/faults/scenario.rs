//! The desired policy, moment by moment, and the packets that it lets through.

use ipnet::IpNet;
use messages::IpSetMember;
use rules::Backend;
use rules::names::ip_set;
use rules::simulate::{self, Packet, Simulation};
use rules::tree::{Action, Chain, End, IpVersion, KernelChain, Match, Rule, Side, VerdictMap};
use std::collections::{BTreeMap, BTreeSet};

/// The mark by which a policy lets packets pass.
pub(super) const ACCEPT: u32 = 0x8;
/// The dispatch map.
pub(super) const MAP: &str = "cali-from";
/// The last bytes of the packets' sources; each arrives on the interface of that number.
const SOURCES: std::ops::Range<u8> = 1..12;

/// The desired state at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Policy {
    pub(super) chains: BTreeMap<&'static str, Vec<Rule>>,
    pub(super) sets: BTreeMap<&'static str, BTreeSet<u8>>,
    /// The chain of each interface in the dispatch map, if there is a map.
    pub(super) map: Option<BTreeMap<&'static str, &'static str>>,
}

pub(super) fn when(matches: Vec<Match>, action: Action) -> Rule {
    Rule { matches, action: Some(action), comments: vec![] }
}

pub(super) fn accepted() -> Match {
    Match::Mark { value: ACCEPT, mask: ACCEPT, negated: false }
}

pub(super) fn from(last: u8) -> Vec<Match> {
    vec![Match::Net { end: End::Source, net: net(last), negated: false }]
}

pub(super) fn from_set(id: &str, negated: bool) -> Vec<Match> {
    vec![Match::IpSet { end: End::Source, name: ip_set(IpVersion::V4, id), negated }]
}

pub(super) fn net(last: u8) -> IpNet {
    IpNet::new([10, 0, 0, last].into(), 32).expect("a network")
}

pub(super) fn allow(matches: Vec<Match>) -> Vec<Rule> {
    vec![when(matches, Action::SetMark(ACCEPT)), when(vec![accepted()], Action::Return)]
}

pub(super) fn deny(matches: Vec<Match>) -> Vec<Rule> {
    vec![when(matches, Action::Drop)]
}

/// An endpoint's chain: policy after policy; packets that none of them accepts are dropped.
pub(super) fn endpoint(policies: &[&'static str]) -> Vec<Rule> {
    let mut rules = vec![when(vec![], Action::ClearMark(ACCEPT))];
    for policy in policies {
        rules.push(when(vec![], Action::Jump((*policy).into())));
        rules.push(when(vec![accepted()], Action::Accept));
    }
    rules.push(when(vec![], Action::Drop));
    rules
}

/// The scenario: the desired state, moment by moment.
pub(super) fn scenario(backend: Backend) -> Vec<Policy> {
    let mut all = Vec::new();
    let mut now = Policy::default();
    let mut moment = |change: &mut dyn FnMut(&mut Policy)| {
        change(&mut now);
        all.push(now.clone());
    };
    moment(&mut |now| {
        now.chains.insert("cali-fw", endpoint(&["cali-pi-a", "cali-pi-b"]));
        now.chains.insert("cali-pi-a", deny(from(9)));
        now.chains.insert("cali-pi-b", allow(vec![]));
    });
    // A policy gets another rule.
    moment(&mut |now| _ = now.chains.insert("cali-pi-a", [deny(from(8)), deny(from(9))].concat()));
    // A policy with a set, whose members change.
    moment(&mut |now| {
        now.sets.insert("s:d", [7].into());
        now.chains.insert("cali-pi-a", [deny(from(9)), deny(from_set("s:d", false))].concat());
    });
    moment(&mut |now| _ = now.sets.insert("s:d", [7, 6].into()));
    moment(&mut |now| _ = now.sets.insert("s:d", [6, 3].into()));
    // Another policy lets only some sources pass.
    moment(&mut |now| {
        now.sets.insert("s:a", [1, 2, 3].into());
        now.chains.insert("cali-pi-b", allow(from_set("s:a", false)));
    });
    // An endpoint with a policy of its own is added.
    moment(&mut |now| {
        now.chains.insert("cali-pi-c", [deny(from(2)), allow(from(4))].concat());
        now.chains.insert("cali-tw-x", endpoint(&["cali-pi-c"]));
        let first = when(from(4), Action::Goto("cali-tw-x".into()));
        now.chains.insert("cali-fw", [vec![first], endpoint(&["cali-pi-a", "cali-pi-b"])].concat());
    });
    // A set gets more members than fit, and then fewer.
    moment(&mut |now| _ = now.sets.insert("s:d", [1, 5, 6, 7, 10].into()));
    moment(&mut |now| _ = now.sets.insert("s:d", [1, 5].into()));
    // The use of the set is inverted.
    moment(&mut |now| _ = now.chains.insert("cali-pi-b", allow(from_set("s:d", true))));
    moment(&mut |now| _ = now.sets.insert("s:d", [1, 2, 3, 4, 5, 11].into()));
    moment(&mut |now| _ = now.sets.insert("s:d", [1].into()));
    // A policy is deleted, together with another whose chain all endpoints shared.
    moment(&mut |now| {
        now.chains.remove("cali-pi-a");
        now.chains.insert("cali-fw", endpoint(&["cali-pi-b"]));
        now.chains.remove("cali-tw-x");
        now.chains.remove("cali-pi-c");
    });
    moment(&mut |now| {
        now.sets.clear();
        now.chains.insert("cali-pi-b", allow(from(5)));
    });
    if backend == Backend::Nftables {
        dispatched(&mut moment);
    }
    all
}

/// A packet goes to the chain that the map has for its interface; packets of unknown interfaces are dropped.
fn lookup() -> Vec<Rule> {
    let lookup = Match::InterfaceMap { side: Side::In, map: MAP.into() };
    vec![Rule { matches: vec![lookup], action: None, comments: vec![] }, when(vec![], Action::Drop)]
}

/// Changes the desired state, for the next moment.
type Step<'a> = &'a mut dyn FnMut(&mut Policy);

/// Moments with a dispatch map, which only nftables has.
fn dispatched(moment: &mut dyn FnMut(Step<'_>)) {
    // The first endpoint is added, and with it the map.
    moment(&mut |now| {
        now.chains.insert("cali-pi-c", allow(from(4)));
        now.chains.insert("cali-tw-x", endpoint(&["cali-pi-c"]));
        now.map = Some([("cali4", "cali-tw-x")].into());
        now.chains.insert("cali-fw", lookup());
    });
    // A second endpoint, which lets every packet pass, has two interfaces.
    moment(&mut |now| {
        now.chains.insert("cali-tw-y", endpoint(&["cali-pi-all"]));
        now.chains.insert("cali-pi-all", allow(vec![]));
        now.map = Some([("cali4", "cali-tw-x"), ("cali5", "cali-tw-y"), ("cali6", "cali-tw-y")].into());
    });
    // Interfaces swap their chains: neither may keep what only the other one has.
    moment(&mut |now| {
        now.chains.insert("cali-tw-z", deny(vec![]));
        now.map = Some([("cali4", "cali-tw-y"), ("cali5", "cali-tw-x"), ("cali6", "cali-tw-z")].into());
    });
    // An endpoint is removed with its chain, and another one gets the name of its interface.
    moment(&mut |now| {
        now.chains.remove("cali-tw-y");
        now.chains.remove("cali-pi-all");
        now.map = Some([("cali4", "cali-tw-z"), ("cali5", "cali-tw-x")].into());
    });
    moment(&mut |now| now.map = Some(BTreeMap::new()));
    // The map is removed.
    moment(&mut |now| {
        now.chains.insert("cali-fw", endpoint(&["cali-pi-b"]));
        now.map = None;
        now.chains.remove("cali-tw-x");
        now.chains.remove("cali-tw-z");
        now.chains.remove("cali-pi-c");
    });
}

/// The map as drivers receive it.
pub(super) fn verdicts<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> VerdictMap {
    let entries = entries.into_iter().map(|(interface, chain)| (interface.into(), chain.into())).collect();
    VerdictMap { name: MAP.into(), entries }
}

/// The sources that get through.
pub(super) fn passing(simulation: &mut Simulation) -> BTreeSet<u8> {
    let passes = |last: &u8| {
        let mut packet = Packet::new([10, 0, 0, *last].into(), [10, 1, 0, 1].into(), 6);
        packet.in_interface = format!("cali{last}").into();
        match simulation.run("FORWARD", &mut packet) {
            Ok(simulate::Verdict::Accept | simulate::Verdict::Continue) => true,
            Ok(simulate::Verdict::Drop | simulate::Verdict::Reject) => false,
            Err(error) => panic!("no kernel holds such rules: {error}"),
        }
    };
    SOURCES.filter(passes).collect()
}

pub(super) fn hook() -> KernelChain {
    KernelChain {
        name: "FORWARD",
        inserted: vec![when(vec![], Action::Jump("cali-fw".into()))],
        appended: vec![],
    }
}

impl Policy {
    pub(super) fn passing(&self, backend: Backend) -> BTreeSet<u8> {
        let mut simulation = Simulation::new(backend);
        simulation.add_chains(self.chains.iter().map(|(name, rules)| Chain::new(*name, rules.clone())));
        simulation.add_chains([Chain::new("FORWARD", hook().inserted)]);
        for (id, members) in &self.sets {
            let members = members.iter().map(|last| IpSetMember::Net(net(*last))).collect();
            simulation.add_set(ip_set(IpVersion::V4, id), members);
        }
        simulation
            .add_maps(self.map.iter().map(|map| verdicts(map.iter().map(|(one, chain)| (*one, *chain)))));
        passing(&mut simulation)
    }
}
