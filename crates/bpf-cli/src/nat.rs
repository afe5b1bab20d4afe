//! `nat`: services and their backends.

mod lines;

use crate::maps::{Failure, Maps};
use crate::text;
use bpf::Layout as _;
use bpf::layout::Family;
use bpf::layout::nat::{Affinity, AffinityKey, Backend, BackendKey, Frontend, FrontendKey};
use clap::Subcommand;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::io::Write;

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// dumps the nat tables
    Dump {
        /// only the service of this address, with the port and the protocol
        #[arg(num_args = 0..=3, value_names = ["IP", "PORT", "PROTO"])]
        frontend: Vec<String>,
        /// show all frontends of a service together, with its backends once
        #[arg(long)]
        group_by_service: bool,
    },
    /// dumps the affinity table
    Aff,
    /// dumps the maglev consistent-hash backend table
    Maglev,
    /// sets an entry in the NAT tables
    Set {
        /// which one
        #[command(subcommand)]
        what: Set,
    },
    /// deletes an entry from the NAT tables
    Del {
        /// which one
        #[command(subcommand)]
        what: Del,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Set {
    /// sets a NAT entry for frontend (virtual IP)
    Front {
        /// its address
        ip: String,
        /// its port
        port: String,
        /// tcp, udp, or a number
        proto: String,
        /// the service's number
        id: String,
        /// how many backends it has
        count: String,
    },
    /// sets a NAT backend for frontend id
    Back {
        /// the service's number
        id: String,
        /// the backend's number
        idx: String,
        /// its address
        ip: String,
        /// its port
        port: String,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Del {
    /// deletes a NAT entry for frontend (virtual IP)
    Front {
        /// its address
        ip: String,
        /// its port
        port: String,
        /// tcp, udp, or a number
        proto: String,
    },
    /// deletes a NAT backend for frontend id
    Back {
        /// the service's number
        id: String,
        /// the backend's number
        idx: String,
    },
}

type Frontends<F> = Vec<(FrontendKey<F>, Frontend)>;
type Backends<F> = BTreeMap<BackendKey, Backend<F>>;

pub(crate) fn run<F: Family>(
    command: &Command,
    as_json: bool,
    maps: &mut dyn Maps,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let named = |rest: &str| format!("cali_v{}_{rest}", F::NUMBER);
    let (fronts, backs) = (named("nat_fe3"), named("nat_be"));
    match command {
        Command::Dump { frontend, group_by_service } => {
            let mut frontends: Frontends<F> = table(&fronts, maps)?;
            frontends.sort_unstable_by_key(|(key, _)| {
                (key.address, key.port, key.protocol, key.source_bits, key.source)
            });
            let backends: Backends<F> = table(&backs, maps)?.into_iter().collect();
            match frontend.as_slice() {
                [] => {}
                [ip, port, proto] => {
                    let wanted = key::<F>(ip, port, proto)?;
                    let found = frontends.iter().find(|(key, _)| *key == wanted);
                    let id = found
                        .ok_or_else(|| {
                            Failure::Wrong(format!("{ip} port {port} proto {proto} is not in {fronts}"))
                        })?
                        .1
                        .id;
                    frontends.retain(|(_, value)| value.id == id);
                }
                some => {
                    let message = format!(
                        "dump takes either no arguments or <ip> <port> <proto>, not {} words",
                        some.len()
                    );
                    return Err(Failure::Wrong(message));
                }
            }
            match (group_by_service, as_json) {
                (false, false) => lines::flat(&frontends, &backends, out),
                (true, false) => lines::grouped(&frontends, &backends, out),
                (false, true) => lines::flat_json(&frontends, &backends, out),
                (true, true) => lines::grouped_json(&frontends, &backends, out),
            }
        }
        Command::Aff => affinities::<F>(&named("nat_aff"), as_json, maps, out),
        Command::Maglev => maglev::<F>(&named("mglv2"), as_json, maps, out),
        Command::Set { what: Set::Front { ip, port, proto, id, count } } => {
            let value =
                Frontend { id: text::number(id)?, count: text::number(count)?, ..Frontend::default() };
            maps.set(&fronts, &key::<F>(ip, port, proto)?.bytes(), &value.bytes())
        }
        Command::Set { what: Set::Back { id, idx, ip, port } } => {
            let value = Backend::<F> { address: text::bytes::<F>(ip)?, port: text::number(port)? };
            maps.set(&backs, &backend_key(id, idx)?.bytes(), &value.bytes())
        }
        Command::Del { what: Del::Front { ip, port, proto } } => {
            delete(&fronts, key::<F>(ip, port, proto)?.bytes(), maps)
        }
        Command::Del { what: Del::Back { id, idx } } => delete(&backs, backend_key(id, idx)?.bytes(), maps),
    }
}

fn delete(map: &str, key: Vec<u8>, maps: &mut dyn Maps) -> Result<(), Failure> {
    match maps.remove(map, &[key])? {
        0 => Err(Failure::Wrong(format!("{map} has no such entry"))),
        _ => Ok(()),
    }
}

fn key<F: Family>(ip: &str, port: &str, protocol: &str) -> Result<FrontendKey<F>, Failure> {
    Ok(FrontendKey {
        address: text::bytes::<F>(ip)?,
        port: text::number(port)?,
        protocol: text::protocol(protocol)?,
        ..FrontendKey::default()
    })
}

fn backend_key(id: &str, ordinal: &str) -> Result<BackendKey, Failure> {
    Ok(BackendKey { id: text::number(id)?, ordinal: text::number(ordinal)? })
}

fn table<K: bpf::Layout, V: bpf::Layout>(name: &str, maps: &dyn Maps) -> Result<Vec<(K, V)>, Failure> {
    let all = maps.entries(name)?;
    all.iter().map(|(key, value)| Ok((text::read(name, key)?, text::read(name, value)?))).collect()
}

fn affinities<F: Family>(
    name: &str,
    as_json: bool,
    maps: &dyn Maps,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut all: Vec<(AffinityKey<F>, Affinity<F>)> = table(name, maps)?;
    all.sort_unstable_by_key(|(key, _)| (key.address, key.port, key.protocol, key.client));
    // The time is that of the kernel's clock, shown as the time since boot.
    let since = |value: &Affinity<F>| text::ago(value.since, 0);
    if as_json {
        let objects = all.iter().map(|(key, value)| {
            json!({
                "client_ip": text::ip::<F>(&key.client).to_string(),
                "proto": key.protocol,
                "addr": text::ip::<F>(&key.address).to_string(),
                "port": key.port,
                "backend": {"addr": text::ip::<F>(&value.backend.address).to_string(), "port": value.backend.port},
                "timestamp": since(value),
            })
        });
        return text::json(out, &Json::Array(objects.collect()));
    }
    for (key, value) in &all {
        writeln!(
            out,
            "client {} svc proto {} {} -> {} ts {}",
            text::ip::<F>(&key.client),
            key.protocol,
            text::place::<F>(&key.address, key.port),
            text::place::<F>(&value.backend.address, value.backend.port),
            since(value)
        )?;
    }
    Ok(writeln!(out)?)
}

fn maglev<F: Family>(name: &str, as_json: bool, maps: &dyn Maps, out: &mut dyn Write) -> Result<(), Failure> {
    let all: Backends<F> = table(name, maps)?.into_iter().collect();
    if as_json {
        let objects = all.iter().map(|(key, value)| {
            json!({
                "svc_id": key.id, "ordinal": key.ordinal,
                "addr": text::ip::<F>(&value.address).to_string(), "port": value.port,
            })
        });
        return text::json(out, &Json::Array(objects.collect()));
    }
    for (key, value) in &all {
        let place = text::place::<F>(&value.address, value.port);
        writeln!(out, "svc {} ordinal {} -> {place}", key.id, key.ordinal)?;
    }
    Ok(())
}
