//! Maps by their names, as bytes.

use crate::error::Error;

/// One element.
pub(crate) type Element = (Vec<u8>, Vec<u8>);

/// Where elements are read from and written to.
pub trait Store {
    /// How many elements a map takes; none for one that is not there, because its IP version is not programmed.
    fn room(&self, map: &str) -> Option<usize>;

    /// Everything in a map.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn read(&self, map: &str) -> Result<Vec<Element>, Error>;

    /// Sets elements.
    ///
    /// # Errors
    /// When the kernel refuses one; those before it may be set.
    fn write(&mut self, map: &str, elements: &[Element]) -> Result<(), Error>;

    /// Removes elements; those that are gone already do not matter.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn remove(&mut self, map: &str, keys: &[Vec<u8>]) -> Result<(), Error>;
}
