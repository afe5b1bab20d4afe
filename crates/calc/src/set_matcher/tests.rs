//! One set and one item at a time; the integration tests compare whole worlds with a recomputation.

use super::{Output, SetMatcher};
use crate::members::Members;
use crate::population::{ItemKey, Population, pack_network_set};
use crate::sequencer::{IpSets, MemberSource as _, SetIndex};
use messages::{IpSetType, ProfileName};
use model::feed::NetworkSet;
use selector::Selector;
use std::collections::BTreeMap;

#[derive(Default)]
struct Fixture {
    population: Population,
    matcher: SetMatcher,
    members: Members,
    told: IpSets,
}

fn map(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

impl Fixture {
    fn open(&mut self, set: u32, selector: &str) {
        let set = SetIndex(set);
        self.members.open(set, IpSetType::Net, false);
        self.told.add(set, set.0.to_string().into(), IpSetType::Net);
        let mut output = Output { members: &mut self.members, told: &mut self.told };
        self.matcher.open(set, &Selector::parse(selector).unwrap(), None, &mut self.population, &mut output);
    }

    fn put(&mut self, name: &str, net: &str, labels: &[(&str, &str)], profiles: &[&str]) {
        let set = NetworkSet { nets: vec![net.parse().unwrap()], ..NetworkSet::default() };
        let mut packed = Vec::new();
        pack_network_set(&set, &mut packed);
        let profiles: Vec<ProfileName> = profiles.iter().map(|name| ProfileName::from(*name)).collect();
        let put = self.population.put(&ItemKey::NetworkSet { name }, &map(labels).into(), &profiles, &packed);
        let mut output = Output { members: &mut self.members, told: &mut self.told };
        self.matcher.put(put, &mut self.population, &mut output);
    }

    fn profile(&mut self, name: &str, labels: &[(&str, &str)]) {
        let parent = self.population.get_or_add_parent(&name.into());
        if let Some(before) = self.population.set_parent_labels(parent, &map(labels)) {
            let mut output = Output { members: &mut self.members, told: &mut self.told };
            self.matcher.parent_changed(parent, before, &mut self.population, &mut output);
        }
    }

    fn members(&self, set: u32) -> String {
        self.members.members(SetIndex(set)).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn members_follow_labels_profiles_and_selectors() {
    let mut it = Fixture::default();
    it.put("a", "10.0.0.0/24", &[("app", "web")], &["p"]);
    it.open(0, "app == 'web'");
    it.open(1, "ns == 'n'");
    it.open(2, "!has(app)");
    it.put("b", "10.0.1.0/24", &[], &["p"]);
    assert_eq!([it.members(0), it.members(1), it.members(2)], ["10.0.0.0/24", "", "10.0.1.0/24"]);
    it.profile("p", &[("ns", "n"), ("app", "from profile")]);
    assert_eq!([it.members(0), it.members(1), it.members(2)], ["10.0.0.0/24", "10.0.0.0/24 10.0.1.0/24", ""]);
    it.put("a", "10.0.7.0/24", &[], &["p"]);
    assert_eq!([it.members(0), it.members(1)], ["", "10.0.1.0/24 10.0.7.0/24"]);
    it.profile("p", &[("app", "web")]);
    assert_eq!([it.members(0), it.members(1)], ["10.0.1.0/24 10.0.7.0/24", ""]);
    it.matcher.close(SetIndex(0), &mut it.population);
    it.members.close(SetIndex(0));
    it.open(3, "app == 'web'");
    assert_eq!(it.members(3), "10.0.1.0/24 10.0.7.0/24");
    let (optimized, unoptimized) = it.matcher.selector_counts();
    assert_eq!((optimized, unoptimized), (2, 1), "one selector demands nothing that could be looked up");
}
