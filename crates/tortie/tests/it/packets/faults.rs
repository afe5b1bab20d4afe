//! Disturbances under traffic: killed agents, other programs clearing the packet filter, flapping links, a store that
//! becomes unreachable, and a thousand endpoints.
//!
//! During a disturbance two things are checked continuously: allowed packets arrive and are answered, every one of
//! them, and no denied packet arrives.

use super::plan::{Flavour, Plan, PodPlan, endpoint, resource};
use super::site::{Question, Site};
use super::table::question;
use anyhow::{Result, ensure};
use serde_json::json;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testkit::network::Fate;

/// How long an answer may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn policy(name: &str, order: u32, rules: &serde_json::Value) -> Result<api::Resource> {
    resource(json!({
        "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkPolicy", "metadata": {"name": name},
        "spec": {"selector": "app == 'web'", "order": order, "types": ["Ingress"], "ingress": rules},
    }))
}

/// The invariant: clients reach web servers on port 80 and nothing else.
pub(super) fn guarded(flavour: Flavour, extra: &[(&str, &str)]) -> Result<(Site, Vec<Question>, Vec<bool>)> {
    let site = Site::without_agents(&Plan::two_subnets(false), flavour, extra)?;
    let rules = json!([{"action": "Allow", "protocol": "TCP", "source": {"selector": "app == 'client'"}, "destination": {"ports": [80]}},
                       {"action": "Allow", "protocol": "UDP", "source": {"selector": "app == 'client'"}, "destination": {"ports": [80]}}]);
    site.put(policy("guard", 1000, &rules)?)?;
    site.start_agents()?;
    let (mut questions, mut wanted) = (Vec::new(), Vec::new());
    for (lines, answer) in [
        (["b a tcp/80", "d a udp/80", "c e tcp/80", "b e udp/80"], true),
        (["b a tcp/81", "d a udp/53", "c e icmp/8", "o1 a tcp/80"], false),
    ] {
        for line in lines {
            let asked = question(line)?;
            wanted.extend(asked.iter().map(|_| answer));
            questions.extend(asked);
        }
    }
    site.wait_for(&questions, &wanted)?;
    Ok((site, questions, wanted))
}

/// Disturbs while packets are sent; returns how many rounds of packets there were. Every packet must have the wanted
/// fate.
pub(super) fn under_traffic(
    site: &Site,
    questions: &[Question],
    wanted: &[bool],
    disturb: impl FnOnce() -> Result<()>,
) -> Result<usize> {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| -> Result<usize> {
            let mut rounds = 0;
            while !ended.load(Ordering::Relaxed) {
                let fates = site.fates(questions, wanted, PATIENCE)?;
                for ((question, wanted), fate) in questions.iter().zip(wanted).zip(fates) {
                    let is_right =
                        if *wanted { fate.is_through(question.traffic) } else { fate == Fate::Lost };
                    ensure!(is_right, "round {rounds}: {question}: {fate:?}, expected {wanted}");
                }
                rounds += 1;
            }
            Ok(rounds)
        });
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(disturb));
        ended.store(true, Ordering::Relaxed);
        let outcome = outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let rounds = watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        outcome?;
        ensure!(rounds > 0, "no packet was sent meanwhile");
        Ok(rounds)
    })
}

/// Changes policies that affect all chains of the guarded pods, and their sets.
fn churn(site: &Site, round: u32) -> Result<()> {
    for number in 0..12 {
        let port = 6000 + round * 20 + number;
        let rules = json!([{"action": "Deny", "protocol": "TCP", "destination": {"ports": [port]},
                            "source": {"selector": format!("app == 'client' && number != '{}'", number % 5 + round)}},
                           {"action": "Pass", "protocol": "SCTP"}]);
        site.put(policy(&format!("churn{number}"), 10 + number, &rules)?)?;
    }
    Ok(())
}

fn killed_while_it_works(flavour: Flavour) -> Result<()> {
    let (site, questions, wanted) = guarded(flavour, &[])?;
    under_traffic(&site, &questions, &wanted, || {
        for round in 0..6 {
            churn(&site, round)?;
            // At some point between the first and the last write of these changes.
            std::thread::sleep(Duration::from_millis(u64::from(round) * 17));
            site.end_felix("n1", true)?;
            site.start_felix("n1")?;
            if round % 2 == 0 {
                // A start is interrupted, too.
                std::thread::sleep(Duration::from_millis(60 + u64::from(round) * 40));
                site.end_felix("n1", true)?;
                site.start_felix("n1")?;
            }
            site.wait_until_ready("n1")?;
        }
        Ok(())
    })?;
    for number in 0..12 {
        site.delete(api::Kind::GlobalNetworkPolicy, "", &format!("churn{number}"))?;
    }
    site.wait_for(&questions, &wanted)
}

#[test]
fn killed_while_it_works_with_nftables() -> Result<()> {
    killed_while_it_works(Flavour::Nftables)
}

#[test]
fn killed_while_it_works_with_iptables() -> Result<()> {
    killed_while_it_works(Flavour::IptablesNft)
}

#[test]
fn killed_while_it_works_with_ebpf() -> Result<()> {
    killed_while_it_works(Flavour::Ebpf)
}

/// The state of a host's kernel, including the numbers that change when an object is created again.
fn kernel_state(site: &Site, node: &str) -> Result<String> {
    // Counters, and addresses of learning devices, change by themselves.
    site.namespace(node).shell(
        "nft -a -s list ruleset; (iptables-legacy-save; ip6tables-legacy-save) | grep '^-' || true; ipset save | sort; ip -4 route show table all; ip -6 route show table all | grep -v expires; \
         ip rule; ip -6 rule; bridge fdb show | grep -v 'self permanent.*33:33'; ip -d link show type vxlan; ip -o addr show",
    )
}

/// The kernel's state once it no longer changes: deferred work, such as removing unused objects, is done.
fn settled(site: &Site, node: &str) -> Result<String> {
    let (mut last, mut looks) = (String::new(), 0);
    testkit::eventually("the kernel's state stays as it is", || {
        let now = kernel_state(site, node)?;
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        std::thread::sleep(Duration::from_millis(200));
        Ok(looks == 4)
    })?;
    Ok(last)
}

/// A Felix that restarts on a host where nothing has changed writes nothing, whether it was terminated or killed.
fn restart_without_writes(flavour: Flavour) -> Result<()> {
    let (site, questions, wanted) = guarded(flavour, &[])?;
    churn(&site, 1)?;
    let marker = question("b a sctp/80")?;
    // The churn passes SCTP on to the profiles, which allow it.
    site.wait_for(&marker, &[true, true])?;
    site.wait_for(&questions, &wanted)?;
    for kill in [false, true] {
        let before = settled(&site, "n1")?;
        under_traffic(&site, &questions, &wanted, || {
            site.end_felix("n1", kill)?;
            site.start_felix("n1")?;
            site.wait_until_ready("n1")
        })?;
        let after = settled(&site, "n1")?;
        if before != after {
            let old: std::collections::BTreeSet<&str> = before.lines().collect();
            let new: std::collections::BTreeSet<&str> = after.lines().collect();
            let gone: Vec<&&str> = old.difference(&new).take(20).collect();
            let come: Vec<&&str> = new.difference(&old).take(20).collect();
            anyhow::bail!("the restart changed the kernel: gone {gone:#?}, come {come:#?}");
        }
    }
    Ok(())
}

#[test]
fn restart_without_writes_with_nftables() -> Result<()> {
    restart_without_writes(Flavour::Nftables)
}

#[test]
fn restart_without_writes_with_iptables() -> Result<()> {
    restart_without_writes(Flavour::IptablesNft)
}

#[test]
fn restart_without_writes_with_ebpf() -> Result<()> {
    restart_without_writes(Flavour::Ebpf)
}

#[test]
fn restart_without_writes_with_legacy_iptables() -> Result<()> {
    restart_without_writes(Flavour::IptablesLegacy)
}

/// Other programs, links, and the store, in turn on one site.
fn disturbed(flavour: Flavour) -> Result<()> {
    // Where the kernel does not report changes by others, only periodic refreshes find them.
    let look_again = [
        ("FELIX_ROUTEREFRESHINTERVAL", "1"),
        ("FELIX_IPTABLESREFRESHINTERVAL", "1"),
        ("FELIX_IPSETSREFRESHINTERVAL", "1"),
    ];
    let extra = if flavour == Flavour::Nftables { &look_again[..1] } else { &look_again[..] };
    let (site, questions, wanted) = guarded(flavour, extra)?;
    let strangers = match flavour {
        Flavour::Nftables => vec![
            "nft flush ruleset",
            "nft delete table ip calico",
            "nft flush table ip calico; nft flush table ip6 calico",
            "for s in $(nft list sets ip | sed -n 's/.*set \\(cali40s[^ ]*\\) .*/\\1/p'); do nft flush set ip calico $s; done",
            "nft flush chain ip calico filter-cali-FORWARD; nft add rule ip calico filter-cali-FORWARD accept",
            "nft insert rule ip calico filter-cali-tw-$(ip -o link | sed -n 's/.*cali\\([0-9a-f]*\\)@.*/cali\\1/p' | head -1) accept",
        ],
        _ => vec![
            "iptables -F; ip6tables -F",
            // Felix may already be back between the two, and then chains are in use.
            "iptables -F; iptables -X || true; ip6tables -F; ip6tables -X || true",
            "iptables -D FORWARD 1",
            "iptables -I cali-FORWARD 1 -j ACCEPT",
            "iptables -P FORWARD ACCEPT; iptables -I FORWARD 1 -j ACCEPT; iptables -I FORWARD 1 -m comment --comment cali:wUHhoiAYhphO9Mso -j ACCEPT; iptables -D FORWARD 2",
            "for s in $(ipset -n list); do ipset flush $s; done",
            "iptables -F; ip6tables -F; iptables -t raw -F; ip6tables -t raw -F; iptables -t mangle -F; ip6tables -t mangle -F; iptables -t nat -F; ip6tables -t nat -F; sleep 0.02; ipset destroy || true",
        ],
    };
    let save = if flavour == Flavour::IptablesLegacy { "iptables-legacy" } else { "iptables-nft" };
    for script in strangers {
        let script = script
            .replace("ip6tables ", &format!("{} ", save.replace("iptables", "ip6tables")))
            .replace("iptables -", &format!("{save} -"));
        site.namespace("n1").shell(&script)?;
        site.wait_for(&questions, &wanted).map_err(|error| error.context(format!("after `{script}`")))?;
    }
    wires(&site, &questions, &wanted)?;
    store_is_away(&site, &questions, &wanted)
}

fn wires(site: &Site, questions: &[Question], wanted: &[bool]) -> Result<()> {
    let node = site.namespace("n1");
    let pod =
        |name: &str| site.plan.pods.iter().find(|pod| pod.name == name).expect("a pod").interface.clone();
    let (a, b) = (pod("a"), pod("b"));
    for _ in 0..5 {
        node.batch(&format!("link set {a} down\nlink set {b} down\nlink set {a} up\nlink set {b} up"))?;
    }
    site.wait_for(questions, wanted).map_err(|error| error.context("after wires flapped"))?;
    // Routes and neighbours are removed by another program.
    let v4 = site.address("a", false);
    node.shell(&format!(
        "ip route del {v4}; ip neigh flush dev {a}; ip -6 route del {}",
        site.address("a", true)
    ))?;
    site.wait_for(questions, wanted).map_err(|error| error.context("after a route was removed"))?;
    node.shell("ip link del vxlan.calico")?;
    site.wait_for(questions, wanted).map_err(|error| error.context("after the tunnel device was removed"))?;
    for script in [
        "ip link set vxlan.calico down",
        "ip -6 addr flush dev vxlan-v6.calico scope global; ip addr flush dev vxlan.calico",
        "ip neigh flush dev vxlan.calico; ip neigh flush nud permanent dev vxlan.calico",
        "bridge fdb show dev vxlan.calico | awk '{print $1}' | xargs -I% bridge fdb del % dev vxlan.calico",
    ] {
        node.shell(script)?;
        site.wait_for(questions, wanted).map_err(|error| error.context(format!("after `{script}`")))?;
    }
    Ok(())
}

/// While the store is unreachable everything stays as it is; later changes are applied.
fn store_is_away(site: &Site, questions: &[Question], wanted: &[bool]) -> Result<()> {
    under_traffic(site, questions, wanted, || {
        site.kill_store()?;
        std::thread::sleep(Duration::from_millis(2500));
        site.restart_store()?;
        site.wait_until_ready("n1")?;
        site.wait_until_ready("n2")
    })?;
    let rules =
        json!([{"action": "Deny", "protocol": "TCP", "destination": {"ports": [80]}}, {"action": "Allow"}]);
    site.put(policy("late", 1, &rules)?)?;
    let mut asked = question("b a tcp/80")?;
    asked.extend(question("c e tcp/80")?);
    asked.extend(question("b a tcp/81")?);
    asked.extend(question("o1 a icmp/8")?);
    site.wait_for(&asked, &[false, false, false, false, true, true, true, true])?;
    site.delete(api::Kind::GlobalNetworkPolicy, "", "late")?;
    site.wait_for(questions, wanted)
}

#[test]
fn disturbed_with_nftables() -> Result<()> {
    disturbed(Flavour::Nftables)
}

#[test]
fn disturbed_with_iptables() -> Result<()> {
    disturbed(Flavour::IptablesNft)
}

#[test]
fn disturbed_with_legacy_iptables() -> Result<()> {
    disturbed(Flavour::IptablesLegacy)
}

/// The programs that write rules fail for a while, as they do when the lock is held or memory is short, and policy
/// changes in the meantime: the old policy applies throughout, and the new one afterwards.
fn helpers_fail_for_a_while(flavour: Flavour) -> Result<()> {
    let wrappers = testkit::Folder::new("wrappers")?;
    let flag = wrappers.path().join("failing");
    let usual = std::env::var("PATH")?;
    for family in ["iptables", "ip6tables"] {
        let program = match flavour {
            Flavour::IptablesLegacy => format!("{family}-legacy-restore"),
            _ => format!("{family}-nft-restore"),
        };
        let script = format!(
            "#!/bin/sh\nif [ -e {} ]; then echo 'Memory allocation problem' >&2; exit 4; fi\nPATH={usual} exec {program} \"$@\"\n",
            flag.display()
        );
        let file = wrappers.path().join(program);
        std::fs::write(&file, script)?;
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    }
    let path = format!("{}:{usual}", wrappers.path().display());
    let (site, mut questions, mut wanted) = guarded(flavour, &[("PATH", &path)])?;
    let port = |action: &str, ports: &[u16]| json!([{"action": action, "protocol": "TCP", "destination": {"ports": ports}}]);
    site.put(policy("deny", 10, &port("Deny", &[5000]))?)?;
    site.put(policy("allow", 20, &port("Allow", &[5000, 5001]))?)?;
    for (line, answer) in [("b a tcp/5000", false), ("b a tcp/5001", true)] {
        let asked = question(line)?;
        wanted.extend(asked.iter().map(|_| answer));
        questions.extend(asked);
    }
    site.wait_for(&questions, &wanted)?;
    let late = question("b a tcp/5010")?;
    under_traffic(&site, &questions, &wanted, || {
        for (number, is_long) in [(5011, false), (5012, true)] {
            std::fs::write(&flag, "")?;
            site.put(policy("deny", 10, &port("Deny", &[5000, number]))?)?;
            site.put(policy("allow", 20, &port("Allow", &[5000, 5001, 5010]))?)?;
            if is_long {
                // A client that waits for this host is informed that policy is not in place.
                let deadline = Instant::now() + Duration::from_secs(120);
                while site.ask("n1", 9099, "/readiness")?.starts_with("HTTP/1.1 20") {
                    ensure!(Instant::now() < deadline, "still ready:\n{}", site.felix_log("n1"));
                    std::thread::sleep(Duration::from_millis(200));
                }
            } else {
                std::thread::sleep(Duration::from_millis(250));
            }
            std::fs::remove_file(&flag)?;
            site.wait_until_ready("n1")?;
            site.wait_for(&late, &late.iter().map(|_| true).collect::<Vec<_>>())?;
            site.put(policy("allow", 20, &port("Allow", &[5000, 5001]))?)?;
            site.wait_for(&late, &late.iter().map(|_| false).collect::<Vec<_>>())?;
        }
        Ok(())
    })?;
    site.wait_for(&questions, &wanted)
}

#[test]
fn helpers_fail_for_a_while_with_iptables() -> Result<()> {
    helpers_fail_for_a_while(Flavour::IptablesNft)
}

#[test]
fn helpers_fail_for_a_while_with_legacy_iptables() -> Result<()> {
    helpers_fail_for_a_while(Flavour::IptablesLegacy)
}

/// A set is too small for its members: everything that the set denies stays denied, although the set is incomplete; and
/// when the members fit, policy applies exactly.
#[test]
fn a_set_that_is_full_lets_nothing_through() -> Result<()> {
    let (site, questions, wanted) = guarded(Flavour::IptablesNft, &[("FELIX_MAXIPSETSIZE", "8")])?;
    let denied = format!("{}/32", site.address("b", false));
    let block = |others: u8| {
        let others = (0..others).map(|number| format!("10.9.0.{number}/32"));
        let nets: Vec<String> = others.chain([denied.clone()]).collect();
        resource(json!({
            "apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkSet",
            "metadata": {"name": "blocked", "labels": {"set": "blocked"}}, "spec": {"nets": nets},
        }))
    };
    // The first members fit.
    site.put(block(8)?)?;
    let rules = json!([{"action": "Deny", "source": {"selector": "set == 'blocked'"}}, {"action": "Allow"}]);
    site.put(policy("block", 10, &rules)?)?;
    let mut asked = question("b a tcp/80")?;
    asked.extend(question("d a tcp/81")?);
    // Only IPv4 is affected; there the rule is closed for all packets.
    let closed: Vec<bool> = asked.iter().map(|one| one.v6).collect();
    site.wait_for(&asked, &closed)?;
    ensure!(site.felix_log("n1").contains("the set is full"), "{}", site.felix_log("n1"));
    site.put(block(0)?)?;
    let fits: Vec<bool> = asked.iter().map(|one| one.v6 || one.from != "b").collect();
    site.wait_for(&asked, &fits)?;
    site.delete(api::Kind::GlobalNetworkPolicy, "", "block")?;
    site.wait_for(&questions, &wanted)
}

/// A thousand endpoints are created and removed while packets flow; nothing of them is left.
fn thousand_endpoints(flavour: Flavour) -> Result<()> {
    const MANY: u32 = 1000;
    let (site, questions, wanted) = guarded(flavour, &[])?;
    let rules = |site: &Site| {
        site.namespace("n1").shell("nft -s list ruleset | grep -c . ; ip route show | grep -c .")
    };
    let before = rules(&site)?;
    let endpoints: Vec<api::Resource> = (0..MANY)
        .map(|number| {
            let pod = PodPlan {
                name: format!("many{number}"),
                node: "n1".to_owned(),
                interface: format!("cali{number:011x}"),
                v4: format!("172.20.{}.{}", 100 + number / 250, number % 250),
                v6: format!("fd00:20::64:{number:x}"),
            };
            resource(endpoint(&pod, "red", &[("app", "client")], &json!([]), ""))
        })
        .collect::<Result<_>>()?;
    let count = |wanted: u32| -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let found = site.figure("n1", "felix_active_local_endpoints")?;
            if (found - f64::from(wanted)).abs() < 0.5 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{found} endpoints, not {wanted}");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    under_traffic(&site, &questions, &wanted, || {
        // Some of them have an interface.
        let mut lines = String::new();
        for number in (0..MANY).step_by(20) {
            lines += &format!(
                "link add cali{number:011x} type veth peer name p{number}\nlink set cali{number:011x} up\nlink set p{number} up\n"
            );
        }
        site.namespace("n1").batch(&lines)?;
        site.write_all_unchecked(&endpoints, false)?;
        count(MANY + 3)?;
        let there =
            |site: &Site| site.namespace("n1").shell("ip route show | grep -c 'dev cali0000000' || true");
        let deadline = Instant::now() + Duration::from_secs(60);
        while there(&site)?.trim() != (MANY / 20).to_string() {
            ensure!(Instant::now() < deadline, "routes: {}", there(&site)?);
            std::thread::sleep(Duration::from_millis(100));
        }
        site.write_all_unchecked(&endpoints, true)?;
        count(3)?;
        let mut lines = String::new();
        for number in (0..MANY).step_by(20) {
            lines += &format!("link del cali{number:011x}\n");
        }
        site.namespace("n1").batch(&lines)
    })?;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let after = rules(&site)?;
        if after == before {
            break;
        }
        ensure!(Instant::now() < deadline, "lines of rules and routes: before {before}, after {after}");
        std::thread::sleep(Duration::from_millis(200));
    }
    site.wait_for(&questions, &wanted)
}

#[test]
fn thousand_endpoints_with_nftables() -> Result<()> {
    thousand_endpoints(Flavour::Nftables)
}

#[test]
fn thousand_endpoints_with_iptables() -> Result<()> {
    thousand_endpoints(Flavour::IptablesNft)
}

#[test]
fn thousand_endpoints_with_ebpf() -> Result<()> {
    thousand_endpoints(Flavour::Ebpf)
}

/// Switches a host to another packet filter and back: there is no moment without rules, and nothing is left of the old
/// ones. Packets are sent until the old rules are gone, so that none may be lost at that moment either.
#[test]
fn another_packet_filter() -> Result<()> {
    let (site, questions, wanted) = guarded(Flavour::Nftables, &[])?;
    let left =
        |script: &str| site.namespace("n1").shell(&format!("({script}) 2>/dev/null | grep -c cali || true"));
    for flavour in [Flavour::IptablesNft, Flavour::Nftables, Flavour::IptablesLegacy, Flavour::Nftables] {
        // Rules about ARP need nftables, whatever else is used.
        let others = match flavour {
            Flavour::Nftables | Flavour::Ebpf => {
                "iptables-nft-save; ip6tables-nft-save; iptables-legacy-save; ip6tables-legacy-save; ipset -n list"
            }
            Flavour::IptablesNft | Flavour::EbpfIptables => {
                "nft list tables | grep -v arp; iptables-legacy-save; ip6tables-legacy-save"
            }
            Flavour::IptablesLegacy => "nft list tables | grep -v arp; iptables-nft-save; ip6tables-nft-save",
        };
        under_traffic(&site, &questions, &wanted, || {
            site.end_felix("n1", false)?;
            site.start_felix_as("n1", flavour)?;
            site.wait_until_ready("n1")?;
            let deadline = Instant::now() + Duration::from_secs(20);
            while left(others)?.trim() != "0" {
                if Instant::now() > deadline {
                    site.hold();
                    anyhow::bail!(
                        "something is left:\n{}",
                        site.namespace("n1")
                            .shell(&format!("({others}) 2>/dev/null | grep cali | head -20"))?
                    );
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        })
        .map_err(|error| error.context(format!("while {flavour:?} takes over")))?;
        site.wait_for(&questions, &wanted)?;
    }
    Ok(())
}
