//! The table of parameters against the code of Felix.

mod effects;
