//! Integration tests of the reference plugins: a host, a container and a client in network namespaces, real packets,
//! and Debian's own build of the plugins alongside ours.

mod bed;
mod interface;
mod ports;
