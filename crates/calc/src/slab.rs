//! A table whose rows have stable numbers. The number of a removed row is reused.
//!
//! Rows are kept in pages of fixed size. Growth never copies rows, so neither memory nor latency jumps when a table of
//! hundreds of thousands of rows needs one more.

use std::fmt::Debug;
use std::marker::PhantomData;

const PAGE_BITS: u32 = 9;
const PAGE: usize = 1 << PAGE_BITS;

/// The number of a row. Each table has a type of its own, so that a number cannot be used with another table.
pub(crate) trait RowId: Copy + Debug + Ord {
    /// Returns the row of this number.
    fn from_number(number: u32) -> Self;

    /// Returns the row's number.
    fn number(self) -> u32;
}

#[cfg(test)]
impl RowId for u32 {
    fn from_number(number: u32) -> Self {
        number
    }

    fn number(self) -> u32 {
        self
    }
}

/// Declares the row numbers of a table.
macro_rules! row_id {
    ($(#[$doc:meta])+ $name:ident) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub(crate) u32);

        impl $crate::slab::RowId for $name {
            fn from_number(number: u32) -> Self {
                Self(number)
            }

            fn number(self) -> u32 {
                self.0
            }
        }
    };
}

pub(crate) use row_id;

/// A table of rows by number.
#[derive(Debug)]
pub(crate) struct Slab<T, I> {
    pages: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    len: usize,
    ids: PhantomData<I>,
}

impl<T, I> Default for Slab<T, I> {
    fn default() -> Self {
        Self { pages: Vec::new(), free: Vec::new(), len: 0, ids: PhantomData }
    }
}

impl<T, I: RowId> Slab<T, I> {
    /// Adds a row and returns its number.
    pub(crate) fn insert(&mut self, row: T) -> I {
        self.len += 1;
        if let Some(id) = self.free.pop() {
            if let Some(slot) = self.slot(id) {
                *slot = Some(row);
            }
            return I::from_number(id);
        }
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        let pages = self.pages.len() - 1;
        let page = &mut self.pages[pages];
        page.push(Some(row));
        I::from_number(u32::try_from(pages * PAGE + page.len() - 1).expect("fewer than four billion rows"))
    }

    /// Removes a row.
    pub(crate) fn remove(&mut self, id: I) -> Option<T> {
        let row = self.slot(id.number())?.take()?;
        self.free.push(id.number());
        self.len -= 1;
        Some(row)
    }

    fn slot(&mut self, id: u32) -> Option<&mut Option<T>> {
        self.pages.get_mut((id >> PAGE_BITS) as usize)?.get_mut(id as usize % PAGE)
    }

    #[inline]
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        let id = id.number();
        self.pages.get((id >> PAGE_BITS) as usize)?.get(id as usize % PAGE)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.slot(id.number())?.as_mut()
    }

    /// All rows with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        let rows = (0u32..).zip(self.pages.iter().flatten());
        rows.filter_map(|(id, row)| Some((I::from_number(id), row.as_ref()?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::{PAGE, Slab};

    #[test]
    fn numbers_stay_and_are_reused() {
        let mut slab: Slab<usize, u32> = Slab::default();
        let ids: Vec<u32> = (0..PAGE + 2).map(|row| slab.insert(row)).collect();
        assert_eq!(ids, (0..u32::try_from(PAGE).unwrap() + 2).collect::<Vec<_>>());
        assert_eq!(slab.remove(3), Some(3));
        assert_eq!((slab.remove(3), slab.get(3)), (None, None));
        assert_eq!((slab.get(4), slab.len(), slab.iter().count()), (Some(&4), PAGE + 1, PAGE + 1));
        assert_eq!(slab.insert(77), 3);
        *slab.get_mut(ids[PAGE]).unwrap() = 5;
        assert_eq!(slab.iter().nth(PAGE), Some((ids[PAGE], &5)));
    }
}
