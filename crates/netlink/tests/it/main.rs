//! The real kernel, in network namespaces that each test makes and removes.

mod namespaces;
mod objects;
mod watching;
mod wireguard;
