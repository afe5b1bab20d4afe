//! Goldmane over an hour, with every key active in every bucket: the heaviest case for memory.
//!
//! - `hour`: decoding and counting on one thread in virtual time, the growth of resident memory, questions about the whole hour
//!   while flows come in as fast as they can.
//! - `nflog`, `pending`: what flow logs cost on a node.
//! - `process`: the server as a process, flows over connections. Where `TORTIE_PEER_BIN` names a folder with Calico's
//!   `calico-goldmane`, that one gets the same bytes, and each is asked the same questions.
//! - `settled`: the memory of those processes when they have been fed in real time for twelve minutes after that hour, so that
//!   neither remembers more for telling repeated flows than it would in an hour of real time. Only when asked for.
//!
//! Words on the command line select measurements whose name has one of them. With `goldmane` as the first word this is the
//! server itself.

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
