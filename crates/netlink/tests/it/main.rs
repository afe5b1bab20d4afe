//! The real kernel, in network namespaces that each test creates and removes.

mod connections;
mod features;
mod namespaces;
mod nflog;
mod objects;
mod watching;
mod wireguard;
