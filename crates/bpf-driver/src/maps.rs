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

/// How names of maps end whose elements nobody can work out again. One of another size is filled with what was in it.
const STATE: [&str; 7] = ["_ct4", "_nat_aff", "_srmsg", "_ct_nats", "_direct", "_nat_fe3", "_nat_be"];

/// Maps by name.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    kept: BTreeMap<String, Map>,
    /// Those of another size that were there before: programs that are not replaced yet still write into them.
    resized: Vec<(String, Map)>,
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
                let opened = open(&folder.join(&name), definition)?;
                self.resized.extend(opened.old.map(|old| (name.clone(), old)));
                self.kept.insert(name, opened.map);
            }
        }
        Ok(())
    }

    /// Has an object, read once more, use the sizes of the maps that are open.
    pub(crate) fn fit(&self, object: &mut Object) -> Result<(), Error> {
        for definition in object.definitions()? {
            if let Some(map) = self.get(&definition.name) {
                object.set_entries(&definition.name, map.definition().entries)?;
            }
        }
        Ok(())
    }

    /// No program writes into a map of another size any more: what came into those since they were copied is copied too.
    pub(crate) fn finish_copies(&mut self) -> Result<(), Error> {
        for (name, old) in std::mem::take(&mut self.resized) {
            let new = self.named(&name)?;
            let copied = copy(&old, new, |key| Ok(new.get(key)?.is_none()))?;
            tracing::debug!(map = name, copied, "what came into a map while it was replaced");
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

/// A map, and the one of another size in whose place it is.
struct Opened {
    map: Map,
    old: Option<Map>,
}

/// The map that is pinned there, if it is of the same form; else a new one in its place, with what was in the old one where
/// that is worth keeping.
fn open(pin: &Path, definition: Definition) -> Result<Opened, Error> {
    if pin.exists() {
        match Map::open(pin) {
            Ok(map) if has_form(map.definition(), &definition) => return Ok(Opened { map, old: None }),
            Ok(old) if may_be_copied(old.definition(), &definition) => {
                let map = Map::create(definition)?;
                let copied = copy(&old, &map, |_| Ok(true))?;
                let (name, from, to) =
                    (&map.definition().name, old.definition().entries, map.definition().entries);
                tracing::info!(map = name, from, to, copied, "a map gets another size");
                put_in_place(&map, pin)?;
                return Ok(Opened { map, old: Some(old) });
            }
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
    Ok(Opened { map, old: None })
}

/// Pins a map where another one is pinned: whoever is killed in between leaves one of them there.
fn put_in_place(map: &Map, pin: &Path) -> Result<(), Error> {
    let name = pin.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let next = pin.with_file_name(format!("{name}_next"));
    files::unpin(&next)?;
    map.pin(&next)?;
    std::fs::rename(&next, pin)
        .map_err(|reason| Error::File { what: format!("cannot move a map to {}", pin.display()), reason })
}

/// Copies elements batch by batch, so that a million of them are never in memory at once; how many. What does not fit into a
/// smaller map is left out; one that forgets keeps the last ones.
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
        // The kernel has no batches for others.
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
