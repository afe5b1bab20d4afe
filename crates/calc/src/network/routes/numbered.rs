//! Things with small, stable numbers. The number of a thing that is removed is reused. Numbers of different kinds of
//! things cannot be mixed.

use std::marker::PhantomData;
use std::num::NonZeroU32;

/// The number of a thing of kind `K`, from 1, so that an `Option` of it takes no extra space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Number<K>(NonZeroU32, PhantomData<K>);

impl<K> Number<K> {
    fn from_index(index: usize) -> Self {
        let number = u32::try_from(index).ok().and_then(|index| NonZeroU32::MIN.checked_add(index));
        Self(number.unwrap_or(NonZeroU32::MAX), PhantomData)
    }

    fn index(&self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Things of kind `K` by number.
#[derive(Debug)]
pub(super) struct Numbered<K, T> {
    places: Vec<Option<T>>,
    free: Vec<Number<K>>,
}

impl<K, T> Default for Numbered<K, T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<K: Copy, T> Numbered<K, T> {
    /// Adds a thing; returns its number.
    pub(super) fn insert(&mut self, thing: T) -> Number<K> {
        if let Some(number) = self.free.pop() {
            self.places[number.index()] = Some(thing);
            return number;
        }
        let number = Number::from_index(self.places.len());
        self.places.push(Some(thing));
        number
    }

    /// Removes a thing; its number can be reused.
    pub(super) fn remove(&mut self, number: Number<K>) -> Option<T> {
        let thing = self.places.get_mut(number.index())?.take()?;
        self.free.push(number);
        Some(thing)
    }

    /// Returns the thing with this number.
    pub(super) fn get(&self, number: Number<K>) -> Option<&T> {
        self.places.get(number.index())?.as_ref()
    }

    /// Returns the thing with this number.
    pub(super) fn get_mut(&mut self, number: Number<K>) -> Option<&mut T> {
        self.places.get_mut(number.index())?.as_mut()
    }
}
