//! Where addresses are, and how to get there.
