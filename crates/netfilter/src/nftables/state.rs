//! The known and the desired state of the table.

use super::kernel::Snapshot;
use super::layout::{FullChainName, FullMapName, full_chain, layer_of};
use crate::chains::Content;
use delta::Delta;
use messages::{InterfaceName, Text};
use netlink::netfilter::nft::{BaseChain, Element, ElementFound, Key, KeyType, RuleFound, Verdict};
use rules::hash::{COMMENT_PREFIX, RuleHash};
use rules::nftables::{Family, appended_hashes, hashes};
use rules::tree::{Rule, Table};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The desired content of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) layer: Table,
    pub(super) rules: Arc<[Rule]>,
    /// The first rule that counts as appended to one of the kernel's chains, which changes the hashes.
    pub(super) appended_from: usize,
    /// Where it is attached, if it is a base chain.
    pub(super) base: Option<BaseChain>,
}

impl Body {
    /// The hashes of its rules under this full name.
    pub(super) fn hashes(&self, family: Family, name: &str) -> Vec<RuleHash> {
        let (inserted, appended) = self.rules.split_at(self.appended_from.min(self.rules.len()));
        let mut all = hashes(self.layer, family, name, inserted);
        if !appended.is_empty() {
            all.extend(appended_hashes(self.layer, family, name, appended));
        }
        all
    }
}

/// A chain in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChainState {
    /// The hash of each rule; `None` for a rule that is not ours.
    pub(super) hashes: Vec<Option<RuleHash>>,
    /// The handle of each rule, if they were read since the last write.
    pub(super) handles: Option<Vec<u64>>,
    /// Where it is attached, in the kernel's terms. Few are.
    pub(super) base: Option<Box<(u32, i32, String)>>,
}

impl ChainState {
    /// A chain from its rules as they were read.
    pub(super) fn read<'a>(
        rules: impl Iterator<Item = &'a RuleFound>,
        base: Option<Box<(u32, i32, String)>>,
    ) -> Self {
        let (hashes, handles) = rules.map(|rule| (hash_of(rule.comment.as_deref()), rule.handle)).unzip();
        Self { hashes, handles: Some(handles), base }
    }

    /// Whether it is attached as desired.
    pub(super) fn is_at(&self, base: Option<&BaseChain>) -> bool {
        match (self.base.as_deref(), base) {
            (None, None) => true,
            (Some((hook, priority, kind)), Some(base)) => {
                (*hook, *priority, kind.as_str()) == (base.hook.number(), base.priority, base.kind.as_str())
            }
            _ => false,
        }
    }
}

/// The hash in a comment of the form `cali:hash; notes`.
fn hash_of(comment: Option<&str>) -> Option<RuleHash> {
    let text = comment?.strip_prefix(COMMENT_PREFIX)?;
    RuleHash::parse(text.split_once(';').map_or(text, |(hash, _)| hash))
}

/// A dispatch map: its desired and actual entries, and whether it exists.
#[derive(Clone, Debug, Default)]
pub(super) struct MapState {
    /// Interface and full name of the chain. An entry of another form has an empty name.
    pub(super) entries: Delta<InterfaceName, FullChainName>,
    pub(super) wanted: bool,
    pub(super) exists: bool,
    /// Whether it exists with another type of keys or values.
    pub(super) wrong: bool,
}

/// The content of the table.
#[derive(Clone, Debug, Default)]
pub(super) struct Actual {
    pub(super) chains: BTreeMap<FullChainName, ChainState>,
    pub(super) flow_table: bool,
    /// The number of rules in all chains.
    pub(super) rules: usize,
}

impl Actual {
    /// Sets the state of a chain; `None` for a removed one.
    pub(super) fn set(&mut self, name: FullChainName, chain: Option<ChainState>) {
        self.rules += chain.as_ref().map_or(0, |chain| chain.hashes.len());
        let before = match chain {
            Some(chain) => self.chains.insert(name, chain),
            None => self.chains.remove(&name),
        };
        self.rules -= before.map_or(0, |chain| chain.hashes.len());
    }

    /// Takes over a snapshot. Maps are stored in `maps`, which hold both sides.
    pub(super) fn from_snapshot(
        snapshot: &Snapshot,
        flow_table: &str,
        maps: &mut BTreeMap<FullMapName, MapState>,
    ) -> Self {
        let mut by_chain: BTreeMap<&str, Vec<&RuleFound>> = BTreeMap::new();
        for rule in &snapshot.rules {
            by_chain.entry(&rule.chain).or_default().push(rule);
        }
        let chains: BTreeMap<FullChainName, ChainState> = snapshot
            .chains
            .iter()
            .map(|chain| {
                let rules = by_chain.remove(chain.name.as_str()).unwrap_or_default();
                (
                    chain.name.as_str().into(),
                    ChainState::read(rules.into_iter(), chain.base.clone().map(Box::new)),
                )
            })
            .collect();
        for state in maps.values_mut() {
            (state.exists, state.wrong) = (false, false);
            state.entries.replace_actual([]);
        }
        for (set, elements) in &snapshot.maps {
            let state = maps.entry(set.name.as_str().into()).or_default();
            state.exists = true;
            state.wrong = set.key != Some(KeyType::InterfaceName) || set.interval;
            if !state.wrong {
                state.entries.replace_actual(elements.iter().filter_map(read_entry));
            }
        }
        maps.retain(|_, state| state.wanted || state.exists);
        let rules = chains.values().map(|chain| chain.hashes.len()).sum();
        Self { chains, flow_table: snapshot.flow_tables.iter().any(|name| name == flow_table), rules }
    }
}

fn read_entry(element: &ElementFound) -> Option<(InterfaceName, FullChainName)> {
    let (key, chain) = match element {
        ElementFound::Known(Element::Verdict(key, Verdict::Goto(chain))) => (key, chain.clone().into()),
        ElementFound::Known(Element::Verdict(key, _) | Element::Single(key) | Element::Range(key, _))
        | ElementFound::Foreign(key) => (key, "".into()),
    };
    Some((key.as_interface()?.into(), chain))
}

/// The entry of a map in the kernel's terms; `None` for an invalid interface name.
pub(super) fn entry(interface: &str, chain: &FullChainName) -> Option<Element> {
    Some(Element::Verdict(Key::interface(interface)?, Verdict::Goto(chain.text().clone())))
}

impl Content for Body {
    type Name = FullChainName;

    fn targets(&self) -> Vec<FullChainName> {
        let targets = self.rules.iter().filter_map(Rule::target);
        targets.map(|target| full_chain(self.layer, target)).collect()
    }
}

/// The layer and short name of a chain or map, for reports.
pub(super) fn short_name(name: &str) -> (Table, Text) {
    let layer = layer_of(name);
    let short = name.strip_prefix(layer.as_str()).and_then(|rest| rest.strip_prefix('-')).unwrap_or(name);
    (layer, short.into())
}

#[cfg(test)]
mod tests {
    use super::{hash_of, short_name};
    use rules::tree::Table;

    #[test]
    fn hashes_are_found_in_comments() {
        let found = |comment: &str| hash_of(Some(comment)).map(|hash| hash.to_string());
        assert_eq!(found("cali:H0S9z2pOh43UL0cc;").as_deref(), Some("H0S9z2pOh43UL0cc"));
        assert_eq!(found("cali:yp7iNUYNEhDmKF6E; Policy").as_deref(), Some("yp7iNUYNEhDmKF6E"));
        assert_eq!(found("cali:yp7iNUYNEhDmKF6E").as_deref(), Some("yp7iNUYNEhDmKF6E"));
        assert_eq!(found("cali:short; x"), None);
        assert_eq!(found("somebody else's"), None);
        assert_eq!(hash_of(None), None);
    }

    #[test]
    fn layers_are_split_from_names() {
        assert_eq!(short_name("filter-cali-INPUT"), (Table::Filter, "cali-INPUT".into()));
        assert_eq!(short_name("nat-POSTROUTING"), (Table::Nat, "POSTROUTING".into()));
    }
}
