//! Things in a row that are known by small numbers. A number stays with its thing until that is taken out, and is then given
//! to another. Numbers of different kinds of things do not mix.

use std::marker::PhantomData;
use std::num::NonZeroU32;

/// The number of a thing of kind `K`, from 1, so that its absence costs nothing.
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
    /// Puts a thing in; returns its number.
    pub(super) fn insert(&mut self, thing: T) -> Number<K> {
        if let Some(number) = self.free.pop() {
            self.places[number.index()] = Some(thing);
            return number;
        }
        let number = Number::from_index(self.places.len());
        self.places.push(Some(thing));
        number
    }

    /// Takes a thing out; its number is free again.
    pub(super) fn remove(&mut self, number: Number<K>) -> Option<T> {
        let thing = self.places.get_mut(number.index())?.take()?;
        self.free.push(number);
        Some(thing)
    }

    /// The thing of this number.
    pub(super) fn get(&self, number: Number<K>) -> Option<&T> {
        self.places.get(number.index())?.as_ref()
    }

    /// The thing of this number.
    pub(super) fn get_mut(&mut self, number: Number<K>) -> Option<&mut T> {
        self.places.get_mut(number.index())?.as_mut()
    }
}
