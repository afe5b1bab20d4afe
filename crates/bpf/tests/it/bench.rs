//! A test bench for packets: the programs of one interface in both directions on the same maps, and lists of rules.

use crate::objects::{sized, small};
use anyhow::{Context, Result, ensure};
use bpf::interface::{ENTRY, Interface, Options, Version};
use bpf::layout::network::{CounterKey, Counters};
use bpf::xdp::{self, AtDriver};
use bpf::{Layout as _, Loaded, Map, PerCpu, Program, TestRun};
use std::collections::BTreeMap;

/// The device of a packet that did not arrive on any device: the loopback interface.
pub(crate) const DEVICE: u32 = 1;
pub(crate) const NEXT: i32 = -1;
pub(crate) const DROP: i32 = 2;
pub(crate) const SEEN: u32 = 0x0100_0000;
pub(crate) const BYPASS: u32 = 0x0300_0000;
pub(crate) const FALL_THROUGH: u32 = 0x0500_0000;
const ALLOW: u8 = 1;
const DENY: u8 = 2;
const NONE: u8 = 5;
/// Lists that decide the same about everything, by id.
pub(crate) const ALLOWS: u64 = 11;
pub(crate) const DENIES: u64 = 12;
pub(crate) const NO_OPINION: u64 = 15;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

pub(crate) struct Bench {
    version: Version,
    first: Loaded,
    second: Loaded,
}

/// The programs of another interface, on a bench's maps.
pub(crate) struct Side {
    first: Loaded,
    second: Loaded,
}

/// The outcome for a packet: verdict and mark.
pub(crate) type Fate = (i32, u32);

fn run(program: &Program, frame: &[u8], mark: u32, device: u32, came_by: u32) -> Result<(Fate, Vec<u8>)> {
    let mut context = vec![0; 192];
    context[8..12].copy_from_slice(&mark.to_ne_bytes());
    // The packet arrived on this device, whether or not it leaves through it.
    context[36..40].copy_from_slice(&came_by.to_ne_bytes());
    context[40..44].copy_from_slice(&device.to_ne_bytes());
    let outcome = program.test_run(&TestRun { packet: frame, context: &context, repeat: 1 })?;
    Ok(((outcome.verdict, u32::read(&outcome.context[8..12])), outcome.packet))
}

impl Side {
    pub(crate) fn send(&self, direction: Direction, frame: &[u8], mark: u32) -> Result<(Fate, Vec<u8>)> {
        self.send_on(direction, frame, mark, 0)
    }

    /// Sends a packet out by the device that it arrived on.
    pub(crate) fn send_back(&self, frame: &[u8], mark: u32) -> Result<(Fate, Vec<u8>)> {
        run(self.program(Direction::Out)?, frame, mark, 0, DEVICE)
    }

    /// The program that is attached for a direction.
    pub(crate) fn program(&self, direction: Direction) -> Result<&Program> {
        let loaded = if direction == Direction::In { &self.first } else { &self.second };
        Ok(loaded.program(ENTRY)?)
    }

    /// Sends a packet through a device of this thread's namespace.
    pub(crate) fn send_on(
        &self,
        direction: Direction,
        frame: &[u8],
        mark: u32,
        device: u32,
    ) -> Result<(Fate, Vec<u8>)> {
        run(self.program(direction)?, frame, mark, device, 0)
    }
}

impl Bench {
    pub(crate) fn new(version: Version, is_workload: bool) -> Result<Self> {
        Self::with(version, is_workload, false, false)
    }

    pub(crate) fn with(
        version: Version,
        is_workload: bool,
        has_both: bool,
        checks_source: bool,
    ) -> Result<Self> {
        Self::with_options(version, is_workload, has_both, checks_source, &Options::default())
    }

    pub(crate) fn with_options(
        version: Version,
        is_workload: bool,
        has_both: bool,
        checks_source: bool,
        options: &Options,
    ) -> Result<Self> {
        let interface = |is_leaving| Interface {
            is_workload,
            is_leaving,
            is_layer_3: false,
            has_both,
            checks_source: checks_source && !is_leaving,
        };
        let object = small(version.object()?, version)?;
        let first = interface(false).load_with(object.clone(), options, &BTreeMap::new())?;
        let own = ["cali_programs", "rodata", ".rodata"];
        let shared = first.maps.iter().filter(|(name, _)| !own.contains(&name.as_str()));
        let shared = shared.map(|(name, map)| (name.as_str(), map)).collect();
        let second = interface(true).load_with(object, options, &shared)?;
        let bench = Self { version, first, second };
        bench.count(DEVICE)?;
        for (list, action) in [(ALLOWS, ALLOW), (DENIES, DENY), (NO_OPINION, NONE)] {
            bench.list_of_one(list, action)?;
        }
        Ok(bench)
    }

    /// Loads programs of another interface on the same maps.
    pub(crate) fn beside(&self, interface: &Interface, options: &Options) -> Result<Side> {
        let object = small(self.version.object()?, self.version)?;
        let own = ["cali_programs", "rodata", ".rodata"];
        let shared = self.first.maps.iter().filter(|(name, _)| !own.contains(&name.as_str()));
        let shared: BTreeMap<_, _> = shared.map(|(name, map)| (name.as_str(), map)).collect();
        let load = |is_leaving| {
            let interface =
                Interface { is_leaving, checks_source: interface.checks_source && !is_leaving, ..*interface };
            interface.load_with(object.clone(), options, &shared)
        };
        Ok(Side { first: load(false)?, second: load(true)? })
    }

    /// Loads XDP programs on the same maps.
    pub(crate) fn at_driver(&self, options: &Options) -> Result<AtDriver> {
        let own = ["cali_programs", "rodata", ".rodata", "cali_packet"];
        let shared = self.first.maps.iter().filter(|(name, _)| !own.contains(&name.as_str()));
        let shared: BTreeMap<_, _> = shared.map(|(name, map)| (name.as_str(), map)).collect();
        let object = sized(xdp::object(self.version)?)?;
        Ok(AtDriver::load(vec![(self.version, object)], options, &shared)?)
    }

    pub(crate) fn map(&self, name: &str) -> Result<&Map> {
        Ok(self.first.map(name)?)
    }

    /// Writes a list with one rule without conditions; the rule's id in counters is the list's id plus 100.
    fn list_of_one(&self, list: u64, action: u8) -> Result<()> {
        let mut segment = vec![0; 904];
        (segment[0], segment[4]) = (1, 1);
        let key = |rule: u32| [list.bytes(), rule.bytes(), vec![0; 4]].concat();
        self.map("bpfp_segment")?.set(&key(0), &segment)?;
        let rule = [(list + 100).bytes(), vec![0; 4], vec![action, 0, 0, 0]].concat();
        self.map("bpfp_rule")?.set(&key(0), &rule)?;
        Ok(())
    }

    /// Starts counting packets of a device.
    pub(crate) fn count(&self, device: u32) -> Result<()> {
        let counters = PerCpu::<CounterKey, Counters>::new(self.map("cali_counters6")?)?;
        for hook in [0, 1, 2] {
            counters.fill(&CounterKey { device, hook }, &Counters::default())?;
        }
        Ok(())
    }

    /// The program that is attached for a direction.
    pub(crate) fn entry(&self, direction: Direction) -> Result<&Program> {
        let loaded = if direction == Direction::In { &self.first } else { &self.second };
        Ok(loaded.program(ENTRY)?)
    }

    /// Sets the lists of the interface by index.
    pub(crate) fn lists(&self, lists: &[(usize, u64)]) -> Result<()> {
        self.lists_of(DEVICE, lists)
    }

    pub(crate) fn lists_of(&self, device: u32, lists: &[(usize, u64)]) -> Result<()> {
        let family: u32 = if self.version == Version::V4 { 4 } else { 6 };
        let mut ids = [0_u64; 9];
        for (place, list) in lists {
            ids[*place] = *list;
        }
        let value: Vec<u8> = ids.iter().flat_map(bpf::Layout::bytes).collect();
        self.map("bpfp_lists")?.set(&[device.bytes(), family.bytes()].concat(), &value)?;
        Ok(())
    }

    pub(crate) fn send(&self, direction: Direction, frame: &[u8]) -> Result<Fate> {
        self.send_marked(direction, frame, 0)
    }

    pub(crate) fn send_marked(&self, direction: Direction, frame: &[u8], mark: u32) -> Result<Fate> {
        let (fate, packet) = run(self.entry(direction)?, frame, mark, 0, 0)?;
        ensure!(packet == frame, "the packet was changed");
        Ok(fate)
    }

    /// How often a reason was counted, summed over all processors.
    pub(crate) fn counted(&self, direction: Direction, reason: usize) -> Result<u64> {
        self.counted_of(DEVICE, direction, reason)
    }

    pub(crate) fn counted_of(&self, device: u32, direction: Direction, reason: usize) -> Result<u64> {
        self.counted_at(device, u32::from(direction == Direction::Out), reason)
    }

    /// How often a reason was counted at a device's hook; hook 2 is XDP.
    pub(crate) fn counted_at(&self, device: u32, hook: u32, reason: usize) -> Result<u64> {
        let counters = PerCpu::<CounterKey, Counters>::new(self.map("cali_counters6")?)?;
        let values = counters.get(&CounterKey { device, hook })?;
        Ok(values.iter().map(|value| value.0[reason]).sum())
    }

    /// How often a rule was hit.
    pub(crate) fn hits(&self, rule: u64) -> Result<u64> {
        Ok(PerCpu::<u64, u64>::new(self.map("cali_rule_ctrs2")?)?.get(&rule)?.iter().sum())
    }

    /// The only known connection.
    pub(crate) fn connection(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let name = if self.version == Version::V4 { "cali_v4_ct4" } else { "cali_v6_ct4" };
        let mut all = self.map(name)?.entries()?;
        ensure!(all.len() == 1, "{} connections", all.len());
        all.pop().context("no connection")
    }

    pub(crate) fn connections(&self) -> Result<usize> {
        let name = if self.version == Version::V4 { "cali_v4_ct4" } else { "cali_v6_ct4" };
        Ok(self.map(name)?.entries()?.len())
    }
}
