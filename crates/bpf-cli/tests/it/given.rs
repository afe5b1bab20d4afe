//! Maps as data, and the output of commands on them.

use bpf::Definition;
use bpf_cli::{Arguments, Failure, Maps, run};
use clap::Parser as _;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const NOW: u64 = 1_000 * SECOND;

/// A key and a value.
pub(crate) fn entry(key: impl bpf::Layout + Copy, value: impl bpf::Layout + Copy) -> (Vec<u8>, Vec<u8>) {
    (key.bytes(), value.bytes())
}

/// A machine in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) maps: BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>,
    pub(crate) devices: Vec<(u32, String)>,
    pub(crate) made: Vec<Definition>,
    pub(crate) detached: Vec<bool>,
    pub(crate) queues: BTreeMap<String, VecDeque<Vec<u8>>>,
    /// Values that were set, in order.
    pub(crate) written: Vec<Vec<u8>>,
}

impl Given {
    pub(crate) fn with(mut self, map: &str, entries: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        self.maps.entry(map.to_owned()).or_default().extend(entries);
        self
    }

    fn map(&self, name: &str) -> Result<&BTreeMap<Vec<u8>, Vec<u8>>, Failure> {
        self.maps.get(name).ok_or_else(|| Failure::Wrong(format!("{name} does not exist")))
    }

    /// Runs a command; returns its output.
    pub(crate) fn run(&mut self, line: &str) -> Result<String, String> {
        let words = ["calico-bpf"].into_iter().chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        run(&arguments, "v1", self, &mut out).map_err(|error| error.to_string())?;
        String::from_utf8(out).map_err(|error| error.to_string())
    }

    /// Runs a command that must succeed; returns its output.
    pub(crate) fn prints(&mut self, line: &str) -> String {
        self.run(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    pub(crate) fn json(&mut self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.prints(line)).expect("JSON")
    }
}

impl Maps for Given {
    fn entries(&self, name: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Failure> {
        // The kernel's order is arbitrary; this one is not sorted either.
        Ok(self.map(name)?.iter().rev().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    fn get(&self, name: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.map(name)?.get(key).cloned())
    }

    fn set(&mut self, name: &str, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.map(name)?;
        self.written.push(value.to_vec());
        self.maps.entry(name.to_owned()).or_default().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn remove(&mut self, name: &str, keys: &[Vec<u8>]) -> Result<usize, Failure> {
        self.map(name)?;
        let map = self.maps.entry(name.to_owned()).or_default();
        Ok(keys.iter().filter(|key| map.remove(*key).is_some()).count())
    }

    fn pop(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let queue = self.queues.get_mut(name);
        Ok(queue.ok_or_else(|| Failure::Wrong(format!("{name} does not exist")))?.pop_front())
    }

    fn pause(&mut self, _: Duration) -> bool {
        false
    }

    fn size(&self, name: &str) -> Result<u32, Failure> {
        self.map(name).map(|_| 512_000)
    }

    fn create(&mut self, definition: Definition) -> Result<(), Failure> {
        self.maps.entry(definition.name.clone()).or_default();
        self.made.push(definition);
        Ok(())
    }

    fn devices(&self) -> Result<Vec<(u32, String)>, Failure> {
        Ok(self.devices.clone())
    }

    fn now(&self) -> u64 {
        NOW
    }

    fn detach(&mut self, only_connect_time: bool) -> Result<(), Failure> {
        self.detached.push(only_connect_time);
        Ok(())
    }
}
