//! Classes: the atoms that addresses are in, each combination once, with an id derived from it; and the conditions of
//! lists on them.

use crate::conditions::{Atom, EndConditions};
use crate::layout::{ClassId, Dimension, ListId, Row, RowKey, SEGMENT_RULES, Segment, SegmentKey};
use crate::list::{List, first_eight};
use crate::slab::Slab;
use crate::tables::{Table, Tables};
use hashbrown::{HashMap, HashSet};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Something that rules refer to.
#[derive(Debug)]
struct AtomState {
    atom: Atom,
    /// Its contribution to the ids of classes.
    hash: u64,
    /// The conditions of lists that refer to it: dimension and rule.
    uses: BTreeMap<ListId, Vec<(Dimension, u32)>>,
    /// The classes that contain it.
    classes: HashSet<u32>,
}

#[derive(Debug)]
struct ClassState {
    id: ClassId,
    atoms: Arc<[u32]>,
    /// The number of addresses that have it.
    users: usize,
}

/// The conditions of a list on classes, in the order of dimension and rule.
type Asks = Box<[((Dimension, u32), Asked)]>;

/// The numbers of atoms: those that an address must all be in, then those of which one suffices, then those that it
/// must not be in.
#[derive(Debug)]
struct Asked {
    atoms: Box<[u32]>,
    /// The indexes at which the second and the third group begin.
    starts: [u32; 2],
}

#[derive(Debug, Default)]
pub(crate) struct Classes {
    atoms: Slab<AtomState>,
    numbers: HashMap<Atom, u32>,
    classes: Slab<ClassState>,
    by_atoms: HashMap<Arc<[u32]>, u32>,
    by_id: HashMap<ClassId, u32>,
    lists: HashMap<ListId, Asks>,
    /// Lists that were added, and classes that were added or possibly removed, since rows were last written.
    new_lists: Vec<ListId>,
    new_classes: HashSet<u32>,
    left: HashSet<u32>,
    unused: Vec<u32>,
}

impl Classes {
    /// The number of an atom that a list refers to.
    pub(crate) fn number(&self, atom: &Atom) -> Option<u32> {
        self.numbers.get(atom).copied()
    }

    /// The number of classes.
    pub(crate) fn len(&self) -> usize {
        self.classes.len()
    }

    /// Adds a list. Returns the atoms that no list referred to before.
    pub(crate) fn add_list(&mut self, list: &List) -> Vec<(Atom, u32)> {
        let mut new = Vec::new();
        let mut asks = Vec::new();
        for dimension in Dimension::ALL {
            for (rule, one) in (0..).zip(&list.rules) {
                let Some(end) = one.conditions.end(dimension).filter(|end| !end.is_always()) else {
                    continue;
                };
                for atom in end.atoms() {
                    let number = self.atom(atom, &mut new);
                    if let Some(state) = self.atoms.get_mut(number) {
                        state.uses.entry(list.id).or_default().push((dimension, rule));
                    }
                }
                asks.push(((dimension, rule), Asked::new(end, |atom| self.number(atom))));
            }
        }
        self.lists.insert(list.id, asks.into());
        self.new_lists.push(list.id);
        new
    }

    fn atom(&mut self, atom: &Atom, new: &mut Vec<(Atom, u32)>) -> u32 {
        if let Some(number) = self.number(atom) {
            return number;
        }
        let mut bytes = Vec::new();
        atom.encode(&mut bytes);
        let hash = first_eight(Sha256::new_with_prefix(&bytes));
        let state = AtomState { atom: atom.clone(), hash, uses: BTreeMap::new(), classes: HashSet::new() };
        let number = self.atoms.insert(state);
        self.numbers.insert(atom.clone(), number);
        new.push((atom.clone(), number));
        number
    }

    /// Removes a list. Returns the atoms that no list refers to any more.
    pub(crate) fn remove_list(&mut self, id: ListId) -> Vec<(Atom, u32)> {
        let mut gone = Vec::new();
        self.new_lists.retain(|one| *one != id);
        let asks = self.lists.remove(&id).unwrap_or_default();
        for number in asks.iter().flat_map(|(_, asked)| asked.atoms.iter().copied()) {
            let Some(state) = self.atoms.get_mut(number) else { continue };
            state.uses.remove(&id);
            // A list may refer to an atom more than once.
            if state.uses.is_empty() && self.numbers.remove(&state.atom).is_some() {
                self.unused.push(number);
                gone.push((state.atom.clone(), number));
            }
        }
        gone
    }

    /// Assigns the class of these atoms, sorted and at least one, to an address. Returns the class's id.
    pub(crate) fn enter(&mut self, atoms: Vec<u32>) -> ClassId {
        if let Some(number) = self.by_atoms.get(atoms.as_slice()).copied()
            && let Some(class) = self.classes.get_mut(number)
        {
            class.users += 1;
            return class.id;
        }
        let hashes = atoms.iter().filter_map(|atom| self.atoms.get(*atom));
        let mut id = ClassId(hashes.fold(0_u64, |sum, atom| sum.wrapping_add(atom.hash)));
        // Two classes never have the same id, whatever the hashes.
        while id == ClassId::NONE || self.by_id.contains_key(&id) {
            id = ClassId(id.0.wrapping_add(1));
        }
        let atoms: Arc<[u32]> = atoms.into();
        let number = self.classes.insert(ClassState { id, atoms: atoms.clone(), users: 1 });
        self.by_id.insert(id, number);
        for atom in atoms.iter() {
            if let Some(state) = self.atoms.get_mut(*atom) {
                state.classes.insert(number);
            }
        }
        self.by_atoms.insert(atoms, number);
        self.new_classes.insert(number);
        id
    }

    /// Takes the class away from an address.
    pub(crate) fn leave(&mut self, id: ClassId) {
        let Some(number) = self.by_id.get(&id).copied() else { return };
        if let Some(class) = self.classes.get_mut(number) {
            class.users = class.users.saturating_sub(1);
            if class.users == 0 {
                self.left.insert(number);
            }
        }
    }

    /// Writes the rows of lists and classes added since the last call, and removes those of unused classes.
    pub(crate) fn write_rows(&mut self, tables: &mut Tables) {
        for number in std::mem::take(&mut self.left) {
            let Some(class) = self.classes.get(number).filter(|class| class.users == 0) else { continue };
            let Tables { segments, rows, .. } = &mut *tables;
            self.each_row(class, None, segments, |key, _| rows.remove(&key));
            self.drop_class(number);
        }
        for list in std::mem::take(&mut self.new_lists) {
            for number in self.classes_of(list) {
                if let Some(class) = self.classes.get(number) {
                    let Tables { segments, rows, .. } = &mut *tables;
                    self.each_row(class, Some(list), segments, |key, row| set_row(rows, key, row));
                }
            }
        }
        for number in std::mem::take(&mut self.new_classes) {
            if let Some(class) = self.classes.get(number) {
                let Tables { segments, rows, .. } = &mut *tables;
                self.each_row(class, None, segments, |key, row| set_row(rows, key, row));
            }
        }
        // They have no members any more, so no class contains them.
        for number in std::mem::take(&mut self.unused) {
            self.atoms.remove(number);
        }
    }

    fn drop_class(&mut self, number: u32) {
        let Some(class) = self.classes.remove(number) else { return };
        self.by_id.remove(&class.id);
        self.by_atoms.remove(&class.atoms);
        self.new_classes.remove(&number);
        for atom in class.atoms.iter() {
            if let Some(state) = self.atoms.get_mut(*atom) {
                state.classes.remove(&number);
            }
        }
    }

    /// The classes that a list can distinguish from [`ClassId::NONE`].
    fn classes_of(&self, list: ListId) -> HashSet<u32> {
        let asks = self.lists.get(&list).map_or(&[][..], |asks| asks);
        let atoms: HashSet<u32> = asks.iter().flat_map(|(_, asked)| asked.atoms.iter().copied()).collect();
        let classes = atoms.iter().filter_map(|atom| self.atoms.get(*atom)).flat_map(|atom| &atom.classes);
        classes.copied().filter(|class| !self.new_classes.contains(class)).collect()
    }

    /// Computes the rows of a class in one list or in all; `None` where the row is the default.
    fn each_row(
        &self,
        class: &ClassState,
        only: Option<ListId>,
        segments: &Table<SegmentKey, Segment>,
        mut each: impl FnMut(RowKey, Option<Row>),
    ) {
        let mut rules: BTreeMap<ListId, Vec<(Dimension, u32)>> = BTreeMap::new();
        for atom in class.atoms.iter().filter_map(|atom| self.atoms.get(*atom)) {
            match only {
                Some(list) => {
                    let uses = atom.uses.get(&list).into_iter().flatten();
                    rules.entry(list).or_default().extend(uses);
                }
                None => {
                    for (list, uses) in &atom.uses {
                        rules.entry(*list).or_default().extend(uses);
                    }
                }
            }
        }
        for (id, mut touched) in rules {
            let Some(asks) = self.lists.get(&id) else { continue };
            touched.sort_unstable();
            touched.dedup();
            let place = |(dimension, rule): &(Dimension, u32)| (*dimension, *rule as usize / SEGMENT_RULES);
            for group in touched.chunk_by(|one, other| place(one) == place(other)) {
                let Some((dimension, number)) = group.first().map(place) else { continue };
                let Ok(segment) = u32::try_from(number) else { continue };
                let Some(segment) = segments.get(&SegmentKey { list: id, segment }) else { continue };
                let default = segment.defaults[dimension.index()];
                let mut row = default;
                for use_ in group {
                    let Ok(found) = asks.binary_search_by_key(use_, |(key, _)| *key) else { continue };
                    row.set(use_.1 as usize % SEGMENT_RULES, asks[found].1.meets(&class.atoms));
                }
                let segment = u16::try_from(number).unwrap_or(u16::MAX);
                let key = RowKey { list: id, value: class.id.0, segment, dimension: dimension as u8 };
                each(key, (row != default).then_some(row));
            }
        }
    }
}

impl Asked {
    fn new(end: &EndConditions, number: impl Fn(&Atom) -> Option<u32>) -> Self {
        let start = |atoms: usize| u32::try_from(atoms).unwrap_or(u32::MAX);
        let starts = [start(end.all.len()), start(end.all.len() + end.any.len())];
        Self { atoms: end.atoms().filter_map(number).collect(), starts }
    }

    fn meets(&self, atoms: &[u32]) -> bool {
        let is_in = |atom: &u32| atoms.binary_search(atom).is_ok();
        let [any, none] = self.starts.map(|start| start as usize);
        self.atoms[..any].iter().all(is_in)
            && (any == none || self.atoms[any..none].iter().any(is_in))
            && !self.atoms[none..].iter().any(is_in)
    }
}

fn set_row(rows: &mut Table<RowKey, Row>, key: RowKey, row: Option<Row>) {
    match row {
        Some(row) => rows.set(key, row),
        None => rows.remove(&key),
    }
}
