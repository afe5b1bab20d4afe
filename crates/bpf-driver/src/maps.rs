//! The maps that programs share and that outlive this process: pinned at `tc/globals`, reused if they fit.

use crate::error::Error;
use crate::files;
use crate::plan::Plan;
use crate::store::{Element, Store};
use bpf::{Definition, Kind, Map, Object};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maps shared only by programs of one process and IP version: their contents are per packet, or can be lost without
/// harm.
const NOT_KEPT: [&str; 4] = ["cali_packet", "cali_fragments", "cali_waiting", "cali_spare"];

/// Suffixes of the names of maps whose contents cannot be recomputed. When their size changes, the contents are copied.
const STATE: [&str; 7] = ["_ct4", "_nat_aff", "_srmsg", "_ct_nats", "_direct", "_nat_fe3", "_nat_be"];

/// Maps by name.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    kept: BTreeMap<String, Map>,
    /// Maps of the previous size: programs that are not replaced yet still write to them.
    resized: Vec<(String, Map)>,
}

/// The folder of map pins.
pub(crate) fn folder(root: &Path) -> PathBuf {
    root.join("tc/globals")
}

impl Maps {
    /// Opens or creates every persistent map of an object, and sets the desired sizes in the object.
    pub(crate) fn open(
        &mut self,
        root: &Path,
        object: &mut Object,
        sizes: &BTreeMap<String, u32>,
    ) -> Result<(), Error> {
        let folder = folder(root);
        files::make_folder(&folder)?;
        for definition in object.definitions()? {
            if !is_kept(&definition) {
                continue;
            }
            let entries = sizes.get(&definition.name).copied().unwrap_or(definition.entries);
            object.set_entries(&definition.name, entries)?;
            if !self.kept.contains_key(&definition.name) {
                let definition = Definition { entries, ..definition };
                let name = definition.name.clone();
                let opened = open(&folder.join(&name), definition)?;
                self.resized.extend(opened.old.map(|old| (name.clone(), old)));
                self.kept.insert(name, opened.map);
            }
        }
        Ok(())
    }

    /// Sets the sizes of the open maps in another parsed object.
    pub(crate) fn fit(&self, object: &mut Object) -> Result<(), Error> {
        for definition in object.definitions()? {
            if let Some(map) = self.get(&definition.name) {
                object.set_entries(&definition.name, map.definition().entries)?;
            }
        }
        Ok(())
    }

    /// Copies what was added to resized maps since they were first copied. To be called when no program writes to the
    /// old ones any more.
    pub(crate) fn finish_copies(&mut self) -> Result<(), Error> {
        for (name, old) in std::mem::take(&mut self.resized) {
            let new = self.named(&name)?;
            let copied = copy(&old, new, |key| Ok(new.get(key)?.is_none()))?;
            tracing::debug!(map = name, copied, "copied elements added to a map while it was replaced");
        }
        Ok(())
    }

    /// An open map by name.
    pub(crate) fn get(&self, name: &str) -> Option<&Map> {
        self.kept.get(name)
    }

    /// All open maps, for loading objects.
    pub(crate) fn all(&self) -> BTreeMap<&str, &Map> {
        self.kept.iter().map(|(name, map)| (name.as_str(), map)).collect()
    }

    fn named(&self, name: &str) -> Result<&Map, Error> {
        self.get(name).ok_or(Error::Missing("map of this name"))
    }
}

fn is_kept(definition: &Definition) -> bool {
    definition.kind != Kind::ProgramArray && !NOT_KEPT.contains(&definition.name.as_str())
}

/// A map, and the one of the previous size that it replaces.
struct Opened {
    map: Map,
    old: Option<Map>,
}

/// Opens the pinned map if it has the same layout; otherwise creates a new one in its place, and copies the old
/// contents if they are worth keeping.
fn open(pin: &Path, definition: Definition) -> Result<Opened, Error> {
    if pin.exists() {
        match Map::open(pin) {
            Ok(map) if has_form(map.definition(), &definition) => return Ok(Opened { map, old: None }),
            Ok(old) if may_be_copied(old.definition(), &definition) => {
                let map = Map::create(definition)?;
                let copied = copy(&old, &map, |_| Ok(true))?;
                let (name, from, to) =
                    (&map.definition().name, old.definition().entries, map.definition().entries);
                tracing::info!(map = name, from, to, copied, "resizing a map");
                put_in_place(&map, pin)?;
                return Ok(Opened { map, old: Some(old) });
            }
            Ok(map) => {
                tracing::warn!(
                    map = definition.name, found = ?map.definition(), wanted = ?definition,
                    "replacing a map of another layout; its contents are lost"
                );
            }
            Err(error) => tracing::warn!(%error, "cannot open a pinned map; replacing it"),
        }
        files::unpin(pin)?;
    }
    let map = Map::create(definition)?;
    map.pin(pin)?;
    Ok(Opened { map, old: None })
}

/// Replaces the pin of a map; if the process is killed in between, one of the two maps remains pinned.
fn put_in_place(map: &Map, pin: &Path) -> Result<(), Error> {
    let name = pin.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let next = pin.with_file_name(format!("{name}_next"));
    files::unpin(&next)?;
    map.pin(&next)?;
    std::fs::rename(&next, pin)
        .map_err(|reason| Error::File { what: format!("cannot move a map to {}", pin.display()), reason })
}

/// Copies elements in batches, so that a million of them are never in memory at once; returns their number. What does
/// not fit into a smaller map is left out; an LRU map keeps the last ones.
fn copy(from: &Map, to: &Map, is_wanted: impl Fn(&[u8]) -> Result<bool, Error>) -> Result<usize, Error> {
    let (mut copied, mut outcome) = (0, Ok(()));
    let definition = from.definition();
    let room = to.definition().entries as usize;
    let visit = |keys: &[u8], values: &[u8]| {
        if outcome.is_err() || (copied >= room && definition.kind != Kind::LruHash) {
            return;
        }
        let mut elements = Vec::new();
        for (key, value) in keys.chunks(definition.key).zip(values.chunks(definition.value)) {
            match is_wanted(key) {
                Ok(true) => elements.push((key.to_vec(), value.to_vec())),
                Ok(false) => {}
                Err(error) => outcome = Err(error),
            }
        }
        if definition.kind != Kind::LruHash {
            elements.truncate(room - copied);
        }
        copied += elements.len();
        if outcome.is_ok() {
            outcome = to.set_many(&elements).map_err(Error::from);
        }
    };
    match definition.kind {
        Kind::Hash | Kind::LruHash => from.visit_batches(visit)?,
        // The kernel has no batches for other kinds.
        _ => {
            let mut visit = visit;
            from.entries()?.iter().for_each(|(key, value)| visit(key, value));
        }
    }
    outcome.map(|()| copied)
}

fn may_be_copied(found: &Definition, wanted: &Definition) -> bool {
    STATE.iter().any(|end| wanted.name.ends_with(end))
        && (found.kind, found.key, found.value) == (wanted.kind, wanted.key, wanted.value)
}

fn has_form(found: &Definition, wanted: &Definition) -> bool {
    (found.kind, found.key, found.value, found.entries)
        == (wanted.kind, wanted.key, wanted.value, wanted.entries)
}

impl Store for Maps {
    fn room(&self, map: &str) -> Option<usize> {
        self.get(map).map(|map| map.definition().entries as usize)
    }

    fn read(&self, map: &str) -> Result<Vec<Element>, Error> {
        Ok(self.named(map)?.entries()?)
    }

    fn write(&mut self, map: &str, elements: &[Element]) -> Result<(), Error> {
        Ok(self.named(map)?.set_many(elements)?)
    }

    fn remove(&mut self, map: &str, keys: &[Vec<u8>]) -> Result<(), Error> {
        Ok(self.named(map)?.remove_many(keys).map(drop)?)
    }
}

/// A map that is written as a whole, because its desired contents are small.
#[derive(Debug)]
pub(crate) struct Plain {
    map: &'static str,
    /// Its contents, once known.
    there: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Plain {
    pub(crate) fn new(map: &'static str) -> Self {
        Self { map, there: None }
    }

    /// Makes the next write read the map, as others may have changed it.
    pub(crate) fn invalidate(&mut self) {
        self.there = None;
    }

    /// Updates the map to the desired contents.
    pub(crate) fn apply(
        &mut self,
        store: &mut impl Store,
        wanted: BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<(), Error> {
        let Some(room) = store.room(self.map) else { return Ok(()) };
        if wanted.len() > room {
            return Err(Error::TooMany { map: self.map, wanted: wanted.len(), room });
        }
        let there = match self.there.take() {
            Some(there) => there,
            None => store.read(self.map)?.into_iter().collect(),
        };
        let plan = Plan::from_kept(&there, &wanted);
        // Removals come first if both together would not fit: a missing route denies, and so does a missing port.
        if there.len() + plan.writes.len() > room && !plan.removals.is_empty() {
            store.remove(self.map, &plan.removals)?;
        }
        if !plan.writes.is_empty() {
            store.write(self.map, &plan.writes)?;
        }
        if !plan.removals.is_empty() {
            store.remove(self.map, &plan.removals)?;
        }
        self.there = Some(wanted);
        Ok(())
    }
}
