//! The maps that programs share and that outlive this process: pinned at `tc/globals`, taken over where they fit.

use crate::error::Error;
use crate::files;
use crate::plan::Plan;
use crate::store::{Element, Store};
use bpf::{Definition, Kind, Map, Object};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maps that only programs of one process and IP version share: what is in them is of one packet, or lost without harm.
const NOT_KEPT: [&str; 4] = ["cali_packet", "cali_fragments", "cali_waiting", "cali_spare"];

/// Maps by name.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    kept: BTreeMap<String, Map>,
}

/// The folder of the maps' pins.
pub(crate) fn folder(root: &Path) -> PathBuf {
    root.join("tc/globals")
}

impl Maps {
    /// Opens or makes every map of an object that is kept, and has the object use the sizes that are wanted.
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
                self.kept.insert(name.clone(), open(&folder.join(name), definition)?);
            }
        }
        Ok(())
    }

    /// A map.
    pub(crate) fn get(&self, name: &str) -> Option<&Map> {
        self.kept.get(name)
    }

    /// All of them, as objects are loaded with.
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

/// The map that is pinned there, if it is of the same form; else a new one in its place.
fn open(pin: &Path, definition: Definition) -> Result<Map, Error> {
    if pin.exists() {
        match Map::open(pin) {
            Ok(map) if has_form(map.definition(), &definition) => return Ok(map),
            Ok(map) => {
                tracing::warn!(
                    map = definition.name, found = ?map.definition(), wanted = ?definition,
                    "a map of another form is left behind, and what was in it is lost"
                );
            }
            Err(error) => tracing::warn!(%error, "a pinned map cannot be opened, and is made again"),
        }
        files::unpin(pin)?;
    }
    let map = Map::create(definition)?;
    map.pin(pin)?;
    Ok(map)
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

/// A map that is written as a whole: what it should hold is a small value.
#[derive(Debug)]
pub(crate) struct Plain {
    map: &'static str,
    /// What is in it, once that is known.
    there: Option<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl Plain {
    pub(crate) fn new(map: &'static str) -> Self {
        Self { map, there: None }
    }

    /// Others may have changed it.
    pub(crate) fn invalidate(&mut self) {
        self.there = None;
    }

    /// Brings the map to what is wanted.
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
        // Removed first where both together would not fit: a missing route denies, and so does a missing port.
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
