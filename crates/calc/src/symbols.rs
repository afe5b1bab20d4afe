//! Texts that occur again and again, each kept once and known by a number: names of labels, hosts, orchestrators,
//! tiers.
//!
//! Every user of a symbol holds a reference. A text without references is dropped and its number reused, so that a
//! cluster that runs for years and names its labels after the time of day does not fill the memory.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// The number of a text in one [`Symbols`] table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Symbol(pub(crate) u32);

impl Symbol {
    pub(crate) fn place(self) -> usize {
        self.0 as usize
    }
}

#[derive(Debug)]
struct Entry<T> {
    text: T,
    references: u32,
}

/// A table of texts with reference counts.
#[derive(Debug)]
pub(crate) struct Symbols<T = Box<str>> {
    entries: Vec<Entry<T>>,
    free: Vec<Symbol>,
    by_text: HashTable<Symbol>,
    hasher: DefaultHashBuilder,
}

impl<T> Default for Symbols<T> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_text: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<T: AsRef<str> + Default + for<'a> From<&'a str>> Symbols<T> {
    /// Returns the symbol of `text`, with one more reference.
    pub(crate) fn acquire(&mut self, text: &str) -> Symbol {
        let hash = self.hasher.hash_one(text);
        if let Some(&symbol) = self.by_text.find(hash, |symbol| self.text(*symbol) == text) {
            self.retain(symbol);
            return symbol;
        }
        let entry = Entry { text: text.into(), references: 1 };
        let symbol = if let Some(symbol) = self.free.pop() {
            self.entries[symbol.place()] = entry;
            symbol
        } else {
            self.entries.push(entry);
            Symbol(u32::try_from(self.entries.len() - 1).expect("fewer than four billion names"))
        };
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.by_text
            .insert_unique(hash, symbol, |symbol| hasher.hash_one(entries[symbol.place()].text.as_ref()));
        symbol
    }

    /// Adds a reference to a symbol that has one.
    pub(crate) fn retain(&mut self, symbol: Symbol) {
        if let Some(entry) = self.entries.get_mut(symbol.place()) {
            entry.references += 1;
        }
    }

    /// Releases a reference.
    pub(crate) fn release(&mut self, symbol: Symbol) {
        let Some(entry) = self.entries.get_mut(symbol.place()) else { return };
        entry.references -= 1;
        if entry.references == 0 {
            let text = std::mem::take(&mut entry.text);
            let hash = self.hasher.hash_one(text.as_ref());
            if let Ok(found) = self.by_text.find_entry(hash, |other| *other == symbol) {
                found.remove();
            }
            self.free.push(symbol);
        }
    }

    /// Returns the symbol of `text`, if it is in use.
    pub(crate) fn find(&self, text: &str) -> Option<Symbol> {
        let hash = self.hasher.hash_one(text);
        self.by_text.find(hash, |symbol| self.text(*symbol) == text).copied()
    }

    /// Returns the text of a symbol.
    pub(crate) fn text(&self, symbol: Symbol) -> &str {
        self.get(symbol).map_or("", AsRef::as_ref)
    }

    /// Returns the text of a symbol in the form in which the table keeps it.
    pub(crate) fn get(&self, symbol: Symbol) -> Option<&T> {
        self.entries.get(symbol.place()).map(|entry| &entry.text)
    }

    /// The number of texts in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Symbols;

    #[test]
    fn a_text_has_one_symbol_while_it_is_used() {
        let mut symbols = Symbols::<Box<str>>::default();
        let a = symbols.acquire("a");
        let b = symbols.acquire("b");
        assert_eq!(symbols.acquire("a"), a);
        assert_ne!(a, b);
        assert_eq!((symbols.text(a), symbols.find("b")), ("a", Some(b)));
        symbols.release(a);
        assert_eq!(symbols.find("a"), Some(a), "one reference is left");
        symbols.release(a);
        assert_eq!((symbols.find("a"), symbols.len()), (None, 1));
        assert_eq!(symbols.acquire("c"), a, "numbers are given away again");
        assert_eq!(symbols.text(a), "c");
    }
}
