//! eBPF programs: the table of cases, random policies, and the treatment of packets while programs are loaded and
//! removed.

use super::faults::{guarded, policy, under_traffic};
use super::plan::Flavour;
use super::site::Site;
use super::{host_cases, random, try_cases, workload_cases};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Cases with two kinds of ICMP between the same two pods: programs identify such packets only by their two ends, as in
/// Calico, so an allowed packet lets the other through.
const SAME_ENDS: [&str; 3] =
    ["types of ICMP", "a code of ICMP that is another", "types of ICMP that a rule excludes"];

#[test]
fn table_of_workloads_with_ebpf() -> Result<()> {
    let mut cases = workload_cases()?;
    let all = cases.len();
    cases.retain(|case| !SAME_ENDS.contains(&case.name()));
    ensure!(cases.len() + SAME_ENDS.len() == all, "a case has another name");
    try_cases(cases, Flavour::Ebpf, &[])
}

#[test]
fn table_of_hosts_with_ebpf() -> Result<()> {
    try_cases(host_cases()?, Flavour::Ebpf, &[])
}

#[test]
fn random_policies_with_ebpf() -> Result<()> {
    random::packets_and_evaluator_agree(Flavour::Ebpf, &[])
}

#[test]
fn random_policies_with_ebpf_and_iptables() -> Result<()> {
    random::packets_and_evaluator_agree(Flavour::EbpfIptables, &[])
}

/// A connection between two pods that stays open.
struct Held {
    ends: [TcpStream; 2],
}

impl Held {
    const PORT: u16 = 5050;

    fn open(site: &Site, from: &str, to: &str) -> Result<Self> {
        let rules = json!([{"action": "Allow", "protocol": "TCP", "destination": {"ports": [Self::PORT]}}]);
        site.put(policy("held", 10, &rules)?)?;
        let target = SocketAddr::new(site.address(to, false), Self::PORT);
        let listener = site.namespace(to).run(|| TcpListener::bind(target))??;
        listener.set_nonblocking(true)?;
        let client = testkit::eventually("a connection that policy allows", || {
            let moment = std::time::Duration::from_millis(500);
            site.namespace(from).run(|| TcpStream::connect_timeout(&target, moment)).ok()?.ok()
        })?;
        let (server, _) = testkit::eventually("the connection to arrive", || listener.accept().ok())?;
        server.set_nonblocking(false)?;
        for end in [&client, &server] {
            end.set_read_timeout(Some(testkit::PATIENCE))?;
        }
        Ok(Self { ends: [client, server] })
    }

    /// Sends a word in each direction.
    fn talk(&self, when: &str) -> Result<()> {
        let [client, server] = &self.ends;
        let mut word = [0; 4];
        for (mut from, mut to) in [(client, server), (server, client)] {
            from.write_all(b"ping").with_context(|| format!("{when}: the connection is cut"))?;
            to.read_exact(&mut word).with_context(|| format!("{when}: the connection is cut"))?;
            ensure!(&word == b"ping");
        }
        Ok(())
    }
}

/// Switches from rules to programs and back, with Felix ending in both ways in the meantime: no denied packet passes,
/// connections survive, and nothing of the programs is left.
#[test]
fn there_and_back() -> Result<()> {
    let (site, questions, wanted) = guarded(Flavour::Nftables, &[])?;
    let held = Held::open(&site, "b", "a")?;
    held.talk("before")?;
    for (flavour, kill) in [
        (Flavour::Ebpf, false),
        (Flavour::Ebpf, true),
        (Flavour::EbpfIptables, true),
        (Flavour::Nftables, true),
    ] {
        under_traffic(&site, &questions, &wanted, || {
            site.end_felix("n1", kill)?;
            site.start_felix_as("n1", flavour)?;
            site.wait_until_ready("n1")?;
            held.talk("afterwards")?;
            let has_programs = || site.pins("n1").iter().any(|pin| pin.ends_with("bpfp_row"));
            testkit::eventually("programs to come or to go", || has_programs() == flavour.has_programs())
        })
        .with_context(|| format!("on the way to {flavour:?}"))?;
    }
    testkit::eventually("programs and maps to go", || site.pins("n1").is_empty())?;
    let left = site.namespace("n1").shell("tc qdisc show | grep clsact || true")?;
    ensure!(left.is_empty(), "{left}");
    site.wait_for(&questions, &wanted)
}

/// While no Felix is running, programs judge packets by the tables as they were left.
#[test]
fn programs_judge_without_felix() -> Result<()> {
    let (site, questions, wanted) = guarded(Flavour::Ebpf, &[])?;
    let held = Held::open(&site, "b", "a")?;
    under_traffic(&site, &questions, &wanted, || {
        site.end_felix("n1", true)?;
        site.end_felix("n2", false)?;
        for _ in 0..5 {
            held.talk("without Felix")?;
            site.wait_for(&questions, &wanted)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// A node whose settings request an unsupported feature is not ready, and reports the feature.
#[test]
fn unsupported_settings_are_named() -> Result<()> {
    let (site, ..) = guarded(Flavour::Nftables, &[("FELIX_BPFLOGFILTERS", "all=vlan 5")])?;
    site.end_felix("n1", false)?;
    site.start_felix_as("n1", Flavour::Ebpf)?;
    let reason = "BPFLogFilters requires something that is not supported yet";
    testkit::eventually("the reason in the node's readiness", || {
        site.ask("n1", 9099, "/readiness").is_ok_and(|page| page.contains("503") && page.contains(reason))
    })
    .with_context(|| format!("{:?}\n{}", site.ask("n1", 9099, "/readiness"), site.felix_log("n1")))?;
    Ok(())
}

/// A rule that logs writes a line into Felix's log, which names the deciding rule.
#[test]
fn rules_that_log_write_lines() -> Result<()> {
    let (site, ..) = guarded(Flavour::Ebpf, &[])?;
    let web = json!({"ports": [83]});
    site.put(policy(
        "logs",
        10,
        &json!([{"action": "Log", "protocol": "TCP", "destination": web}, {"action": "Deny", "protocol": "TCP", "destination": web}]),
    )?)?;
    let asked = super::table::question("b a tcp/83 v4")?;
    let parts = ["calico-packet OUT=cali", "PROTO=TCP", "DPT=83 denied by DPI1|gnp/"];
    testkit::eventually("a line about a packet", || -> Result<bool> {
        site.wait_for(&asked, &[false])?;
        Ok(site.felix_log("n1").lines().any(|line| parts.iter().all(|part| line.contains(part))))
    })
    .with_context(|| site.felix_log("n1"))
}
