//! Compares the state that this Felix and another one program for the same random clusters, and lists every difference;
//! also moves hosts from one to the other and back under traffic. Not a measurement, and run only on request.
//!
//! ```text
//! TORTIE_PEER_FELIX=/path/to/calico-felix cargo bench -p felix -- compare
//! ```
//!
//! The peer is a program with its arguments, such as `/bin/calico-node -felix`; it gets the same `FELIX_` variables. Each
//! Felix has a host of its own, a network namespace with the same interfaces. `TORTIE_PEER_CASES` (20) and
//! `TORTIE_PEER_SEED` (1) choose the clusters. With the word `rules` only clusters in etcd are compared, with `kubernetes` only
//! clusters in a real kube-apiserver, with `swap` only hosts change hands. It fails when anything differs; the generator
//! leaves out what docs/differences.md lists.

mod clusters;
mod kernel;
mod kubernetes;
mod policies;
mod swap;

use crate::cluster::{Cluster, HOST, interface};
use crate::daemon::Felix;
use crate::host::Filter;
use crate::two_hosts::relay;
use anyhow::{Context as _, Result, bail, ensure};
use api::Resource;
use client::Client;
use clusters::random;
use kernel::State;
use std::path::Path;
use std::time::Duration;
use testkit::network::Namespace;
use testkit::random_kubernetes::LOCAL;
use testkit::{ApiServer, Etcd, Folder, number_from_environment};
use tokio::runtime::Runtime;

/// How often a host's state is read until it stays the same.
const LOOKS: usize = 60;

/// Which Felix programs a host.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Who {
    Ours,
    Theirs,
}

/// Compares, if requested by name; returns whether it was.
pub(crate) fn run(runtime: &Runtime) -> Result<bool> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if !asked.iter().any(|word| word == "compare") {
        return Ok(false);
    }
    let peer = std::env::var("TORTIE_PEER_FELIX").context("TORTIE_PEER_FELIX does not name another Felix")?;
    let parts = ["rules", "kubernetes", "swap"];
    let is_wanted = |part: &str| {
        asked.iter().any(|word| word == part) || !asked.iter().any(|word| parts.contains(&word.as_str()))
    };
    if is_wanted("rules") {
        clusters_are_programmed_alike(&peer, |case| in_etcd(runtime, case))?;
    }
    if is_wanted("kubernetes") {
        clusters_are_programmed_alike(&peer, |case| kubernetes::make(runtime, case))?;
    }
    if is_wanted("swap") {
        swap::hosts_change_hands(runtime, &peer)?;
    }
    Ok(true)
}

/// A cluster that both Felixes follow.
struct Ground {
    /// The server's plain address.
    endpoint: String,
    /// Settings that lead Felix there.
    settings: Vec<(&'static str, String)>,
    /// The interfaces of this host's pods.
    interfaces: Vec<String>,
    /// The cluster in a few words.
    about: String,
    /// How many objects were refused.
    refused: usize,
    _servers: Servers,
}

/// What serves a cluster, for as long as this value lives.
struct Servers {
    _etcd: Etcd,
    /// The API server, and the folder of the kubeconfig that leads through the relay.
    _kubernetes: Option<(ApiServer, Folder)>,
}

/// A random cluster in an etcd.
fn in_etcd(runtime: &Runtime, case: u64) -> Result<Ground> {
    let random = random(case)?;
    runtime.block_on(async {
        let cluster = Cluster::start_empty().await?;
        let refused = create_all(&cluster.client, case, &random.objects).await?;
        cluster.write(random.entries).await?;
        Ok(Ground {
            endpoint: cluster.etcd.endpoint(),
            settings: Vec::new(),
            interfaces: (0..LOCAL).map(interface).collect(),
            about: random.about,
            refused,
            _servers: Servers { _etcd: cluster.etcd, _kubernetes: None },
        })
    })
}

/// Creates objects; how many were refused.
async fn create_all(client: &Client, case: u64, objects: &[policies::Made]) -> Result<usize> {
    let mut refused = 0;
    for (kind, object) in objects {
        let resource = Resource::from_value(*kind, object.clone())?;
        if let Err(refusal) = client.create_any(resource).await {
            println!("case {case}: left out: {refusal}\n  {object}");
            refused += 1;
        }
    }
    Ok(refused)
}

fn clusters_are_programmed_alike(peer: &str, make: impl Fn(u64) -> Result<Ground>) -> Result<()> {
    let (cases, seed) =
        (number_from_environment("TORTIE_PEER_CASES", 20)?, number_from_environment("TORTIE_PEER_SEED", 1)?);
    let (mut places, mut lines, mut differing, mut refused, mut peer_failed) = (0, 0, 0, 0, 0);
    for case in seed..seed + cases {
        let ground = make(case)?;
        refused += ground.refused;
        for filter in Filter::BOTH {
            let [ours, theirs] = std::thread::scope(|scope| {
                [Who::Ours, Who::Theirs]
                    .map(|who| {
                        let ground = &ground;
                        scope.spawn(move || programmed(who, peer, ground, filter))
                    })
                    .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            });
            let about = || format!("case {case} {} ({})", filter.name(), ground.about);
            let ours = ours.with_context(about)?;
            let theirs = match theirs {
                Ok(theirs) => theirs,
                // Its log is long. Some clusters are too much for it: it panics when the kernel refuses a rule.
                Err(error) => {
                    let error = format!("{error:#}");
                    let is_telling =
                        |line: &&str| ["panic", "FATAL", "Error: "].iter().any(|word| line.contains(word));
                    let lines: Vec<&str> = error.lines().filter(is_telling).take(3).collect();
                    println!("{}: the peer failed\n  {}", about(), lines.join("\n  "));
                    peer_failed += 1;
                    continue;
                }
            };
            let found = kernel::differences(&ours, &theirs);
            println!(
                "{}: {} places, {} lines, {} differ",
                about(),
                ours.len(),
                kernel::size(&ours),
                found.len()
            );
            for difference in &found {
                println!("  {difference}");
            }
            places += ours.len();
            lines += kernel::size(&ours);
            differing += found.len();
        }
    }
    println!(
        "{cases} clusters with both filters: {places} chains, sets and other places, {lines} lines; {differing} places differ; {refused} objects were not valid; \
         the peer failed {peer_failed} times"
    );
    ensure!(differing == 0, "{differing} places differ");
    ensure!(lines > 0, "nothing was compared: the peer failed every time");
    Ok(())
}

/// A host with an uplink and the interfaces of its pods, the same each time.
fn host(name: &str, interfaces: &[String]) -> Result<Namespace> {
    let host = Namespace::new(name)?;
    let mut batch =
        "link add eth0 address 02:00:00:00:00:01 type veth peer name wire0 address 02:00:00:00:00:02
        addr add 10.65.0.1/24 dev eth0
        addr add fd00:65::1/64 dev eth0
        link set wire0 up
        link set eth0 up
        route add default via 10.65.0.254
        route add default via fd00:65::fe
        link add eth1 address 02:00:00:00:01:01 type veth peer name wire1 address 02:00:00:00:01:02
        addr add 10.75.0.1/24 dev eth1
        link set wire1 up
        link set eth1 up\n"
            .to_owned();
    for (number, name) in interfaces.iter().enumerate() {
        batch.push_str(&format!(
            "link add {name} address ee:ee:ee:ee:ee:ee type veth peer name pod{number} address 02:00:00:00:02:{number:02x}
             link set pod{number} up\nlink set {name} up\n"
        ));
    }
    host.batch(&batch)?;
    Ok(host)
}

/// Starts a Felix of either kind in a namespace, where a relay makes the datastore reachable.
fn start(
    who: Who,
    peer: &str,
    host: &Namespace,
    endpoint: &str,
    filter: Filter,
    settings: &[(&'static str, String)],
) -> Result<Felix> {
    let further = settings.iter().map(|(name, value)| (*name, value.as_str()));
    let settings: Vec<(&str, &str)> = SETTINGS.into_iter().chain(further).collect();
    host.run(|| match who {
        Who::Ours => Felix::start_with(None, HOST, endpoint, filter, &settings),
        Who::Theirs => Felix::start_with(Some(peer), HOST, endpoint, filter, &settings),
    })?
}

/// Both families, without features that need the outside or that a build without C code lacks.
const SETTINGS: [(&str, &str); 4] = [
    ("IPV6SUPPORT", "true"),
    ("USAGEREPORTINGENABLED", "false"),
    ("XDPENABLED", "false"),
    ("HEALTHPORT", HEALTH_PORT),
];

/// Ports that failsafe rules leave open: host endpoints must not cut off the datastore or health queries.
const ETCD_PORT: u16 = 2379;
const HEALTH_PORT: &str = "6666";

/// The state that a Felix programs on a fresh host, once it is ready and nothing changes any more.
fn programmed(who: Who, peer: &str, ground: &Ground, filter: Filter) -> Result<State> {
    let name = format!("{who:?}").to_lowercase();
    let host = host(&name, &ground.interfaces)?;
    let relayed = relay(
        &netlink::namespace::Namespace::open(&Path::new("/run/netns").join(&name))?,
        ETCD_PORT,
        &ground.endpoint,
    )?;
    let mut felix = start(who, peer, &host, &relayed, filter, &ground.settings)?;
    host.run(|| felix.wait_until_ready())?.with_context(|| name.clone())?;
    let mut before = State::new();
    for _ in 0..LOOKS {
        std::thread::sleep(Duration::from_millis(1500));
        let now = kernel::state(&host, filter)?;
        if now == before {
            drop(felix);
            return Ok(now);
        }
        before = now;
    }
    bail!("{name}: the host keeps changing:\n{}", felix.log())
}
