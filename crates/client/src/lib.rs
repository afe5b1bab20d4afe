//! Placeholder header; replaced with the crate's contents.
