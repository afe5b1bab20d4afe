//! Programming a large table, and changing one chain of it, against the `nft` program doing the same.
//!
//! The table has 1,000 workloads with a chain of 20 rules each behind a dispatch map: 21,000 rules. Both sides run in
//! network namespaces of their own. The peer does what Calico's Felix does for each change: it passes a text to `nft
//! -f`. The benchmark needs root, because it creates network namespaces. With `TORTIE_BENCH_OUT=<folder>` the table is
//! also written there.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

use anyhow::{Context, Result, ensure};
use netfilter::RuleDriver;
use netfilter::nftables::Driver;
use netlink::namespace::Namespace;
use netlink::netfilter::nft::Client;
use netlink::netfilter::watch::Watch;
use rules::nftables::{Family, comment, hashes, rule_text};
use rules::tree::ChainName;
use rules::tree::{Action, Chain, Match, Rule, Table};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;
use testkit::{Report, median};

const WORKLOADS: u32 = 1000;
const ROUNDS: u32 = 40;

struct Host(String);

impl Host {
    fn new(purpose: &str) -> Result<Self> {
        let name = format!("tortie-bench-{}-{purpose}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).status().context("ip")?;
        ensure!(made.success(), "this benchmark creates network namespaces and needs root");
        Ok(Self(name))
    }

    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(Namespace::open(&PathBuf::from(format!("/var/run/netns/{}", self.0)))?.run(work)?)
    }

    /// Passes a text to `nft -f`.
    fn nft(&self, text: &str) -> Result<()> {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.0, "nft", "-f", "-"])
            .stdin(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("stdin")?.write_all(text.as_bytes())?;
        ensure!(child.wait()?.success(), "nft refused");
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn chain(index: u32, mark: u32) -> Chain {
    let net = format!("10.{}.{}.0/24", index % 256, mark % 256).parse().expect("a network");
    let rules = (0..20_u32).map(|bit| Rule {
        matches: vec![
            Match::Mark { value: 0, mask: 0x20000, negated: false },
            Match::Net { end: rules::tree::End::Source, net, negated: false },
        ],
        action: Some(Action::SetMark(bit + 1)),
        comments: vec![],
    });
    Chain::new(format!("cali-tw-{index}"), rules.collect())
}

fn want(driver: &mut Driver<Client>) {
    for index in 0..WORKLOADS {
        driver.update_chain(Table::Filter, chain(index, 0));
        let name: ChainName = format!("cali-tw-{index}").into();
        driver.set_map_entry(
            Table::Filter,
            "cali-to-wl-dispatch",
            &format!("cali{index}").into(),
            Some(&name),
        );
    }
}

/// The rules of a chain as lines for `nft`.
fn lines(chain: &Chain, text: &mut String) {
    let name = rules::nftables::chain_name(Table::Filter, &chain.name);
    for (rule, hash) in chain.rules.iter().zip(hashes(Table::Filter, Family::Ip, &chain.name, &chain.rules)) {
        let body = rule_text(Table::Filter, Family::Ip, rule);
        let _ = writeln!(text, "add rule ip calico {name} {body} comment \"{}\"", comment(rule, hash));
    }
}

fn whole_text() -> String {
    let mut text = String::from(
        "add table ip calico\nadd map ip calico filter-cali-to-wl-dispatch { type ifname : verdict; }\n",
    );
    for index in 0..WORKLOADS {
        let _ = writeln!(text, "add chain ip calico filter-cali-tw-{index}");
    }
    for index in 0..WORKLOADS {
        lines(&chain(index, 0), &mut text);
        let _ = writeln!(
            text,
            "add element ip calico filter-cali-to-wl-dispatch {{ \"cali{index}\" : goto filter-cali-tw-{index} }}"
        );
    }
    text
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

fn main() -> Result<()> {
    let (ours, peer, watched) = (Host::new("ours")?, Host::new("nft")?, Host::new("watched")?);
    let mut report = Report::new("nftables");
    let open = || Client::open().map(|client| Driver::new(client, Family::Ip, None));
    let mut driver = ours.run(open)??;
    want(&mut driver);
    let start = Instant::now();
    driver.apply(Instant::now())?;
    let whole = milliseconds(start);
    let text = whole_text();
    let start = Instant::now();
    peer.nft(&text)?;
    let whole_peer = milliseconds(start);
    let row = |report: &mut Report, what: &str, ours: f64, peer: f64, peer_is: &str, goal: &str| {
        report.row(
            what,
            &format!("{ours:.2} ms"),
            &format!("{peer_is}: {peer:.2} ms"),
            &format!("{:.2}", ours / peer),
            goal,
        );
    };
    row(&mut report, "program 21,000 rules", whole, whole_peer, "nft -f", "below 1");

    let (mut changes, mut changes_peer) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        driver.update_chain(Table::Filter, chain(7, round));
        let start = Instant::now();
        driver.apply(Instant::now())?;
        changes.push(milliseconds(start));
        let mut text = String::from("flush chain ip calico filter-cali-tw-7\n");
        lines(&chain(7, round), &mut text);
        let start = Instant::now();
        peer.nft(&text)?;
        changes_peer.push(milliseconds(start));
    }
    row(
        &mut report,
        "change one chain of 20 rules, p50",
        median(changes),
        median(changes_peer),
        "nft -f",
        "below 0.5",
    );

    // The listener for foreign changes must not make our own much slower.
    let mut driver = watched.run(open)??;
    let mut watch = watched.run(Watch::open)??;
    want(&mut driver);
    let start = Instant::now();
    driver.apply(Instant::now())?;
    let own = [driver.kernel().port()];
    watch.look(&own)?;
    row(
        &mut report,
        "program 21,000 rules with a listener",
        milliseconds(start),
        whole,
        "without",
        "below 2",
    );

    let start = Instant::now();
    driver.invalidate();
    ensure!(!driver.apply(Instant::now())?.wrote, "nothing is left to do");
    row(
        &mut report,
        "read 21,000 rules and compare",
        milliseconds(start),
        whole,
        "programming them",
        "below 1",
    );
    print!("{}", report.markdown());
    report.record()
}
