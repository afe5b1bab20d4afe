//! Networking other than policy: address translation for outgoing packets, tunnels, and addresses that move.

use super::plan::{Flavour, Plan, PodPlan, endpoint, resource};
use super::site::Site;
use super::table::question;
use super::yaml;
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::net::IpAddr;
use std::time::Duration;
use testkit::network::Fate;

const PATIENCE: Duration = Duration::from_secs(2);

/// The source address that the receiver sees.
fn seen(site: &Site, line: &str) -> Result<IpAddr> {
    let questions = question(line)?;
    site.wait_for(&questions, &vec![true; questions.len()])?;
    match site.fates(&questions, &[true], PATIENCE)?.first() {
        Some(Fate::Answered(Some(address))) => Ok(*address),
        other => anyhow::bail!("{line}: {other:?}"),
    }
}

fn expect_seen(site: &Site, line: &str, address: &str) -> Result<()> {
    let found = seen(site, line)?;
    ensure!(found == address.parse::<IpAddr>()?, "{line}: the receiver sees {found}, not {address}");
    Ok(())
}

/// How many packets of each kind the router has seen since counting began.
fn count(site: &Site, what: &str) -> Result<u64> {
    let text = site.namespace("wan").shell(&format!("nft -j list counter inet watch {what}"))?;
    let parsed: serde_json::Value = serde_json::from_str(&text)?;
    let counters = parsed["nftables"].as_array().context("a list")?;
    counters.iter().find_map(|one| one["counter"]["packets"].as_u64()).context("a counter")
}

/// Counters at the router for tunnels and for unencapsulated packets of pods. Bridged packets do not pass its rules, so
/// those of the first subnet are counted at the bridge.
const WATCH: &str = "table inet watch {
    counter tunnelled { }
    counter plain { }
    chain forward {
        type filter hook forward priority 0;
        udp dport 4789 counter name tunnelled
        ip saddr 172.20.0.0/16 ip daddr 172.20.0.0/16 counter name plain
        ip6 saddr fd00:20::/48 ip6 daddr fd00:20::/48 counter name plain
    }
}
";

/// The interface through which a host sends to an address.
fn way(site: &Site, node: &str, address: IpAddr) -> Result<String> {
    let text = site.namespace(node).shell(&format!("ip route get {address}"))?;
    let mut words = text.split_whitespace().skip_while(|word| *word != "dev").skip(1);
    words.next().map(str::to_owned).with_context(|| format!("a way: {text}"))
}

fn until(site: &Site, what: &str, done: impl FnMut() -> Result<bool>) -> Result<()> {
    testkit::eventually(what, done).inspect_err(|_| site.hold())
}

fn tunnels_and_translation(flavour: Flavour) -> Result<()> {
    let mut site = Site::start(&Plan::two_subnets(true), flavour)?;
    site.namespace("wan").feed("nft -f -", WATCH)?;
    // Between pods nothing is translated; outside the pods' networks they have their host's address.
    expect_seen(&site, "a o1 udp/53 v4", "10.65.1.1")?;
    expect_seen(&site, "a n2 udp/53 v4", "10.65.1.1")?;
    expect_seen(&site, "a b udp/53 v4", "172.20.1.2")?;
    expect_seen(&site, "a d udp/53 v4", "172.20.1.2")?;
    expect_seen(&site, "a o1 udp/53 v6", "fd00:20::1:2")?;
    expect_seen(&site, "a d udp/53 v6", "fd00:20::1:2")?;
    // A host reaches pods of other hosts through the tunnel, with its tunnel address as source.
    expect_seen(&site, "n1 d udp/53 v4", "172.20.1.0")?;
    expect_seen(&site, "n1 d udp/53 v6", "fd00:20::1:0")?;
    ensure!(count(&site, "tunnelled")? > 0, "nothing went through a tunnel");
    ensure!(count(&site, "plain")? == 0, "pods' packets were seen outside of tunnels");
    for (v6, device) in [(false, "vxlan.calico"), (true, "vxlan-v6.calico")] {
        for pod in ["d", "f"] {
            let found = way(&site, "n1", site.address(pod, v6))?;
            ensure!(found == device, "n1 sends to {pod} by {found}");
        }
    }
    // Tunnels only where there is a router in between.
    for mode in ["CrossSubnet", "Always", "CrossSubnet"] {
        for pool in yaml::documents(include_str!("cases/base.yaml")).into_iter().take(2) {
            let mut pool = pool;
            pool["spec"]["vxlanMode"] = json!(mode);
            site.put(resource(pool)?)?;
        }
        for (v6, device) in [(false, "vxlan.calico"), (true, "vxlan-v6.calico")] {
            let near = if mode == "Always" { device } else { "eth0" };
            until(&site, "the way to the neighbour's pod", || {
                Ok(way(&site, "n1", site.address("f", v6))? == near)
            })?;
            until(&site, "the way back", || Ok(way(&site, "n3", site.address("a", v6))? == near))?;
            ensure!(way(&site, "n1", site.address("d", v6))? == device);
        }
        expect_seen(&site, "a f udp/53 v4", "172.20.1.2")?;
        expect_seen(&site, "f a udp/53 v6", "fd00:20::3:2")?;
        expect_seen(&site, "d f udp/53 v4", "172.20.2.2")?;
    }
    address_is_used_again(&mut site)
}

/// A pod is removed, and another one with different labels gets its address: on the same host, then on another.
fn address_is_used_again(site: &mut Site) -> Result<()> {
    let policy = json!({
        "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy", "metadata": {"name": "labels"},
        "spec": {"selector": "app == 'web'", "types": ["Ingress"],
                 "ingress": [{"action": "Allow", "source": {"selector": "app == 'client'"}}]},
    });
    site.put(resource(policy)?)?;
    let both = |answer: bool| -> Result<(Vec<_>, Vec<bool>)> {
        let mut questions = question("b a tcp/80")?;
        questions.extend(question("b e udp/53")?);
        let answers = vec![answer; questions.len()];
        Ok((questions, answers))
    };
    let (questions, allowed) = both(true)?;
    site.wait_for(&questions, &allowed)?;
    let old = site.plan.pods.iter().find(|pod| pod.name == "b").context("pod b")?.clone();
    let connections = |site: &Site, node: &str| {
        site.namespace(node).shell("conntrack -L -s 172.20.1.3 2>/dev/null | wc -l")
    };
    ensure!(connections(site, "n1")?.trim() != "0", "there is no connection to forget");
    // The endpoint's object is removed first, as the plugin does.
    let name = "n1-k8s-b-eth0";
    site.delete(api::Kind::WorkloadEndpoint, "red", name)?;
    site.unwire_pod("b");
    until(site, "connections of the address are forgotten", || Ok(connections(site, "n1")?.trim() == "0"))?;
    let same_host = PodPlan { interface: model::names::interface_name("cali", "red", "g"), ..old.clone() };
    site.wire_pod(&same_host)?;
    site.put(resource(endpoint(&same_host, "red", &[("app", "stranger")], &json!([]), ""))?)?;
    let (questions, denied) = both(false)?;
    site.wait_for(&questions, &denied)?;
    let others = question("b c tcp/80")?;
    site.wait_for(&others, &[true, true])?;
    // The same name and address on another host: borrowed from the first host's block.
    site.delete(api::Kind::WorkloadEndpoint, "red", name)?;
    site.unwire_pod("b");
    let other_host = PodPlan { node: "n2".to_owned(), ..old };
    site.wire_pod(&other_host)?;
    site.runtime.block_on(async {
        let ipam = ipam::Ipam::new(std::sync::Arc::clone(site.client().backend()));
        for address in [&other_host.v4, &other_host.v6] {
            ipam.release_by_handle(&format!("test.{address}").into()).await?;
            let wish = ipam::AssignIp {
                handle: Some(format!("test.{address}").into()),
                // The record of a borrower in a block.
                attributes: [("node".to_owned(), "n2".to_owned())].into(),
                ..ipam::AssignIp::new(address.parse()?, "n2")
            };
            ipam.assign_ip(&wish).await?;
        }
        anyhow::Ok(())
    })?;
    site.put(resource(endpoint(&other_host, "red", &[("app", "client")], &json!([]), ""))?)?;
    let mut questions = question("b a tcp/80")?;
    questions.extend(question("b e udp/53")?);
    questions.extend(question("c b icmp/8")?);
    site.wait_for(&questions, &vec![true; questions.len()])
}

#[test]
fn tunnels_translation_and_moving_addresses_with_nftables() -> Result<()> {
    tunnels_and_translation(Flavour::Nftables)
}

#[test]
fn tunnels_translation_and_moving_addresses_with_iptables() -> Result<()> {
    tunnels_and_translation(Flavour::IptablesNft)
}

/// Restrictions independent of policy: pods cannot send from foreign addresses or create tunnels of their own, and
/// reach their own host only if the setting allows it; and only hosts send to tunnels.
fn guards(flavour: Flavour) -> Result<()> {
    let settings = [("FELIX_DEFAULTENDPOINTTOHOSTACTION", "DROP"), ("FELIX_WORKLOADSOURCESPOOFING", "Any")];
    let site = Site::without_agents(&Plan::two_subnets(false), flavour, &settings)?;
    // Pod c may send from a network of its own.
    let pod = site.plan.pods.iter().find(|pod| pod.name == "c").context("pod c")?;
    let mut free = endpoint(pod, "blue", &[("app", "client")], &json!([]), "sa1");
    free["spec"]["allowSpoofedSourcePrefixes"] = json!(["198.51.100.0/24", "2001:db8:51::/64"]);
    site.put(resource(free)?)?;
    for pod in ["a", "c"] {
        site.namespace(pod).batch(
            "addr add 198.51.100.7/32 dev lo\naddr add 2001:db8:51::7/128 dev lo nodad
addr add 172.20.1.99/32 dev lo\naddr add fd00:20::1:99/128 dev lo nodad",
        )?;
    }
    site.start_agents()?;
    let (mut questions, mut wanted) = (Vec::new(), Vec::new());
    for (line, source, answer) in [
        ("a n1 tcp/80", None, false),
        ("b n1 icmp/8", None, false),
        ("a n2 tcp/80", None, true),
        ("a b tcp/80", None, true),
        ("a n2 udp/4789", None, false),
        ("a e udp/4789", None, false),
        ("o1 n1 udp/4789", None, false),
        ("o1 a udp/5000", None, true),
        ("a b udp/80 v4", Some("198.51.100.7"), false),
        ("a b udp/80 v6", Some("2001:db8:51::7"), false),
        ("a b udp/80 v4", Some("172.20.1.99"), false),
        ("a b udp/80 v6", Some("fd00:20::1:99"), false),
        ("c b udp/80 v4", Some("172.20.1.99"), false),
        ("c b udp/80 v6", Some("fd00:20::1:99"), false),
        ("c b udp/80 v4", Some("198.51.100.7"), true),
        ("c b udp/80 v6", Some("2001:db8:51::7"), true),
        ("c b tcp/80", None, true),
    ] {
        for mut asked in question(line)? {
            asked.source = source.map(str::parse).transpose()?;
            questions.push(asked);
            wanted.push(answer);
        }
    }
    // There is no return path to an address without a route.
    site.wait_for_one_way(&questions, &wanted)
}

#[test]
fn guards_with_nftables() -> Result<()> {
    guards(Flavour::Nftables)
}

#[test]
fn guards_with_iptables() -> Result<()> {
    guards(Flavour::IptablesNft)
}
