//! What is accepted, refused and filled in, as tables.
