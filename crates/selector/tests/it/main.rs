//! The selector crate seen from outside: tables of text in `tests/data`, and properties on random selectors.

mod properties;
mod reference;
mod tables;
