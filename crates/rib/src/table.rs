//! The prefixes of one family and their paths. Nearly all prefixes have one path, which is stored in place.
//!
//! Adjacent prefixes are stored side by side: sixteen of one length share a random position, followed by their order in
//! it. A peer sends its table in order, and a table is larger than the processor's cache, so memory access is most of
//! the cost of a route. Positions are as hard to guess as those of any hash map here, so no peer can choose colliding
//! prefixes.

use crate::prefix::Key;
use crate::route::{Path, Source};
use hashbrown::DefaultHashBuilder;
use hashbrown::hash_table::{Entry, HashTable};
use std::hash::BuildHasher as _;

/// The paths of a prefix; never empty.
#[derive(Clone, Debug)]
pub(crate) enum Paths {
    One(Path),
    Many(Box<[Path]>),
}

impl Paths {
    pub(crate) fn as_slice(&self) -> &[Path] {
        match self {
            Self::One(path) => std::slice::from_ref(path),
            Self::Many(paths) => paths,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [Path] {
        match self {
            Self::One(path) => std::slice::from_mut(path),
            Self::Many(paths) => paths,
        }
    }

    fn from_vec(mut paths: Vec<Path>) -> Option<Self> {
        match paths.len() {
            0 => None,
            1 => paths.pop().map(Self::One),
            _ => Some(Self::Many(paths.into())),
        }
    }

    /// Adds a path of a source that has none for this prefix.
    fn push(&mut self, path: Path) {
        let mut more = self.as_slice().to_vec();
        more.push(path);
        if let Some(more) = Self::from_vec(more) {
            *self = more;
        }
    }
}

/// The prefixes of one family.
pub(crate) struct Table<K> {
    entries: HashTable<(K, Paths)>,
    paths: usize,
    random: DefaultHashBuilder,
}

impl<K: Key> Default for Table<K> {
    fn default() -> Self {
        Self { entries: HashTable::new(), paths: 0, random: DefaultHashBuilder::default() }
    }
}

/// The entry for a prefix.
pub(crate) enum Place<'a, K> {
    /// No entry; a first path can be added.
    Free(Free<'a, K>),
    /// An entry with paths.
    Taken(Taken<'a, K>),
}

/// The entry for a prefix without paths.
pub(crate) struct Free<'a, K> {
    entry: hashbrown::hash_table::VacantEntry<'a, (K, Paths)>,
    count: &'a mut usize,
    key: K,
}

impl<K: Key> Free<'_, K> {
    /// Adds the first path.
    pub(crate) fn put(self, path: Path) {
        self.entry.insert((self.key, Paths::One(path)));
        *self.count += 1;
    }
}

/// The entry for a prefix with paths.
pub(crate) struct Taken<'a, K> {
    entry: hashbrown::hash_table::OccupiedEntry<'a, (K, Paths)>,
    count: &'a mut usize,
}

impl<K: Key> Taken<'_, K> {
    pub(crate) fn paths(&self) -> &[Path] {
        self.entry.get().1.as_slice()
    }

    pub(crate) fn paths_mut(&mut self) -> &mut [Path] {
        self.entry.get_mut().1.as_mut_slice()
    }

    /// Adds a path, replacing and returning the one from the same source.
    pub(crate) fn put(&mut self, path: Path) -> Option<Path> {
        let source = path.source();
        if let Some(place) = self.paths_mut().iter_mut().find(|one| one.is_from(source)) {
            return Some(std::mem::replace(place, path));
        }
        self.entry.get_mut().1.push(path);
        *self.count += 1;
        None
    }

    /// Removes the path from a source; returns it, and the entry if paths remain.
    pub(crate) fn take(mut self, source: Source) -> (Option<Path>, Option<Self>) {
        let Some(place) = self.paths().iter().position(|path| path.is_from(source)) else {
            return (None, Some(self));
        };
        *self.count -= 1;
        if let (_, Paths::Many(many)) = self.entry.get_mut() {
            let mut left = std::mem::take(many).into_vec();
            let taken = left.remove(place);
            if let Some(left) = Paths::from_vec(left) {
                self.entry.get_mut().1 = left;
            }
            return (Some(taken), Some(self));
        }
        match self.entry.remove().0 {
            (_, Paths::One(path)) => (Some(path), None),
            (_, Paths::Many(_)) => (None, None),
        }
    }
}

impl<K: Key> Table<K> {
    /// The number of prefixes and paths.
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.entries.len(), self.paths)
    }

    pub(crate) fn get(&self, key: K) -> &[Path] {
        let found = self.entries.find(hash(&self.random, key), |(one, _)| *one == key);
        found.map_or(&[], |(_, paths)| paths.as_slice())
    }

    pub(crate) fn get_mut(&mut self, key: K) -> &mut [Path] {
        let found = self.entries.find_mut(hash(&self.random, key), |(one, _)| *one == key);
        found.map_or(&mut [], |(_, paths)| paths.as_mut_slice())
    }

    /// Looks up the entry for a prefix.
    pub(crate) fn place(&mut self, key: K) -> Place<'_, K> {
        let Self { entries, paths: count, random } = self;
        let again = |(key, _): &(K, Paths)| hash(random, *key);
        match entries.entry(hash(random, key), |(one, _)| *one == key, again) {
            Entry::Vacant(entry) => Place::Free(Free { entry, count, key }),
            Entry::Occupied(entry) => Place::Taken(Taken { entry, count }),
        }
    }

    /// The prefixes whose paths meet a condition, in order.
    pub(crate) fn keys(&self, wanted: impl Fn(&[Path]) -> bool) -> Vec<K> {
        let mut keys: Vec<K> =
            self.entries.iter().filter(|(_, paths)| wanted(paths.as_slice())).map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }

    /// The memory of the table itself in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.entries.allocation_size() + self.paths.saturating_sub(self.entries.len()) * size_of::<Path>()
    }
}

/// A random hash for each row of sixteen adjacent prefixes, followed by their order in it. The uppermost seven bits, by
/// which the hash map tells entries apart first, also differ within a row.
fn hash<K: Key>(random: &DefaultHashBuilder, key: K) -> u64 {
    let (row, place) = key.row();
    let hash = random.hash_one(row);
    hash << 4 ^ u64::from(place) ^ u64::from(place) << 60
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefix::V4;

    #[test]
    fn two_entries_fit_a_line_of_the_cache() {
        assert_eq!(size_of::<Paths>(), 24);
        assert_eq!(size_of::<(V4, Paths)>(), 32);
    }

    #[test]
    fn adjacent_prefixes_are_stored_side_by_side() {
        let random = DefaultHashBuilder::default();
        let at = |text: &str| hash(&random, V4::of(text.parse().expect("a network")).expect("IPv4"));
        let row: Vec<u64> = (0..16).map(|number| at(&format!("10.1.{number}.0/24"))).collect();
        for (number, pair) in (1..).zip(row.windows(2)) {
            assert_eq!(pair[1] & 0xffff, (pair[0] & 0xffff) + 1, "neighbour {number}");
        }
        let mut tags: Vec<u64> = row.iter().map(|hash| hash >> 57).collect();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 16, "tags distinguish adjacent prefixes");
        // The next row, the same network with another length, and another table are stored elsewhere.
        let others = [at("10.1.16.0/24"), at("10.1.0.0/23"), at("10.1.0.0/16")];
        let again = hash(
            &DefaultHashBuilder::default(),
            V4::of("10.1.0.0/24".parse().expect("a network")).expect("IPv4"),
        );
        for other in others.into_iter().chain([again]) {
            assert_ne!(other >> 4, row[0] >> 4);
        }
    }
}
