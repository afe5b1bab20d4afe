//! `conntrack`: the connections known to programs.

mod lines;

use crate::maps::{Failure, Maps};
use crate::text;
use base64::Engine as _;
use bpf::layout::Family;
use bpf::layout::conntrack::{Entry, Key, Value};
use bpf::{Definition, Kind, Layout as _};
use bpf_conntrack::{TcpState, tcp_state};
use clap::Subcommand;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;

/// The size of a map that `create` creates: Calico's default.
const ENTRIES: u32 = 512_000;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Dumps connection tracking table
    Dump {
        /// version to dump from
        #[arg(long = "ver", short = 'v', default_value_t = 4)]
        version: u8,
        /// dump the raw conntrack table as is
        #[arg(long)]
        raw: bool,
    },
    /// Removes connection tracking
    Remove {
        /// tcp, udp, or a number
        protocol: String,
        /// one end
        ip1: String,
        /// the other end
        ip2: String,
        /// version to remove from
        #[arg(long = "ver", short = 'v', default_value_t = 4)]
        version: u8,
    },
    /// Cleans all conntrack entries
    Clean {
        /// conntrack version to clean
        #[arg(long = "ver", short = 'v', default_value_t = 4)]
        version: u8,
    },
    /// Creates a conntrack map of specified version
    Create {
        /// conntrack version to create
        #[arg(long = "ver", short = 'v', default_value_t = 4)]
        version: u8,
    },
    /// Writes a key-value pair, each encoded in base64
    Write {
        /// the key
        key: String,
        /// the value
        value: String,
        /// conntrack map version
        #[arg(long = "ver", short = 'v', default_value_t = 4)]
        version: u8,
    },
    /// Prints conntrack statistics
    Stats {
        /// conntrack map version
        #[arg(long = "ver", short = 'v', default_value_t = 4)]
        version: u8,
    },
}

impl Command {
    fn version(&self) -> u8 {
        match self {
            Self::Dump { version, .. }
            | Self::Remove { version, .. }
            | Self::Clean { version }
            | Self::Create { version }
            | Self::Write { version, .. }
            | Self::Stats { version } => *version,
        }
    }
}

pub(crate) fn run<F: Family>(
    command: &Command,
    as_json: bool,
    maps: &mut dyn Maps,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if command.version() != 4 {
        let message =
            format!("unknown version {} of the conntrack map: only 4 is supported", command.version());
        return Err(Failure::Wrong(message));
    }
    let name = format!("cali_v{}_ct4", F::NUMBER);
    match command {
        Command::Dump { raw, .. } => {
            let (now, entries) = (maps.now(), entries::<F>(&name, maps)?);
            match (raw, as_json) {
                (true, false) => lines::raw::<F>(now, &entries, out),
                (true, true) => lines::raw_json::<F>(now, &entries, out),
                (false, false) => lines::pretty::<F>(now, &entries, out),
                (false, true) => lines::pretty_json::<F>(now, &entries, out),
            }
        }
        Command::Remove { protocol, ip1, ip2, .. } => {
            let (protocol, one, other) =
                (u32::from(text::protocol(protocol)?), text::bytes::<F>(ip1)?, text::bytes::<F>(ip2)?);
            let between = |key: &Key<F>| {
                key.protocol == protocol
                    && ((key.address_a, key.address_b) == (one, other)
                        || (key.address_a, key.address_b) == (other, one))
            };
            let all = entries::<F>(&name, maps)?;
            let gone: Vec<Vec<u8>> =
                all.iter().filter(|(key, _)| between(key)).map(|(key, _)| key.bytes()).collect();
            maps.remove(&name, &gone).map(drop)
        }
        Command::Clean { .. } => {
            let keys: Vec<Vec<u8>> = maps.entries(&name)?.into_iter().map(|(key, _)| key).collect();
            maps.remove(&name, &keys).map(drop)
        }
        Command::Create { .. } => maps.create(Definition {
            name,
            kind: Kind::LruHash,
            key: Key::<F>::SIZE,
            value: Value::<F>::SIZE,
            entries: ENTRIES,
            flags: 0,
        }),
        Command::Write { key, value, .. } => {
            let decode = |text: &str, what: &str, size: usize| {
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                let bytes =
                    bytes.map_err(|error| Failure::Wrong(format!("failed to decode {what}: {error}")))?;
                text::sized(&name, &bytes, size).map(|()| bytes)
            };
            let (key, value) = (decode(key, "key", Key::<F>::SIZE)?, decode(value, "val", Value::<F>::SIZE)?);
            maps.set(&name, &key, &value)
        }
        Command::Stats { .. } => stats::<F>(&name, as_json, maps, out),
    }
}

type Entries<F> = Vec<(Key<F>, Value<F>)>;

fn entries<F: Family>(name: &str, maps: &dyn Maps) -> Result<Entries<F>, Failure> {
    let all = maps.entries(name)?;
    let mut all: Entries<F> = all
        .iter()
        .map(|(key, value)| Ok((text::read(name, key)?, text::read(name, value)?)))
        .collect::<Result<_, Failure>>()?;
    all.sort_unstable_by_key(|(key, _)| *key);
    Ok(all)
}

fn stats<F: Family>(name: &str, as_json: bool, maps: &dyn Maps, out: &mut dyn Write) -> Result<(), Failure> {
    let (mut total, mut nat) = (0, 0);
    let mut protocols: BTreeMap<u32, u64> = BTreeMap::new();
    let mut states = [0_u64; 4];
    for (key, value) in entries::<F>(name, maps)? {
        let tracking = match &value.entry {
            Entry::Forward(..) => {
                nat += 1;
                continue;
            }
            Entry::Normal(tracking) | Entry::Reverse(tracking) => *tracking,
            Entry::Unknown(_) => Default::default(),
        };
        total += 1;
        *protocols.entry(key.protocol).or_default() += 1;
        if key.protocol == 6 {
            states[match tcp_state(&tracking, value.flags) {
                TcpState::Established => 0,
                TcpState::Closed => 1,
                TcpState::Reset => 2,
                TcpState::SynSent => 3,
            }] += 1;
        }
    }
    let of = |protocol: u32| protocols.get(&protocol).copied().unwrap_or_default();
    let (size, others) = (maps.size(name)?, total - of(6) - of(17));
    let [established, closed, reset, syn_sent] = states;
    if as_json {
        return text::json(
            out,
            &json!({
                "map_size": size, "total_connections": total, "total_entries": total + nat, "nat_connections": nat,
                "tcp": of(6), "udp": of(17), "others": others, "tcp_established": established,
                "tcp_closed": closed, "tcp_reset": reset, "tcp_syn_sent": syn_sent,
            }),
        );
    }
    writeln!(out, "Conntrack map size: {size}\nTotal connections: {total}\nTotal entries: {}", total + nat)?;
    writeln!(out, "NAT connections: {nat}\n\nTCP : {}\nUDP : {}\nOthers : {others}\n", of(6), of(17))?;
    writeln!(
        out,
        "TCP Established: {established}\nTCP Closed: {closed}\nTCP Reset: {reset}\nTCP Syn-sent: {syn_sent}"
    )?;
    Ok(())
}
