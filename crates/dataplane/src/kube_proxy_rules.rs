//! Removes kube-proxy's leftovers in netfilter once eBPF programs serve services: its rules would translate packets
//! that programs left alone, and drop packets that Linux considers invalid.
//!
//! As in Calico, kube-proxy's chains are recognised by their names. Chains that the kubelet has too are left alone
//! (`KUBE-MARK-…`, `KUBE-POSTROUTING`, `KUBE-FIREWALL`).

use netfilter::driver::ApplyError;
use netfilter::iptables::{Backend, Commands, Driver, Programs, cleaner};
use netlink::netfilter::nft;
use rules::tree::{IpVersion, Table};
use std::collections::BTreeSet;
use std::time::Duration;

const TABLE: &str = "kube-proxy";
/// The prefixes of its chains' names.
const PREFIXES: [&str; 11] = [
    "KUBE-FORWARD",
    "KUBE-SERVICES",
    "KUBE-EXTERNAL-SERVICES",
    "KUBE-NODEPORTS",
    "KUBE-PROXY-",
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-SEP-",
    "KUBE-EXT-",
    "KUBE-FW-",
    "KUBE-XLB-",
];

fn is_proxys(chain: &str) -> bool {
    PREFIXES.iter().any(|prefix| chain.starts_with(prefix))
}

/// Removes kube-proxy's rules.
pub(crate) struct KubeProxyRules {
    nftables: Option<nft::Client>,
    iptables: Vec<Driver<Programs>>,
}

impl KubeProxyRules {
    /// A remover for these IP versions; nothing has been read yet.
    pub(crate) fn new(versions: &[IpVersion], lock: Option<Duration>) -> Self {
        let variants = [Backend::Legacy, Backend::Nft];
        let iptables = versions
            .iter()
            .flat_map(|version| variants.map(|variant| cleaner(*version, variant, lock)))
            .flatten()
            .collect();
        Self { nftables: nft::Client::open().ok(), iptables }
    }

    /// Removes all of kube-proxy's rules.
    ///
    /// # Errors
    /// When a packet filter refuses; earlier steps are done.
    pub(crate) fn remove(&mut self) -> Result<bool, ApplyError> {
        for family in [nft::Family::Ip, nft::Family::Ip6] {
            let Some(client) = &mut self.nftables else { break };
            if !client.has_chains(family, TABLE).unwrap_or_default() {
                continue;
            }
            let table = nft::Table { family, name: TABLE.into() };
            match client.commit(&table, &[nft::Change::DeleteTable])? {
                Ok(()) => tracing::info!(?family, "removed kube-proxy's table"),
                Err(refused) if refused.refused.iter().all(|(_, refusal)| refusal.is_missing()) => {}
                Err(refused) => {
                    let reason = format!("{:?}", refused.refused);
                    return Err(ApplyError::Refused { table: TABLE.to_owned(), reason });
                }
            }
        }
        for driver in &mut self.iptables {
            for table in Table::ALL {
                let failed = |failed: netfilter::iptables::CommandFailed| ApplyError::Program {
                    program: "iptables".to_owned(),
                    reason: failed.to_string(),
                };
                let saved = driver.commands().save(table).map_err(failed)?;
                if let Some(changes) = removal(table.as_str(), &saved) {
                    driver.commands().restore(&mut std::iter::once(changes)).map_err(failed)?;
                    tracing::info!(%table, "removed kube-proxy's chains");
                }
            }
        }
        Ok(true)
    }
}

/// The transaction that removes kube-proxy's chains and all jumps to them from a saved table; `None` if it has none.
fn removal(table: &str, saved: &str) -> Option<String> {
    let chains: BTreeSet<&str> = saved
        .lines()
        .filter_map(|line| line.strip_prefix(':')?.split_whitespace().next())
        .filter(|chain| is_proxys(chain))
        .collect();
    if chains.is_empty() {
        return None;
    }
    let leads_there = |words: &[&str]| {
        words.windows(2).any(|pair| ["-j", "-g"].contains(&pair[0]) && chains.contains(pair[1]))
    };
    let mut text = format!("*{table}\n");
    for rule in saved.lines().filter_map(|line| line.strip_prefix("-A ")) {
        let words: Vec<&str> = rule.split_whitespace().collect();
        if words.first().is_some_and(|chain| !chains.contains(chain)) && leads_there(&words) {
            text += &format!("-D {rule}\n");
        }
    }
    // Chains are emptied first: a chain cannot be removed while another one leads to it.
    chains.iter().for_each(|chain| text += &format!("-F {chain}\n"));
    chains.iter().for_each(|chain| text += &format!("-X {chain}\n"));
    Some(text + "COMMIT\n")
}

#[cfg(test)]
mod tests {
    use super::removal;

    #[test]
    fn kube_proxys_chains_are_removed_and_the_kubelets_stay() {
        let saved = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
                     :mine - [0:0]\n-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
                     -A PREROUTING -j mine\n-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-X\n\
                     -A KUBE-SVC-X -j KUBE-MARK-MASQ\nCOMMIT\n";
        let expected = "*nat\n-D PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
                        -F KUBE-SERVICES\n-F KUBE-SVC-X\n-X KUBE-SERVICES\n-X KUBE-SVC-X\nCOMMIT\n";
        assert_eq!(removal("nat", saved).as_deref(), Some(expected));
        assert_eq!(
            removal("nat", "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-POSTROUTING - [0:0]\nCOMMIT\n"),
            None
        );
    }
}
