//! A table whose rows have numbers that stay while the row is there, and are given away again after it went.
//!
//! Rows live in pages of fixed size: growing never copies what is there, so neither memory nor time jumps when a table of
//! hundreds of thousands of rows needs one more.

const PAGE_BITS: u32 = 9;
const PAGE: usize = 1 << PAGE_BITS;

/// A table of rows by number.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    pages: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), free: Vec::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// Adds a row and tells its number.
    pub(crate) fn insert(&mut self, row: T) -> u32 {
        self.len += 1;
        if let Some(id) = self.free.pop() {
            if let Some(slot) = self.slot(id) {
                *slot = Some(row);
            }
            return id;
        }
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        let pages = self.pages.len() - 1;
        let page = &mut self.pages[pages];
        page.push(Some(row));
        u32::try_from(pages * PAGE + page.len() - 1).expect("fewer than four billion rows")
    }

    /// Takes a row out.
    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        let row = self.slot(id)?.take()?;
        self.free.push(id);
        self.len -= 1;
        Some(row)
    }

    fn slot(&mut self, id: u32) -> Option<&mut Option<T>> {
        self.pages.get_mut((id >> PAGE_BITS) as usize)?.get_mut(id as usize % PAGE)
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.pages.get((id >> PAGE_BITS) as usize)?.get(id as usize % PAGE)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.slot(id)?.as_mut()
    }

    /// All rows, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0u32..).zip(self.pages.iter().flatten()).filter_map(|(id, row)| Some((id, row.as_ref()?)))
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
        let mut slab = Slab::default();
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
