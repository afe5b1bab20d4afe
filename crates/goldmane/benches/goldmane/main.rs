//! Goldmane over an hour, with every key active in every bucket: the heaviest case for memory.
//!
//! - `hour`: decoding and counting on one thread in virtual time, the growth of resident memory, and queries over the
//!   whole hour while flows arrive as fast as possible.
//! - `nflog`, `pending`: the cost of flow logs on a node.
//! - `process`: the server as a process that receives flows over connections. If `TORTIE_PEER_BIN` names a folder with
//!   Calico's `calico-goldmane`, that server gets the same bytes and the same queries.
//! - `settled`: the memory of those processes after another twelve minutes of flows in real time, so that neither
//!   remembers more flows to recognise repetitions than in an hour of real time. Only runs when requested.
//!
//! Words on the command line select the measurements whose name contains one of them. With `goldmane` as the first word
//! this program is the server itself.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod hour;
mod node;
mod process;
mod servers;
mod wire;
mod world;

use anyhow::Result;
use testkit::Report;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if words.first().is_some_and(|word| word == "goldmane") {
        goldmane::cli::main(&goldmane::cli::Arguments {})?;
        return Ok(());
    }
    let is_named = |name: &str| words.iter().any(|word| name.contains(word.as_str()));
    let is_wanted = |name: &str| words.is_empty() || is_named(name);
    let mut report = Report::new("goldmane");
    for keys in [10_000, 30_000] {
        if is_wanted(&format!("hour-{keys}")) {
            hour::measure(keys, &mut report)?;
        }
    }
    if is_wanted("nflog") {
        node::nflog(&mut report)?;
    }
    if is_wanted("pending") {
        node::pending(&mut report)?;
    }
    let runtime = tokio::runtime::Runtime::new()?;
    for keys in [10_000, 30_000] {
        if is_wanted(&format!("process-{keys}")) {
            runtime.block_on(process::measure(keys, &mut report))?;
        }
    }
    if is_named("settled") {
        runtime.block_on(process::settled(&mut report))?;
    }
    report.note(
        "An hour has 240 buckets of 15 seconds; every key has a flow in each of them. Calico's limit is that of its own \
         benchmarks, 13 microseconds for a received flow; its computed memory is without what it remembers to tell repeated \
         flows. Processes get the same bytes over four connections on loopback, from a client on the same two processors.",
    );
    println!("{}", report.markdown());
    report.record()
}
