//! Reads the nft variant's tables from the kernel itself: they are nftables, with our hashes in the rules' comments.
//!
//! `iptables-nft-save` converts every rule back to text, which takes seconds where there are thousands; here only the
//! comments are read. The text of rules is therefore missing. It is needed to remove our rules from foreign chains, and
//! then the program has to be run.

use super::save::{Mark, Saved, SavedRule, hash_at_start, is_ours};
use netlink::netfilter::{Result, nft};
use rules::hash::RuleHash;
use rules::tree::ChainName;
use rules::tree::{IpVersion, Table};

/// Chains by which Kubernetes marks the variant that it uses, all in the table `mangle`.
pub(super) const KUBERNETES_MARKS: [&str; 2] = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

/// The nftables table that implements a table of iptables.
pub(super) fn table(version: IpVersion, layer: Table) -> nft::Table {
    let family = match version {
        IpVersion::V4 => nft::Family::Ip,
        IpVersion::V6 => nft::Family::Ip6,
    };
    nft::Table::new(family, layer.as_str())
}

/// Reads the chains of a table and the marks of their rules; `None` where only the text of a rule can decide.
pub(super) fn look(client: &mut nft::Client, version: IpVersion, layer: Table) -> Result<Option<Saved>> {
    let table = table(version, layer);
    let names = client.chains(&table)?;
    let mut saved: Saved =
        names.iter().map(|chain| (ChainName::from(chain.name.as_str()), Vec::new())).collect();
    let mut last: Option<ChainName> = None;
    let rules = client.look_at_rules(&table, None, |rule| {
        // The rules of a chain are consecutive.
        let chain = last.take().filter(|last| **last == *rule.chain).unwrap_or_else(|| rule.chain.into());
        last = Some(chain.clone());
        Some((chain, mark_of(rule)))
    })?;
    for (chain, mark) in rules {
        let Some(mark) = mark else { return Ok(None) };
        let found = SavedRule { mark, text: None };
        match saved.get_mut(&chain) {
            Some(rules) => rules.push(found),
            None => _ = saved.insert(chain, vec![found]),
        }
    }
    Ok(Some(saved))
}

/// The mark of a rule; `None` where it could be of a version that wrote no hash.
fn mark_of(rule: nft::RuleView<'_>) -> Option<Mark> {
    if let Some(hash) = rule.comments().find_map(hash_at_start) {
        return Some(RuleHash::parse(hash).map_or(Mark::Old, Mark::Ours));
    }
    if rule.targets().any(is_ours) {
        return Some(Mark::Old);
    }
    let may_be_old = rule.chain == "POSTROUTING"
        && rule.masquerades()
        && ["set", "addrtype"].iter().any(|name| rule.has_match(name));
    (!may_be_old).then_some(Mark::Foreign)
}

/// Whether Kubernetes marked this variant as its own.
pub(super) fn has_kubernetes_marks(client: &mut nft::Client, version: IpVersion) -> Result<bool> {
    let chains = client.chains(&table(version, Table::Mangle))?;
    Ok(chains.iter().any(|chain| KUBERNETES_MARKS.iter().any(|mark| chain.name.contains(mark))))
}

/// Counts rules; stops soon after `enough`.
pub(super) fn count_rules(client: &mut nft::Client, version: IpVersion, enough: usize) -> Result<usize> {
    let mut count = 0;
    for layer in Table::ALL {
        let table = table(version, layer);
        for chain in client.chains(&table)? {
            count += client.look_at_rules(&table, Some(&chain.name), |_| Some(()))?.len();
            if count > enough {
                return Ok(count);
            }
        }
    }
    Ok(count)
}
