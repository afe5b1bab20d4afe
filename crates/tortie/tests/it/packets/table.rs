//! The table of cases: the format of the files, and how a case is tested.

use super::plan::{Flavour, Plan, resource};
use super::site::{Question, Site};
use super::yaml;
use anyhow::{Context as _, Result, bail, ensure};
use api::Resource;
use explain::{Cluster, Protocol, Query, ToHost, Verdict, World};
use serde_json::Value;
use std::time::Instant;
use testkit::network::Traffic;

/// One case: objects in addition to the site's own, and the resulting fates of packets.
pub(crate) struct Case {
    name: String,
    objects: Vec<Resource>,
    questions: Vec<Question>,
    allowed: Vec<bool>,
}

impl Case {
    /// What it is about.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Reads a file of cases.
pub(crate) fn cases(text: &str) -> Result<Vec<Case>> {
    yaml::documents(text).iter().map(case).collect()
}

fn case(value: &Value) -> Result<Case> {
    let name = value["name"].as_str().context("a case has a name")?.to_owned();
    let read = || -> Result<Case> {
        let fields = value.as_object().context("a case is an object")?;
        if let Some(other) =
            fields.keys().find(|field| !["name", "apply", "allow", "deny"].contains(&field.as_str()))
        {
            bail!("{other} is not a field of a case");
        }
        let objects = value["apply"].as_array().context("`apply` is a list")?;
        let objects = objects.iter().cloned().map(resource).collect::<Result<_>>()?;
        let (mut questions, mut allowed) = (Vec::new(), Vec::new());
        for (field, answer) in [("allow", true), ("deny", false)] {
            let lines = value[field].as_array().with_context(|| format!("`{field}` is a list"))?;
            // Without both kinds of fate a case could not fail, or only in one way.
            ensure!(!lines.is_empty(), "`{field}` is empty");
            for line in lines {
                let asked = question(line.as_str().context("a question is a text")?)?;
                allowed.extend(asked.iter().map(|_| answer));
                questions.extend(asked);
            }
        }
        Ok(Case { name: name.clone(), objects, questions, allowed })
    };
    read().with_context(|| format!("case '{name}'"))
}

/// Parses `b a tcp/80`, with `v4` or `v6` for one IP version only, `from=PORT`, and `at=WHO` for another receiver.
pub(crate) fn question(line: &str) -> Result<Vec<Question>> {
    let mut words = line.split_whitespace();
    let mut next = || words.next().with_context(|| format!("'{line}' is too short"));
    let (from, to, traffic) = (next()?.to_owned(), next()?.to_owned(), next()?);
    let (kind, number) = traffic.split_once('/').unwrap_or((traffic, "0"));
    let number = |what: &str| number.parse::<u16>().with_context(|| format!("{what}: '{line}'"));
    let traffic = match kind {
        "tcp" => Traffic::Tcp(number("port")?),
        "udp" => Traffic::Udp(number("port")?),
        "sctp" => Traffic::Sctp(number("port")?),
        "icmp" => Traffic::Icmp(u8::try_from(number("type")?)?, 0),
        "other" => Traffic::Other(99),
        _ => bail!("'{traffic}' is not traffic"),
    };
    let mut versions = vec![false, true];
    let (mut source_port, mut receiver) = (None, None);
    for word in words {
        match word.split_once('=') {
            None if word == "v4" => versions = vec![false],
            None if word == "v6" => versions = vec![true],
            Some(("from", port)) => source_port = Some(port.parse()?),
            Some(("at", who)) => receiver = Some(who.to_owned()),
            _ => bail!("'{word}' in '{line}'"),
        }
    }
    let question = |v6| Question {
        from: from.clone(),
        to: to.clone(),
        traffic,
        source_port,
        source: None,
        v6,
        receiver: receiver.clone(),
    };
    Ok(versions.into_iter().map(question).collect())
}

/// Tests all cases on a site of this flavour; reports every case that fails, not only the first.
pub(crate) fn run(site: &Site, cases: &[Case]) -> Result<()> {
    let begun = Instant::now();
    let mut failures = Vec::new();
    for case in cases {
        let outcome = try_case(site, case);
        // Whatever the result, the next case starts with the original site.
        let restored = restore(site, case);
        for failure in [outcome, restored].into_iter().filter_map(Result::err) {
            failures.push(format!("'{}': {failure:#}", case.name));
        }
        if failures.len() > 5 {
            failures.push("and no more were tried".to_owned());
            break;
        }
    }
    eprintln!("{} cases in {:?}", cases.len(), begun.elapsed());
    ensure!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n\n"));
    Ok(())
}

fn try_case(site: &Site, case: &Case) -> Result<()> {
    explained(site, case)?;
    for object in &case.objects {
        site.put(object.clone())?;
    }
    site.wait_for(&case.questions, &case.allowed)
}

/// Removes the case's objects and waits until nothing of the case is left.
fn restore(site: &Site, case: &Case) -> Result<()> {
    let own = site.plan.resources()?;
    // In reverse order, because of dependencies: a tier cannot be removed before its policies.
    for object in case.objects.iter().rev() {
        let same = |other: &&Resource| {
            (other.kind(), other.namespace(), other.name())
                == (object.kind(), object.namespace(), object.name())
        };
        match own.iter().find(same) {
            Some(before) => site.put(before.clone())?,
            None => site.delete(object.kind(), object.namespace(), object.name())?,
        }
    }
    let open = vec![true; case.questions.len()];
    site.wait_for(&case.questions, &open).context("after the case's objects were removed")
}

/// Checks that the evaluator agrees with the case: a wrong case is found before a packet is sent.
fn explained(site: &Site, case: &Case) -> Result<()> {
    let mut cluster = Cluster::new();
    for object in site.plan.resources()?.into_iter().chain(case.objects.clone()) {
        cluster.add(object);
    }
    cluster.set_endpoint_to_host_action(ToHost::Accept);
    let world = World::new(&cluster);
    for (question, allowed) in case.questions.iter().zip(&case.allowed) {
        // The evaluator does not know another program's address translation.
        if question.receiver.is_some() {
            continue;
        }
        let query = query(site, question);
        let verdict = world.verdict(&query)?;
        ensure!(
            (verdict == Verdict::Allow) == *allowed,
            "explain says {}: {question}\n{}",
            verdict.as_str(),
            world.explain(&query)?.to_text(false)
        );
    }
    Ok(())
}

pub(crate) fn query(site: &Site, question: &Question) -> Query {
    let port = match question.traffic {
        Traffic::Tcp(port) | Traffic::Udp(port) | Traffic::Sctp(port) => Some(port),
        _ => None,
    };
    let icmp = match question.traffic {
        Traffic::Icmp(8, code) if question.v6 => Some((128, code)),
        Traffic::Icmp(icmp_type, code) => Some((icmp_type, code)),
        _ => None,
    };
    Query {
        from: site.address(&question.from, question.v6).to_string(),
        to: site.address(&question.to, question.v6).to_string(),
        protocol: Some(Protocol(question.traffic.protocol(question.v6))),
        port,
        // Probes choose theirs between 10,000 and 30,000.
        source_port: Some(question.source_port.unwrap_or(10_000)),
        icmp,
        ..Query::default()
    }
}

/// A site for the table, with another program's address translation on its first host.
pub(crate) fn site(flavour: Flavour, extra: &[(&str, &str)]) -> Result<Site> {
    let site = Site::without_agents(&Plan::two_subnets(false), flavour, extra)?;
    let host = site.namespace("n1");
    host.feed("nft -f -", STRANGER)?;
    host.shell(
        "for way in nft legacy; do
            iptables-$way -N stranger; iptables-$way -A stranger -s 198.18.0.1 -j RETURN
            iptables-$way -I FORWARD -j stranger; iptables-$way -t nat -N other-stranger
         done
         ipset create stranger hash:ip; ipset add stranger 198.18.0.1
         ip route add 198.18.0.0/15 dev eth0 proto static
         ip rule add pref 32000 from 198.18.0.0/15 lookup 200
         ip neigh add 10.65.1.77 lladdr 02:00:00:00:09:09 dev eth0 nud permanent",
    )?;
    site.start_agents()?;
    Ok(site)
}

/// The objects of another program on the first host.
pub(crate) fn strangers(site: &Site) -> Result<String> {
    site.namespace("n1").shell(
        "nft list table inet stranger
         for way in nft legacy; do iptables-$way -S stranger; iptables-$way -S FORWARD | grep stranger
         iptables-$way -t nat -S other-stranger; done
         ipset save stranger; ip route show 198.18.0.0/15; ip rule show pref 32000
         ip neigh show 10.65.1.77 dev eth0",
    )
}

/// Objects of another program, such as kube-proxy, in a host's kernel.
pub(crate) const STRANGER: &str = "table inet stranger {
    chain prerouting {
        type nat hook prerouting priority dstnat - 5;
        ip daddr 10.65.1.1 tcp dport 30080 dnat ip to 172.20.1.2:80
        ip6 daddr fd00:65:1::1 tcp dport 30080 dnat ip6 to [fd00:20::1:2]:80
    }
}
";
