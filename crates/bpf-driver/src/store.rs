//! Maps by name, as bytes.

use crate::error::Error;

/// A key and its value.
pub(crate) type Element = (Vec<u8>, Vec<u8>);

/// The place that elements are read from and written to.
pub trait Store {
    /// The capacity of a map; `None` if the map does not exist because its IP version is not programmed.
    fn room(&self, map: &str) -> Option<usize>;

    /// Returns all elements of a map.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn read(&self, map: &str) -> Result<Vec<Element>, Error>;

    /// Sets elements.
    ///
    /// # Errors
    /// When the kernel refuses an element; those before it may be set.
    fn write(&mut self, map: &str, elements: &[Element]) -> Result<(), Error>;

    /// Removes elements; missing ones are ignored.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn remove(&mut self, map: &str, keys: &[Vec<u8>]) -> Result<(), Error>;
}
