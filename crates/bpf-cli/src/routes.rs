//! `routes`: the routes to addresses.

use crate::maps::{Failure, Maps};
use crate::text;
use bpf::Layout as _;
use bpf::layout::network::flags::{
    DROP, HOST, IN_POOL, LOCAL, NAT_OUTGOING, NO_DIRECT_RETURN, REJECT, SAME_SUBNET, SKIP_REDIRECT, TUNNELED,
    WORKLOAD,
};
use bpf::layout::network::{Route, RouteKey};
use bpf::layout::{Family, V4, V6};
use clap::{Subcommand, ValueEnum};
use ipnet::IpNet;
use serde_json::{Value as Json, json};
use std::io::Write;
use std::net::IpAddr;

const BLACK_HOLES: u32 = DROP | REJECT;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    Local,
    Remote,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// dumps routes
    Dump,
    /// Add an entry to the BPF routes map
    Add {
        /// address or network
        net: String,
        /// Next hop IP for route (remote routes)
        #[arg(long)]
        nexthop: Option<IpAddr>,
        /// Interface index for local routes
        #[arg(long)]
        ifindex: Option<u32>,
        /// Mark route as workload
        #[arg(long, ignore_case = true)]
        workload: Option<Side>,
        /// Mark route as host
        #[arg(long, ignore_case = true)]
        host: Option<Side>,
        /// Mark route as tunneled
        #[arg(long)]
        tunneled: bool,
    },
    /// Delete an entry from the BPF routes map (by CIDR only)
    Del {
        /// address or network
        net: String,
    },
}

/// The names of flags, in the order of the text output.
const FLAGS: [(u32, &str); 6] = [
    (IN_POOL, "in-pool"),
    (NAT_OUTGOING, "nat-out"),
    (SAME_SUBNET, "same-subnet"),
    (NO_DIRECT_RETURN, "no-dsr"),
    (TUNNELED, "tunneled"),
    (SKIP_REDIRECT, "skip-ingress-redir"),
];

/// Adding and deleting use the IP version of the network, dumping that of the flag.
pub(crate) fn run<F: Family>(
    command: &Command,
    as_json: bool,
    maps: &mut dyn Maps,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    match command {
        Command::Dump => dump::<F>(as_json, maps, out),
        Command::Add { net, nexthop, ifindex, workload, host, tunneled } => {
            let net = network(net)?;
            let wrong = |text: &str| Err(Failure::Wrong(text.to_owned()));
            let sides = [*workload, *host];
            if sides == [None, None] {
                return wrong(
                    "for add: one of --workload or --host must be specified (use 'local' or 'remote')",
                );
            }
            if sides.contains(&Some(Side::Local)) && ifindex.unwrap_or(0) == 0 {
                return wrong("local routes require --ifindex to be specified and non-zero");
            }
            if sides.contains(&Some(Side::Remote)) && nexthop.is_none() {
                return wrong("remote routes require --nexthop to be specified");
            }
            let mut flags = if *tunneled { TUNNELED } else { 0 };
            for (side, bit) in [(workload, WORKLOAD), (host, HOST)] {
                flags |= side.map_or(0, |side| if side == Side::Local { bit | LOCAL } else { bit });
            }
            let mut value = flags.to_ne_bytes().to_vec();
            match (ifindex, nexthop) {
                (Some(index), _) => value.extend(index.to_ne_bytes()),
                (None, Some(IpAddr::V4(address))) if net.addr().is_ipv4() => value.extend(address.octets()),
                (None, Some(IpAddr::V6(address))) if net.addr().is_ipv6() => value.extend(address.octets()),
                _ => return wrong("the next hop is of another IP version than the network"),
            }
            value.resize(if net.addr().is_ipv4() { Route::<V4>::SIZE } else { Route::<V6>::SIZE }, 0);
            maps.set(&map(net), &key(net), &value)?;
            Ok(writeln!(out, "added route {net}")?)
        }
        Command::Del { net } => {
            let net = network(net)?;
            if maps.remove(&map(net), &[key(net)])? == 0 {
                return Err(Failure::Wrong(format!("{} has no route {net}", map(net))));
            }
            Ok(writeln!(out, "deleted route {net}")?)
        }
    }
}

fn network(text: &str) -> Result<IpNet, Failure> {
    let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    net.map(|net| net.trunc())
        .map_err(|_| Failure::Wrong(format!("{text:?} is neither an address nor a network")))
}

fn map(net: IpNet) -> String {
    format!("cali_v{}_routes", if net.addr().is_ipv4() { 4 } else { 6 })
}

fn key(net: IpNet) -> Vec<u8> {
    let mut key = u32::from(net.prefix_len()).to_ne_bytes().to_vec();
    match net.addr() {
        IpAddr::V4(address) => key.extend(address.octets()),
        IpAddr::V6(address) => key.extend(address.octets()),
    }
    key
}

/// The first words of the flags: location and kind.
fn kind(flags: u32) -> Vec<&'static str> {
    let side = match flags {
        _ if flags & LOCAL != 0 => Some("local"),
        _ if flags & BLACK_HOLES == 0 => Some("remote"),
        _ => None,
    };
    let what = match flags {
        _ if flags & HOST != 0 => Some("host"),
        _ if flags & WORKLOAD != 0 => Some("workload"),
        _ => None,
    };
    side.into_iter().chain(what).collect()
}

fn index<F: Family>(route: &Route<F>) -> u32 {
    let bytes = route.next_hop.as_ref();
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn dump<F: Family>(as_json: bool, maps: &dyn Maps, out: &mut dyn Write) -> Result<(), Failure> {
    let name = format!("cali_v{}_routes", F::NUMBER);
    let all = maps.entries(&name)?;
    let mut all: Vec<(RouteKey<F>, Route<F>)> = all
        .iter()
        .map(|(key, value)| Ok((text::read(&name, key)?, text::read(&name, value)?)))
        .collect::<Result<_, Failure>>()?;
    all.sort_unstable_by_key(|(key, _)| (key.address, key.bits));
    let mut objects = Vec::new();
    for (key, route) in &all {
        let (net, flags) = (format!("{}/{}", text::ip::<F>(&key.address), key.bits), route.flags);
        let hop = match (flags & WORKLOAD != 0, flags & LOCAL != 0) {
            (true, true) => Some(("idx", index(route).to_string())),
            (true, false) => Some(("nh", text::ip::<F>(&route.next_hop).to_string())),
            _ => None,
        };
        let holes = text::names(flags, &[(0x100, "blackhole-drop"), (0x200, "blackhole-reject")]);
        let mut words = kind(flags);
        if as_json {
            words.extend(text::names(flags, &FLAGS[..5]));
            words.extend(text::names(flags, &[(0x400, "vxlan"), FLAGS[5]]));
            words.extend(holes);
            let mut object = json!({"dest": net, "flags": words});
            match hop {
                Some(("idx", _)) => object["ifindex"] = index(route).into(),
                Some((_, address)) => object["next_hop"] = address.into(),
                None => {}
            }
            objects.push(object);
            continue;
        }
        words.extend(text::names(flags, &FLAGS));
        let mut line = words.join(" ");
        if let Some((what, hop)) = hop {
            line += &format!(" {what} {hop}");
        }
        for hole in holes {
            line = format!("{line} {hole}").trim_start().to_owned();
        }
        writeln!(out, "{net:>15}: {line}")?;
    }
    if as_json { text::json(out, &Json::Array(objects)) } else { Ok(()) }
}
