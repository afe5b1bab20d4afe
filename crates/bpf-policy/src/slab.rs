//! Values by small numbers; freed numbers are reused.

#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.entries[number as usize] = Some(value);
            return number;
        }
        self.entries.push(Some(value));
        // More would not fit into memory.
        u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        let value = self.entries.get_mut(number as usize)?.take();
        if value.is_some() {
            self.free.push(number);
        }
        value
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(number as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
