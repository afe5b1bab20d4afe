//! Access to maps by name, and to other state of the machine.

use bpf::{Definition, Map};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The kernel refused, or a map does not have the expected layout.
    #[error(transparent)]
    Map(#[from] bpf::Error),
    /// A netlink request was refused.
    #[error(transparent)]
    Network(#[from] netlink::Error),
    /// The command's arguments are invalid.
    #[error("{0}")]
    Wrong(String),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
}

/// Keys and values as in the kernel; the value in a per-processor map is the concatenation of all processors' values.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// The maps of a machine, by the names of their pins.
pub trait Maps {
    /// Returns all elements of a map.
    ///
    /// # Errors
    /// When the map does not exist or cannot be read.
    fn entries(&self, name: &str) -> Result<Entries, Failure>;

    /// Returns one value.
    ///
    /// # Errors
    /// When the map does not exist or cannot be read.
    fn get(&self, name: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Failure>;

    /// Sets a value.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn set(&mut self, name: &str, key: &[u8], value: &[u8]) -> Result<(), Failure>;

    /// Removes keys; returns how many existed.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn remove(&mut self, name: &str, keys: &[Vec<u8>]) -> Result<usize, Failure>;

    /// Removes and returns the oldest value of a queue, if there is one.
    ///
    /// # Errors
    /// When the queue does not exist or cannot be read.
    fn pop(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure>;

    /// Waits; returns false if waiting is not possible.
    fn pause(&mut self, time: Duration) -> bool;

    /// The capacity of a map.
    ///
    /// # Errors
    /// When the map does not exist.
    fn size(&self, name: &str) -> Result<u32, Failure>;

    /// Creates a map if it does not exist.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn create(&mut self, definition: Definition) -> Result<(), Failure>;

    /// The indexes and names of network devices.
    ///
    /// # Errors
    /// When the kernel does not report them.
    fn devices(&self) -> Result<Vec<(u32, String)>, Failure>;

    /// Nanoseconds of the clock that entries use.
    fn now(&self) -> u64;

    /// Detaches programs: those of the connect-time balancer, or all.
    ///
    /// # Errors
    /// Names everything that could not be removed.
    fn detach(&mut self, only_connect_time: bool) -> Result<(), Failure>;
}

/// The maps of this machine.
#[derive(Debug)]
pub struct Pinned {
    root: PathBuf,
}

impl Pinned {
    /// Uses the pins below this mount point of a BPF file system.
    #[must_use]
    pub fn new(file_system: &Path) -> Self {
        Self { root: file_system.to_owned() }
    }

    /// Uses the pins of this machine, where Calico looks for them.
    #[must_use]
    pub fn of_machine() -> Self {
        let places = ["/sys/fs/bpf", "/var/run/calico/bpffs"].map(Path::new);
        let has_maps = |place: &&&Path| place.join("tc/globals").is_dir();
        Self::new(places.iter().find(has_maps).unwrap_or(&places[0]))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join("tc/globals").join(name)
    }

    fn open(&self, name: &str) -> Result<Map, Failure> {
        Ok(Map::open(&self.path(name))?)
    }
}

impl Maps for Pinned {
    fn entries(&self, name: &str) -> Result<Entries, Failure> {
        Ok(self.open(name)?.entries()?)
    }

    fn get(&self, name: &str, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.open(name)?.get(key)?)
    }

    fn set(&mut self, name: &str, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        Ok(self.open(name)?.set(key, value)?)
    }

    fn remove(&mut self, name: &str, keys: &[Vec<u8>]) -> Result<usize, Failure> {
        Ok(self.open(name)?.remove_many(keys)?)
    }

    fn pop(&mut self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        Ok(self.open(name)?.pop()?)
    }

    fn pause(&mut self, time: Duration) -> bool {
        std::thread::sleep(time);
        true
    }

    fn size(&self, name: &str) -> Result<u32, Failure> {
        Ok(self.open(name)?.definition().entries)
    }

    fn create(&mut self, definition: Definition) -> Result<(), Failure> {
        let path = self.path(&definition.name);
        if path.exists() {
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(Map::create(definition)?.pin(&path)?)
    }

    fn devices(&self) -> Result<Vec<(u32, String)>, Failure> {
        use netlink::Kernel as _;
        let links = netlink::Handle::open()?.links()?;
        Ok(links.into_iter().map(|link| (link.index, link.name)).collect())
    }

    fn now(&self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let part = |number: i64| u64::try_from(number).unwrap_or_default();
        part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
    }

    fn detach(&mut self, only_connect_time: bool) -> Result<(), Failure> {
        crate::pins::detach(&self.root, only_connect_time)
    }
}
