//! Policies that are compiled into few lookups: real packets are treated as with a chain for each policy, and a host
//! switches between the two without a moment in which neither applies.

use super::faults::{guarded, policy, under_traffic};
use super::plan::{Flavour, resource};
use super::site::Site;
use super::{random, whole_table};
use anyhow::{Result, ensure};
use api::Kind;
use serde_json::json;
use std::time::{Duration, Instant};

/// Settings for every Felix of a site.
const COMPILED: [(&str, &str); 2] =
    [("FELIX_NFTABLESPOLICYMODE", "Compiled"), ("FELIX_IPTABLESPOLICYMODE", "Compiled")];

#[test]
fn table_with_compiled_policies() -> Result<()> {
    whole_table(Flavour::Nftables, &COMPILED)
}

#[test]
fn random_compiled_policies_with_nftables() -> Result<()> {
    random::packets_and_evaluator_agree(Flavour::Nftables, &COMPILED)
}

#[test]
fn random_compiled_policies_with_iptables() -> Result<()> {
    random::packets_and_evaluator_agree(Flavour::IptablesNft, &COMPILED)
}

/// Enough rules for unions and for a tree of ports, with some denying rules between allowing ones.
fn many_rules() -> serde_json::Value {
    let mut rules = Vec::new();
    for number in 0..20 {
        let from = json!({"selector": format!("app == 'client' && number != '{number}'")});
        rules.push(
            json!({"action": "Allow", "protocol": "TCP", "source": from, "destination": {"ports": [80]}}),
        );
    }
    rules.push(json!({"action": "Deny", "protocol": "TCP", "destination": {"ports": [81]}}));
    for port in 7000..7030 {
        let from = json!({"selector": "app == 'client'"});
        rules.push(
            json!({"action": "Allow", "protocol": "TCP", "source": from, "destination": {"ports": [port]}}),
        );
    }
    rules.into()
}

/// How many chains for lists of policies and how many unions a host has.
fn compiled_parts(site: &Site, flavour: Flavour) -> Result<(usize, usize)> {
    let (chains, sets) = match flavour {
        Flavour::Nftables | Flavour::Ebpf => ("nft list chains ip", "nft list sets ip"),
        _ => ("iptables-nft-save", "ipset -n list"),
    };
    let host = site.namespace("n1");
    let [chains, sets] = [chains, sets].map(|script| host.shell(script));
    Ok((chains?.matches("cali-ci-").count(), sets?.matches("cali40u").count()))
}

/// Switches a host to compiled policies and back, by the annotation of its own configuration.
fn there_and_back(flavour: Flavour) -> Result<()> {
    let (site, questions, wanted) = guarded(flavour, &[])?;
    site.put(policy("many", 900, &many_rules())?)?;
    site.wait_for(&questions, &wanted)?;
    ensure!(compiled_parts(&site, flavour)? == (0, 0), "nothing is compiled yet");
    let configuration = resource(json!({
        "apiVersion": "projectcalico.org/v3", "kind": "FelixConfiguration",
        "metadata": {"name": "node.n1", "annotations": {
            "config.projectcalico.org/NFTablesPolicyMode": "Compiled",
            "config.projectcalico.org/IptablesPolicyMode": "Compiled"}},
        "spec": {},
    }))?;
    for compiled in [true, false] {
        under_traffic(&site, &questions, &wanted, || {
            site.end_felix("n1", false)?;
            match compiled {
                true => site.put(configuration.clone())?,
                false => site.delete(Kind::FelixConfiguration, "", "node.n1")?,
            }
            site.start_felix("n1")?;
            site.wait_until_ready("n1")?;
            let deadline = Instant::now() + Duration::from_secs(20);
            loop {
                let (chains, unions) = compiled_parts(&site, flavour)?;
                if (chains > 0, unions > 0) == (compiled, compiled) {
                    return Ok(());
                }
                ensure!(Instant::now() < deadline, "{chains} chains, {unions} unions, compiled: {compiled}");
                std::thread::sleep(Duration::from_millis(100));
            }
        })?;
        site.wait_for(&questions, &wanted)?;
    }
    Ok(())
}

#[test]
fn there_and_back_with_nftables() -> Result<()> {
    there_and_back(Flavour::Nftables)
}

#[test]
fn there_and_back_with_iptables() -> Result<()> {
    there_and_back(Flavour::IptablesNft)
}
