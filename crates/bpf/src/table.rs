//! Typed maps: keys and values with a known layout. A wrapper is only created for a map of the right kind and sizes.

use crate::error::{Error, Result};
use crate::map::{Kind, Map, processors};
use crate::program::Program;
use std::marker::PhantomData;
use std::os::fd::AsFd as _;

/// A value with a fixed byte layout.
pub trait Layout: Sized {
    /// The size in bytes.
    const SIZE: usize;

    /// Encodes the value; `to` has [`Self::SIZE`] bytes and is zeroed.
    fn write(&self, to: &mut [u8]);

    /// Decodes a value; `from` has [`Self::SIZE`] bytes.
    fn read(from: &[u8]) -> Self;

    /// The encoded value.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        self.write(&mut bytes);
        bytes
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Layout for $number {
            const SIZE: usize = size_of::<$number>();
            fn write(&self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_ne_bytes());
            }
            fn read(from: &[u8]) -> Self {
                let mut bytes = [0; size_of::<$number>()];
                bytes.copy_from_slice(from);
                Self::from_ne_bytes(bytes)
            }
        }
    )*};
}
numbers!(u16, u32, u64);

impl<const N: usize> Layout for [u8; N] {
    const SIZE: usize = N;

    fn write(&self, to: &mut [u8]) {
        to.copy_from_slice(self);
    }

    fn read(from: &[u8]) -> Self {
        let mut bytes = [0; N];
        bytes.copy_from_slice(from);
        bytes
    }
}

fn check(map: &Map, kinds: &[Kind], key: usize, value: usize) -> Result<()> {
    let definition = map.definition();
    if kinds.contains(&definition.kind) && (definition.key, definition.value) == (key, value) {
        return Ok(());
    }
    Err(Error::Unfit {
        name: definition.name.clone(),
        found: format!("kind {:?}, key {}, value {}", definition.kind, definition.key, definition.value),
        expected: format!("one of {kinds:?}, key {key}, value {value}"),
    })
}

/// A hash, array or prefix map with one value per key.
#[derive(Debug)]
pub struct Table<'a, K, V> {
    map: &'a Map,
    types: PhantomData<(K, V)>,
}

impl<'a, K: Layout, V: Layout> Table<'a, K, V> {
    /// Wraps a map.
    ///
    /// # Errors
    /// When its kind or sizes differ.
    pub fn new(map: &'a Map) -> Result<Self> {
        check(map, &[Kind::Hash, Kind::Array, Kind::LruHash, Kind::Lpm], K::SIZE, V::SIZE)?;
        Ok(Self { map, types: PhantomData })
    }

    /// Reads the value of a key.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        Ok(self.map.get(&key.bytes())?.map(|value| V::read(&value)))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// When the kernel refuses: the map is full or frozen.
    pub fn set(&self, key: &K, value: &V) -> Result<()> {
        self.map.set(&key.bytes(), &value.bytes())
    }

    /// Removes a key; returns whether it existed.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn remove(&self, key: &K) -> Result<bool> {
        self.map.remove(&key.bytes())
    }

    /// Returns all elements.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn entries(&self) -> Result<Vec<(K, V)>> {
        let all = self.map.entries()?;
        Ok(all.iter().map(|(key, value)| (K::read(key), V::read(value))).collect())
    }
}

/// A hash or array with one value per processor.
#[derive(Debug)]
pub struct PerCpu<'a, K, V> {
    map: &'a Map,
    types: PhantomData<(K, V)>,
}

impl<'a, K: Layout, V: Layout> PerCpu<'a, K, V> {
    /// Wraps a map.
    ///
    /// # Errors
    /// When its kind or sizes differ.
    pub fn new(map: &'a Map) -> Result<Self> {
        check(map, &[Kind::PerCpuHash, Kind::PerCpuArray], K::SIZE, V::SIZE)?;
        Ok(Self { map, types: PhantomData })
    }

    /// Reads the values of a key, one per processor; empty if the key does not exist.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn get(&self, key: &K) -> Result<Vec<V>> {
        let Some(value) = self.map.get(&key.bytes())? else { return Ok(Vec::new()) };
        Ok(Self::values(&value))
    }

    /// Returns all elements: the values of each key, one per processor.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn entries(&self) -> Result<Vec<(K, Vec<V>)>> {
        let all = self.map.entries()?;
        Ok(all.iter().map(|(key, value)| (K::read(key), Self::values(value))).collect())
    }

    fn values(bytes: &[u8]) -> Vec<V> {
        bytes.chunks_exact(V::SIZE.next_multiple_of(8)).map(|one| V::read(&one[..V::SIZE])).collect()
    }

    /// Sets the same value for every processor.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn fill(&self, key: &K, value: &V) -> Result<()> {
        let mut one = value.bytes();
        one.resize(V::SIZE.next_multiple_of(8), 0);
        self.map.set(&key.bytes(), &one.repeat(processors()))
    }
}

/// Values that programs append and this process takes out.
#[derive(Debug)]
pub struct Queue<'a, V> {
    map: &'a Map,
    types: PhantomData<V>,
}

impl<'a, V: Layout> Queue<'a, V> {
    /// Wraps a map.
    ///
    /// # Errors
    /// When its kind or size differs.
    pub fn new(map: &'a Map) -> Result<Self> {
        check(map, &[Kind::Queue], 0, V::SIZE)?;
        Ok(Self { map, types: PhantomData })
    }

    /// Removes and returns the oldest value, if there is one.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn pop(&self) -> Result<Option<V>> {
        Ok(self.map.pop()?.map(|value| V::read(&value)))
    }
}

/// An array of programs for tail calls.
#[derive(Debug)]
pub struct ProgramArray<'a> {
    map: &'a Map,
}

impl<'a> ProgramArray<'a> {
    /// Wraps a map.
    ///
    /// # Errors
    /// When it is of another kind.
    pub fn new(map: &'a Map) -> Result<Self> {
        check(map, &[Kind::ProgramArray], 4, 4)?;
        Ok(Self { map })
    }

    /// Sets the program at an index.
    ///
    /// # Errors
    /// When the kernel refuses: the program's type differs from that of the array's other programs.
    pub fn set(&self, number: u32, program: &Program) -> Result<()> {
        self.map.set_fd(&number.to_ne_bytes(), program.as_fd())
    }

    /// Removes the program at an index; returns whether there was one.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn clear(&self, number: u32) -> Result<bool> {
        self.map.remove(&number.to_ne_bytes())
    }
}
