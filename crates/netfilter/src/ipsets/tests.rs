//! Both drivers against kernels built from maps: whatever is reported in whatever order, the sets reach the desired
//! state.

use super::{IpSetDriver, KernelSets, NftSetKernel, NftSets, SetKernel};
use ipnet::IpNet;
use messages::{IpSetMember, IpSetType};
use netlink::netfilter::ipset::{self, Member, SetFound, SetHeader};
use netlink::netfilter::nft::{self, Change, CommitRefused, Element, ElementFound, Key};
use netlink::netfilter::{Error, Refusal, Result};
use proptest::prelude::*;
use rules::tree::IpVersion;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

fn refused<T>(what: &str, code: i32) -> Result<T> {
    Err(Error::Refused { what: what.to_owned(), refusal: Refusal::new(code) })
}

/// The sets of the `ip_set` subsystem as maps.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    pub(crate) sets: BTreeMap<String, (Option<SetHeader>, BTreeSet<Member>)>,
    in_use: BTreeSet<String>,
    /// A member and a set that the kernel refuses.
    bad_member: Option<Member>,
    bad_set: Option<String>,
}

impl SetKernel for Sets {
    fn names(&mut self) -> Result<Vec<String>> {
        Ok(self.sets.keys().cloned().collect())
    }

    fn read(&mut self, name: &str) -> Result<Option<SetFound>> {
        let found = self.sets.get(name);
        Ok(found.map(|(header, members)| SetFound {
            header: *header,
            members: members.iter().copied().collect(),
        }))
    }

    fn create(&mut self, name: &str, header: &SetHeader) -> Result<()> {
        if self.sets.contains_key(name) || self.bad_set.as_deref() == Some(name) {
            return refused(name, Refusal::EXISTS);
        }
        self.sets.insert(name.to_owned(), (Some(*header), BTreeSet::new()));
        Ok(())
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        if self.in_use.contains(name) {
            return refused(name, Refusal::BUSY);
        }
        if self.sets.remove(name).is_none() { refused(name, Refusal::NOT_FOUND) } else { Ok(()) }
    }

    fn swap(&mut self, first: &str, second: &str) -> Result<()> {
        let kind = |header: &Option<SetHeader>| header.map(|header| header.set_type);
        match (self.sets.get(first).cloned(), self.sets.get(second).cloned()) {
            (Some(one), Some(two)) if kind(&one.0) == kind(&two.0) => {
                self.sets.insert(first.to_owned(), two);
                self.sets.insert(second.to_owned(), one);
                Ok(())
            }
            (Some(_), Some(_)) => refused(first, ipset::ERROR_TYPE_MISMATCH),
            _ => refused(first, Refusal::NOT_FOUND),
        }
    }

    fn add(&mut self, name: &str, members: &[Member]) -> Result<Vec<(Member, Refusal)>> {
        let mut not_taken = Vec::new();
        for member in members {
            let Some((header, held)) = self.sets.get_mut(name) else {
                return refused(name, Refusal::NOT_FOUND);
            };
            assert!(!matches!(member, Member::Net(net) if net.prefix_len() == 0), "no set can hold this");
            let room = header.map_or(0, |header| usize::try_from(header.max_elements).unwrap_or(usize::MAX));
            if self.bad_member == Some(*member) {
                not_taken.push((*member, Refusal::new(Refusal::INVALID)));
            } else if held.len() >= room && !held.contains(member) {
                not_taken.push((*member, Refusal::new(ipset::ERROR_FULL)));
            } else {
                held.insert(*member);
            }
        }
        Ok(not_taken)
    }

    fn delete(&mut self, name: &str, members: &[Member]) -> Result<Vec<(Member, Refusal)>> {
        let Some((_, held)) = self.sets.get_mut(name) else { return refused(name, Refusal::NOT_FOUND) };
        held.retain(|member| !members.contains(member));
        Ok(vec![])
    }
}

/// The sets of our nftables table as maps of ranges.
#[derive(Debug, Default)]
pub(crate) struct Ranges {
    pub(crate) sets: BTreeMap<String, (nft::SetFound, BTreeSet<Element>)>,
    in_use: BTreeSet<String>,
    pub(crate) bad_member: Option<Element>,
    bad_set: Option<String>,
    confused: bool,
    commits: usize,
}

fn overlap(one: &Element, other: &Element) -> bool {
    match (one, other) {
        (Element::Range(a, b), Element::Range(c, d)) => a <= d && c <= b,
        (one, other) => one == other,
    }
}

impl NftSetKernel for Ranges {
    fn read_sets(&mut self, _: &nft::Table) -> Result<Vec<(nft::SetFound, Vec<ElementFound>)>> {
        let one = |(set, members): &(nft::SetFound, BTreeSet<Element>)| {
            (set.clone(), members.iter().cloned().map(ElementFound::Known).collect())
        };
        Ok(self.sets.values().map(one).collect())
    }

    fn commit(
        &mut self,
        _: &nft::Table,
        changes: &[Change],
    ) -> Result<std::result::Result<(), CommitRefused>> {
        self.commits += 1;
        let mut sets = self.sets.clone();
        let mut at_fault = Vec::new();
        for (index, change) in changes.iter().enumerate() {
            let code = match change {
                Change::AddTable => None,
                Change::AddSet(set) if self.bad_set.as_deref() == Some(&*set.name) => Some(Refusal::INVALID),
                Change::AddSet(set) => {
                    let found = nft::SetFound {
                        name: set.name.to_string(),
                        key: Some(set.key),
                        interval: set.interval,
                        map: false,
                    };
                    sets.entry(set.name.to_string()).or_insert((found, BTreeSet::new()));
                    None
                }
                Change::DeleteSet(name) if self.in_use.contains(&**name) => Some(Refusal::BUSY),
                Change::DeleteSet(name) => sets.remove(&**name).is_none().then_some(Refusal::NOT_FOUND),
                Change::AddElements { set, elements } => match sets.get_mut(&**set) {
                    None => Some(Refusal::NOT_FOUND),
                    Some((_, held)) => {
                        let clash = elements.iter().any(|one| held.iter().any(|other| overlap(one, other)));
                        let bad = elements.iter().any(|one| self.bad_member.as_ref() == Some(one));
                        held.extend(elements.iter().cloned());
                        (clash || bad).then_some(Refusal::EXISTS)
                    }
                },
                Change::FlushSet(set) => match sets.get_mut(&**set) {
                    None => Some(Refusal::NOT_FOUND),
                    Some((_, held)) => {
                        held.clear();
                        None
                    }
                },
                // As on some kernels: removed ranges block new ones.
                Change::DeleteElements { .. } if self.confused && changes.len() > 2 => Some(Refusal::EXISTS),
                Change::DeleteElements { set, elements } => match sets.get_mut(&**set) {
                    None => Some(Refusal::NOT_FOUND),
                    Some((_, held)) => {
                        elements.iter().any(|one| !held.remove(one)).then_some(Refusal::NOT_FOUND)
                    }
                },
                other => panic!("unexpected change: {other:?}"),
            };
            at_fault.extend(code.map(|code| (index, Refusal::new(code))));
        }
        if !at_fault.is_empty() {
            return Ok(Err(CommitRefused { refused: at_fault, whole: None }));
        }
        self.sets = sets;
        Ok(Ok(()))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Replace(u8, Vec<IpNet>),
    Members(u8, Vec<IpNet>, Vec<IpNet>),
    Remove(u8),
    Damage,
    Use(u8, bool),
    Apply,
}

fn net() -> impl Strategy<Value = IpNet> {
    (0..=5_u8, 0..16_u8).prop_map(|(length, bits)| {
        let length = [0, 1, 28, 29, 30, 32][usize::from(length)];
        IpNet::new(IpAddr::from([if bits > 7 { 200 } else { 10 }, 0, 0, bits]), length)
            .expect("a network")
            .trunc()
    })
}

fn step() -> impl Strategy<Value = Step> {
    let nets = || prop::collection::vec(net(), 0..6);
    prop_oneof![
        3 => (0..3_u8, nets()).prop_map(|(set, nets)| Step::Replace(set, nets)),
        4 => (0..3_u8, nets(), nets()).prop_map(|(set, added, removed)| Step::Members(set, added, removed)),
        1 => (0..3_u8).prop_map(Step::Remove),
        1 => Just(Step::Damage),
        1 => (0..3_u8, any::<bool>()).prop_map(|(set, used)| Step::Use(set, used)),
        3 => Just(Step::Apply),
    ]
}

/// For the relevant addresses, whether each is in one of the networks.
fn probes(nets: impl Fn(IpAddr) -> bool) -> Vec<bool> {
    [10_u8, 200]
        .into_iter()
        .flat_map(|first| (0..16).map(move |last| [first, 0, 0, last]))
        .map(|octets| nets(octets.into()))
        .collect()
}

fn tell(driver: &mut impl IpSetDriver, step: &Step, wanted: &mut BTreeMap<u8, BTreeSet<IpNet>>) {
    let members = |nets: &[IpNet]| nets.iter().map(|net| IpSetMember::Net(*net)).collect::<Vec<_>>();
    match step {
        Step::Replace(set, nets) => {
            driver.update_set(&format!("s:{set}"), IpSetType::Net, &members(nets));
            wanted.insert(*set, nets.iter().copied().collect());
        }
        Step::Members(set, added, removed) => {
            if let Some(held) = wanted.get_mut(set) {
                let removed: Vec<IpNet> =
                    removed.iter().filter(|net| !added.contains(net)).copied().collect();
                driver.update_members(&format!("s:{set}"), &members(added), &members(&removed));
                held.retain(|net| !removed.contains(net));
                held.extend(added);
            }
        }
        Step::Remove(set) => {
            driver.remove_set(&format!("s:{set}"));
            wanted.remove(set);
        }
        Step::Damage | Step::Use(..) | Step::Apply => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn kernel_sets_reach_the_desired_state(steps in prop::collection::vec(step(), 1..25)) {
        let mut driver = KernelSets::new(Sets::default(), IpVersion::V4, 1000);
        let mut wanted = BTreeMap::new();
        for step in steps.iter().chain([&Step::Apply]) {
            tell(&mut driver, step, &mut wanted);
            match step {
                Step::Damage => {
                    let sets = &mut driver.kernel().sets;
                    sets.insert("cali40s:stranger".into(), (None, BTreeSet::new()));
                    if let Some((_, members)) = sets.values_mut().next() { members.pop_first(); }
                    driver.invalidate();
                }
                Step::Use(set, used) => {
                    let in_use = &mut driver.kernel().in_use;
                    if *used { in_use.insert(format!("cali40s:{set}")) } else { in_use.remove(&format!("cali40s:{set}")) };
                }
                Step::Apply => {
                    prop_assert!(driver.apply_updates().is_ok());
                    prop_assert!(driver.apply_deletions().is_ok());
                    prop_assert_eq!(driver.refused(), vec![]);
                    let Sets { sets, in_use, .. } = driver.kernel();
                    for (set, nets) in &wanted {
                        let (_, members) = &sets[&format!("cali40s:{set}")];
                        let held = |address: IpAddr| members.iter().any(|one| matches!(one, Member::Net(net) if net.contains(&address)));
                        prop_assert_eq!(probes(held), probes(|address| nets.iter().any(|net| net.contains(&address))));
                    }
                    let left = sets.keys().filter(|name| !in_use.contains(*name)).count();
                    prop_assert_eq!(left, wanted.keys().filter(|set| !in_use.contains(&format!("cali40s:{set}"))).count());
                }
                _ => {}
            }
        }
    }

    #[test]
    fn nft_sets_reach_the_desired_state(steps in prop::collection::vec(step(), 1..25)) {
        let mut driver = NftSets::new(Ranges::default(), IpVersion::V4);
        let mut wanted = BTreeMap::new();
        for step in steps.iter().chain([&Step::Apply]) {
            tell(&mut driver, step, &mut wanted);
            match step {
                Step::Damage => {
                    let sets = &mut driver.kernel().sets;
                    if let Some((_, members)) = sets.values_mut().next() { members.pop_first(); }
                    driver.invalidate();
                }
                Step::Use(set, used) => {
                    let in_use = &mut driver.kernel().in_use;
                    if *used { in_use.insert(format!("cali40s-{set}")) } else { in_use.remove(&format!("cali40s-{set}")) };
                }
                Step::Apply => {
                    let before = driver.kernel().commits;
                    prop_assert!(driver.apply_updates().is_ok());
                    prop_assert!(driver.kernel().commits <= before + 1, "one transaction");
                    prop_assert!(driver.apply_deletions().is_ok());
                    prop_assert_eq!(driver.refused(), vec![]);
                    let Ranges { sets, in_use, .. } = driver.kernel();
                    for (set, nets) in &wanted {
                        let (_, members) = &sets[&format!("cali40s-{set}")];
                        let held = |address: IpAddr| {
                            let key = Key::address(address);
                            members.iter().any(|one| matches!(one, Element::Range(first, last) if *first <= key && key <= *last))
                        };
                        prop_assert_eq!(probes(held), probes(|address| nets.iter().any(|net| net.contains(&address))));
                    }
                    let left = sets.keys().filter(|name| !in_use.contains(*name)).count();
                    prop_assert_eq!(left, wanted.keys().filter(|set| !in_use.contains(&format!("cali40s-{set}"))).count());
                }
                _ => {}
            }
        }
    }
}

fn addresses(list: &[&str]) -> Vec<IpSetMember> {
    list.iter().map(|one| IpSetMember::Ip(one.parse().expect("an address"))).collect()
}

#[test]
fn a_refused_set_or_member_does_not_stop_others() {
    let mut driver = KernelSets::new(Sets::default(), IpVersion::V4, 1000);
    driver.kernel().bad_member = Some(Member::Address([10, 0, 0, 2].into()));
    driver.kernel().bad_set = Some("cali40bad".into());
    driver.update_set("one", IpSetType::Ip, &addresses(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    driver.update_set("bad", IpSetType::Ip, &[]);
    driver.update_set("two", IpSetType::Ip, &addresses(&["10.0.0.9"]));
    assert!(driver.apply_updates().expect("applied").again_in.is_some());
    let told: Vec<String> = driver
        .refused()
        .iter()
        .map(|one| one.to_string().split(':').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(told, ["cali40bad", "cali40one member 10.0.0.2"]);
    assert_eq!(
        (driver.kernel().sets["cali40one"].1.len(), driver.kernel().sets["cali40two"].1.len()),
        (2, 1)
    );
    // The reason for the refusal disappears.
    (driver.kernel().bad_member, driver.kernel().bad_set) = (None, None);
    driver.apply_updates().expect("applied");
    assert_eq!(driver.refused(), []);
    assert_eq!(driver.kernel().sets.len(), 3);

    let mut driver = NftSets::new(Ranges::default(), IpVersion::V4);
    driver.kernel().bad_member = Some(Element::Single(Key::address([10, 0, 0, 2].into())));
    driver.kernel().bad_set = Some("cali40bad".into());
    driver.update_set("one", IpSetType::Ip, &addresses(&["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    driver.update_set("bad", IpSetType::Ip, &addresses(&["10.0.0.1", "10.0.0.3"]));
    driver.update_set("two", IpSetType::Ip, &addresses(&["10.0.0.9"]));
    assert!(driver.apply_updates().expect("applied").wrote);
    let told: Vec<String> = driver
        .refused()
        .iter()
        .map(|one| one.to_string().split(':').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(told, ["cali40bad", "cali40one member 10.0.0.2"]);
    assert_eq!(
        (driver.kernel().sets["cali40one"].1.len(), driver.kernel().sets["cali40two"].1.len()),
        (2, 1)
    );
    let commits = driver.kernel().commits;
    driver.apply_updates().expect("applied");
    assert_eq!(driver.kernel().commits, commits, "nothing is retried without a reason");
    (driver.kernel().bad_member, driver.kernel().bad_set) = (None, None);
    driver.invalidate();
    driver.apply_updates().expect("applied");
    assert_eq!((driver.refused(), driver.kernel().sets.len()), (vec![], 3));
    assert_eq!(driver.kernel().sets["cali40bad"].1.len(), 2);
}

/// Networks that are replaced by others in the same place, on a kernel that confuses them.
#[test]
fn a_set_is_refilled_where_the_kernel_refuses_a_small_change() {
    let mut driver = NftSets::new(Ranges { confused: true, ..Ranges::default() }, IpVersion::V4);
    let nets = |list: &[&str]| {
        list.iter().map(|net| IpSetMember::Net(net.parse().expect("a network"))).collect::<Vec<_>>()
    };
    driver.update_set("x", IpSetType::Net, &nets(&["10.0.0.0/25", "10.0.0.128/25", "192.0.2.0/24"]));
    driver.apply_updates().expect("applied");
    driver.update_members("x", &nets(&["10.0.0.0/24"]), &nets(&["192.0.2.0/24"]));
    assert!(driver.apply_updates().expect("applied").wrote);
    assert_eq!((driver.refused(), driver.kernel().sets["cali40x"].1.len()), (vec![], 1));
}

#[test]
fn members_beyond_a_full_set_are_added_when_others_are_removed() {
    let mut driver = KernelSets::new(Sets::default(), IpVersion::V4, 2);
    driver.update_set("x", IpSetType::Ip, &addresses(&["10.0.0.1", "10.0.0.2"]));
    driver.apply_updates().expect("applied");
    driver.update_members("x", &addresses(&["10.0.0.3"]), &addresses(&["10.0.0.1"]));
    driver.apply_updates().expect("applied");
    assert_eq!((driver.refused(), driver.kernel().sets["cali40x"].1.len()), (vec![], 2));
}
