//! Real packets between real hosts and pods, with each packet filter. Needs root.
//!
//! One table of cases (`packets/cases`) is tested with nftables, iptables over nftables, and legacy iptables; random
//! policies are compared with the evaluator; and a site is disturbed in realistic ways.

#[path = "../../../explain/tests/it/clusters.rs"]
mod clusters;
mod compiled;
mod ebpf;
mod faults;
mod flows;
mod network;
pub(crate) mod plan;
mod random;
pub(crate) mod site;
pub(crate) mod table;
#[path = "../../../explain/tests/it/yaml.rs"]
pub(crate) mod yaml;

use anyhow::Result;
use plan::Flavour;

/// `extra` are additional variables for every Felix.
fn whole_table(flavour: Flavour, extra: &[(&str, &str)]) -> Result<()> {
    let mut cases = workload_cases()?;
    cases.extend(host_cases()?);
    try_cases(cases, flavour, extra)
}

/// The cases that are about workloads.
fn workload_cases() -> Result<Vec<table::Case>> {
    let mut cases = table::cases(include_str!("packets/cases/kubernetes.yaml"))?;
    cases.extend(table::cases(include_str!("packets/cases/calico.yaml"))?);
    Ok(cases)
}

/// The cases about hosts.
fn host_cases() -> Result<Vec<table::Case>> {
    table::cases(include_str!("packets/cases/hosts.yaml"))
}

fn try_cases(mut cases: Vec<table::Case>, flavour: Flavour, extra: &[(&str, &str)]) -> Result<()> {
    // A single case, for debugging.
    if let Ok(wanted) = std::env::var("TORTIE_PACKET_CASE") {
        cases.retain(|case| case.name().contains(&wanted));
        anyhow::ensure!(!cases.is_empty(), "no case is called '{wanted}'");
    }
    let site = table::site(flavour, extra)?;
    let before = table::strangers(&site)?;
    table::run(&site, &cases)?;
    let after = table::strangers(&site)?;
    anyhow::ensure!(before == after, "what others have was changed:\n{before}\nis now\n{after}");
    Ok(())
}

#[test]
fn table_with_nftables() -> Result<()> {
    whole_table(Flavour::Nftables, &[])
}

#[test]
fn table_with_iptables() -> Result<()> {
    whole_table(Flavour::IptablesNft, &[])
}

#[test]
fn table_with_legacy_iptables() -> Result<()> {
    whole_table(Flavour::IptablesLegacy, &[])
}
