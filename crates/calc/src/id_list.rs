//! A list of small numbers that needs no allocation while it is short: most endpoints have one or two profiles and are
//! in one or two sets, and there are hundreds of thousands of endpoints.
//!
//! The type serves as an ordered list (the profiles of an endpoint) and as a sorted set (everything else); each method
//! says which it is for.

use crate::slab::RowId;

/// A list or sorted set of numbers, 16 bytes while it has at most three of them.
#[derive(Clone, Debug)]
pub(crate) enum IdList<I> {
    Inline {
        len: u8,
        ids: [I; 3],
    },
    #[expect(
        clippy::box_collection,
        reason = "long lists are few, and a bare vector would make every short one larger"
    )]
    Heap(Box<Vec<I>>),
}

impl<I: RowId> Default for IdList<I> {
    fn default() -> Self {
        Self::Inline { len: 0, ids: [I::from_number(0); 3] }
    }
}

impl<I: RowId> PartialEq for IdList<I> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<I: RowId> From<Vec<I>> for IdList<I> {
    fn from(list: Vec<I>) -> Self {
        let unused = I::from_number(0);
        match *list.as_slice() {
            [] => Self::default(),
            [a] => Self::Inline { len: 1, ids: [a, unused, unused] },
            [a, b] => Self::Inline { len: 2, ids: [a, b, unused] },
            [a, b, c] => Self::Inline { len: 3, ids: [a, b, c] },
            _ => Self::Heap(Box::new(list)),
        }
    }
}

impl<I: RowId> FromIterator<I> for IdList<I> {
    /// Collects numbers in their order, without an allocation if they are few.
    fn from_iter<T: IntoIterator<Item = I>>(ids: T) -> Self {
        let mut rest = ids.into_iter();
        let mut few = [I::from_number(0); 3];
        let mut len = 0;
        for (place, id) in few.iter_mut().zip(&mut rest) {
            *place = id;
            len += 1;
        }
        match rest.next() {
            None => Self::Inline { len, ids: few },
            Some(next) => Self::Heap(Box::new(few.into_iter().chain([next]).chain(rest).collect())),
        }
    }
}

impl<I: RowId> IdList<I> {
    /// The numbers in their order.
    pub(crate) fn as_slice(&self) -> &[I] {
        match self {
            Self::Inline { len, ids } => ids.get(..usize::from(*len)).unwrap_or_default(),
            Self::Heap(list) => list,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// Whether the sorted set contains `id`.
    pub(crate) fn contains(&self, id: I) -> bool {
        self.as_slice().binary_search(&id).is_ok()
    }

    /// Inserts `id` into the sorted set. Returns whether it is new.
    pub(crate) fn insert(&mut self, id: I) -> bool {
        let Err(place) = self.as_slice().binary_search(&id) else { return false };
        match self {
            Self::Heap(list) => list.insert(place, id),
            Self::Inline { len, ids } if *len < 3 => {
                ids.copy_within(place..usize::from(*len), place + 1);
                if let Some(slot) = ids.get_mut(place) {
                    *slot = id;
                }
                *len += 1;
            }
            Self::Inline { ids, .. } => {
                let mut list = Vec::with_capacity(8);
                list.extend_from_slice(ids);
                list.insert(place, id);
                *self = Self::Heap(Box::new(list));
            }
        }
        true
    }

    /// Removes `id` from the sorted set. Returns whether it was there.
    pub(crate) fn remove(&mut self, id: I) -> bool {
        let Ok(place) = self.as_slice().binary_search(&id) else { return false };
        match self {
            Self::Inline { len, ids } => {
                ids.copy_within(place + 1..usize::from(*len), place);
                *len -= 1;
            }
            Self::Heap(list) => {
                list.remove(place);
                if list.len() <= 2 {
                    *self = Self::from(std::mem::take(&mut **list));
                } else if list.len() * 4 < list.capacity() {
                    list.shrink_to(list.len() * 2);
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::IdList;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn it_is_small() {
        assert_eq!(size_of::<IdList<u32>>(), 16);
        assert_eq!(IdList::<u32>::from(vec![9, 3]).as_slice(), [9, 3], "an ordered list keeps its order");
    }

    proptest! {
        #[test]
        fn it_is_a_set(steps in proptest::collection::vec((any::<bool>(), 0u32..12), 0..60)) {
            let (mut ours, mut model) = (IdList::<u32>::default(), BTreeSet::new());
            for (insert, id) in steps {
                if insert {
                    prop_assert_eq!(ours.insert(id), model.insert(id));
                } else {
                    prop_assert_eq!(ours.remove(id), model.remove(&id));
                }
                prop_assert_eq!(ours.as_slice(), model.iter().copied().collect::<Vec<_>>());
                prop_assert_eq!(ours.contains(id), model.contains(&id));
                prop_assert_eq!(ours.is_empty(), model.is_empty());
            }
        }
    }
}
