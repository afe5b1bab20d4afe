//! Random tables and packets: the program in the kernel and the evaluator of `bpf-policy` agree about each, down to the
//! rules that were hit.

use crate::bench::{Bench, Direction, NEXT};
use crate::packets::{SYN, V4, V6, icmp, sctp, tcp, udp};
use anyhow::{Context, Result, ensure};
use bpf::interface::Version;
use bpf::{Layout as _, PerCpu};
use bpf_policy::layout::{
    Action, Bytes, ClassId, DIMENSIONS, ListId, PairKey, PortKey, ROW_WORDS, Row, RowKey, RuleEntry, RuleKey,
    SEGMENT_RULES, Segment, SegmentKey,
};
use bpf_policy::{Outcome, Packet, Table, Tables, Verdict, evaluate};
use ipnet::IpNet;
use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};
use std::net::IpAddr;

const PACKETS: usize = 24;
const CLASSES: u64 = 6;
const VALUES: u64 = 4;

/// Pseudo-random numbers derived from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }

    fn byte(&mut self, limit: u64) -> u8 {
        u8::try_from(self.below(limit)).unwrap()
    }

    /// A row: empty, full, or with this percentage of bits.
    fn row(&mut self, percent: u64) -> Row {
        match self.below(6) {
            0 => Row::default(),
            1 => Row([u64::MAX; ROW_WORDS]),
            _ => {
                let mut row = Row::default();
                for word in &mut row.0 {
                    for bit in 0..64 {
                        *word |= u64::from(self.chance(percent)) << bit;
                    }
                }
                row
            }
        }
    }
}

fn address(version: Version, number: u8) -> IpAddr {
    match version {
        Version::V4 => [10, number / 4, number % 4, number].into(),
        Version::V6 => [0xfd, number / 4, 0, 0, number % 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number].into(),
    }
}

fn protocols(version: Version) -> [u8; 5] {
    [6, 17, 132, if version == Version::V4 { 1 } else { 58 }, 47]
}

fn tables(random: &mut Random, version: Version, list: ListId) -> Tables {
    let mut tables = Tables::default();
    for number in 0..16 {
        let address = address(version, number);
        if random.chance(50) {
            tables.addresses.set(address, ClassId(random.below(CLASSES)));
        }
        if random.chance(40) {
            let longest = if version == Version::V4 { 31 } else { 127 };
            let net = IpNet::new(address, random.byte(longest + 1)).unwrap().trunc();
            tables.nets.set(net, ClassId(random.below(CLASSES)));
        }
        if random.chance(40) {
            let key =
                PairKey { address, protocol: random.pick(&[6, 17, 132]), port: u16::from(random.byte(4)) };
            tables.pairs.set(key, ClassId(random.below(CLASSES)));
        }
    }
    for dimension in [2, 3] {
        for _ in 0..random.below(12) {
            let bits = random.pick(&[0, 4, 8, 13, 14, 15, 16]);
            let port = u16::try_from(random.below(8)).unwrap() << random.pick(&[0, 8]);
            let port = port & u16::MAX.checked_shl(16 - u32::from(bits)).unwrap_or(0);
            let protocol = random.pick(&protocols(version));
            let key = PortKey { list, dimension, protocol, port, bits };
            tables.ports.set(key, u32::try_from(random.below(VALUES)).unwrap());
        }
    }
    let count: usize = random.pick(&[1, 5, 63, 64, 65, 1000, 1023, 1024, 1025, 2100]);
    let (all, percent) = (random.byte(64), random.pick(&[1, 10, 60]));
    let segments = count.div_ceil(SEGMENT_RULES);
    for number in 0..segments {
        let rules = (count - number * SEGMENT_RULES).min(SEGMENT_RULES);
        let dimensions = all & random.byte(64);
        let segment = Segment {
            rules: u16::try_from(rules).unwrap(),
            dimensions,
            list_dimensions: all,
            last: number + 1 == segments,
            log: if random.chance(50) { random.row(5) } else { Row::default() },
            defaults: std::array::from_fn(|_| random.row(percent)),
        };
        // Occasionally an element is missing.
        if random.chance(98) {
            tables.segments.set(SegmentKey { list, segment: u32::try_from(number).unwrap() }, segment);
        }
        for dimension in 0..u8::try_from(DIMENSIONS).unwrap() {
            for value in 1..CLASSES {
                if dimensions >> dimension & 1 == 1 && random.chance(70) {
                    let segment = u16::try_from(number).unwrap();
                    tables.rows.set(RowKey { list, value, segment, dimension }, random.row(percent));
                }
            }
        }
    }
    let passes = random.pick(&[0, 20, 90]);
    for rule in 0..u32::try_from(count).unwrap() {
        let action = if random.chance(passes) {
            Action::Pass
        } else {
            random.pick(&[Action::Allow, Action::Allow, Action::Deny, Action::None, Action::Log])
        };
        let next = rule + 1 + u32::try_from(random.below(40)).unwrap();
        let id = random.pick(&[0, 1, 2, 3]) * u64::from(rule + 1);
        if random.chance(99) {
            tables.rules.set(RuleKey { list, rule }, RuleEntry { id, next, action });
        }
    }
    tables
}

fn packet(random: &mut Random, version: Version) -> Packet {
    let kinds: &[u8] = if version == Version::V4 { &[0, 8, 13] } else { &[128, 129] };
    let mut port = || u16::try_from(random.below(8)).unwrap() << random.pick(&[0, 0, 8]);
    let ports = (port(), port());
    Packet {
        source: address(version, random.byte(18)),
        destination: address(version, random.byte(18)),
        protocol: random.pick(&protocols(version)),
        ports,
        icmp: (random.pick(kinds), random.byte(3)),
    }
}

fn frame(packet: &Packet) -> Vec<u8> {
    let (source, destination) = packet.ports;
    let payload = match packet.protocol {
        6 => tcp(source, destination, SYN, 1, 0),
        17 => udp(source, destination),
        132 => sctp(source, destination),
        1 | 58 => icmp(packet.icmp.0, packet.icmp.1, &[]),
        _ => vec![0; 8],
    };
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => V4 {
            source: source.octets(),
            destination: destination.octets(),
            protocol: packet.protocol,
            id: 0,
            fragment: 0,
            options: &[],
            payload: &payload,
        }
        .frame(),
        (IpAddr::V6(source), IpAddr::V6(destination)) => V6 {
            source: source.octets(),
            destination: destination.octets(),
            next: packet.protocol,
            payload: &payload,
        }
        .frame(),
        _ => unreachable!("both addresses are of one version"),
    }
}

/// Writes a table to its map, replacing what is there.
fn write<K: Bytes + Ord + Clone, V: Bytes + PartialEq>(
    bench: &Bench,
    map: &str,
    table: &Table<K, V>,
) -> Result<()> {
    let map = bench.map(map)?;
    map.remove_many(&map.keys()?)?;
    let elements: Vec<_> = table.iter().map(|(key, value)| (key.to_bytes(), value.to_bytes())).collect();
    Ok(map.set_many(&elements)?)
}

fn write_all(bench: &Bench, version: Version, tables: &Tables) -> Result<()> {
    let name = |name: &str| format!("bpfp_v{}_{name}", if version == Version::V4 { 4 } else { 6 });
    write(bench, &name("addr"), &tables.addresses)?;
    write(bench, &name("net"), &tables.nets)?;
    write(bench, &name("pair"), &tables.pairs)?;
    write(bench, "bpfp_port", &tables.ports)?;
    write(bench, "bpfp_segment", &tables.segments)?;
    write(bench, "bpfp_row", &tables.rows)?;
    write(bench, "bpfp_rule", &tables.rules)
}

/// The program's scratch data about a packet, with the sizes of `struct packet` and `struct tuple` (`bpf/packet.h`).
struct Notes<const SIZE: usize, const TUPLE: usize>;

impl<const SIZE: usize, const TUPLE: usize> Notes<SIZE, TUPLE> {
    const UNTOUCHED: u8 = 0xee;

    /// The program's outcome, from whichever processor it ran on.
    fn outcome(bench: &Bench, packet: &[u8]) -> Result<(i32, Outcome)> {
        let map = PerCpu::<u32, [u8; SIZE]>::new(bench.map("cali_packet")?)?;
        map.fill(&0, &[Self::UNTOUCHED; SIZE])?;
        let (fate, _) = bench.send(Direction::In, packet)?;
        let notes = map.get(&0)?;
        let notes = notes.iter().find(|notes| notes[0] != Self::UNTOUCHED).context("no processor wrote")?;
        let word = |place: usize| u32::read(&notes[place..place + 4]);
        let hits = (0..word(TUPLE + 12) as usize)
            .map(|hit| u64::read(&notes[TUPLE + 72 + hit * 8..TUPLE + 80 + hit * 8]))
            .collect();
        let verdict = match word(TUPLE + 460) {
            0 => Verdict::None,
            1 => Verdict::Allow,
            _ => Verdict::Deny,
        };
        Ok((fate, Outcome { verdict, hits, log: word(TUPLE + 456) != 0 }))
    }
}

fn compare(bench: &Bench, version: Version, seed: u64) -> Result<[usize; 3]> {
    let mut random = Random(seed);
    let list = ListId(random.next() | 1);
    let tables = tables(&mut random, version, list);
    write_all(bench, version, &tables)?;
    bench.lists(&[(1, list.0)])?;
    let connections = bench.map(if version == Version::V4 { "cali_v4_ct4" } else { "cali_v6_ct4" })?;
    let mut seen = [0; 3];
    for _ in 0..PACKETS {
        let packet = packet(&mut random, version);
        let expected = evaluate(&tables, list, &packet);
        let frame = frame(&packet);
        let (fate, found) = match version {
            Version::V4 => Notes::<872, 24>::outcome(bench, &frame)?,
            Version::V6 => Notes::<1000, 48>::outcome(bench, &frame)?,
        };
        ensure!(found == expected, "seed {seed}: {packet:?}\nkernel {found:?}\noracle {expected:?}");
        ensure!((fate == NEXT) == (expected.verdict == Verdict::Allow), "seed {seed}: {packet:?}: {fate}");
        connections.remove_many(&connections.keys()?)?;
        seen[0] += usize::from(expected.verdict == Verdict::Allow);
        seen[1] += usize::from(expected.hits.len() > 1);
        seen[2] += usize::from(expected.log);
    }
    Ok(seen)
}

/// Compares this many random tables for an IP version; returns how many packets took each path.
pub(crate) fn agree(version: Version, cases: u32) -> Result<[usize; 3]> {
    let bench = Bench::new(version, true)?;
    let seen = std::cell::Cell::new([0; 3]);
    let mut config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config.failure_persistence = None;
    proptest!(config, |(seed in any::<u64>())| {
        let result = compare(&bench, version, seed);
        prop_assert!(result.is_ok(), "{:#}", result.unwrap_err());
        let (before, now) = (seen.get(), result.unwrap());
        seen.set(std::array::from_fn(|place| before[place] + now[place]));
    });
    Ok(seen.get())
}

#[test]
fn the_kernel_and_the_evaluator_agree_about_random_tables() -> Result<()> {
    for version in [Version::V4, Version::V6] {
        let seen = agree(version, 40)?;
        // The tables are generated such that every path is taken.
        ensure!(seen.iter().all(|times| *times > 20), "{version:?}: {seen:?}");
    }
    Ok(())
}
