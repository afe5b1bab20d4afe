//! Integration tests of the reference plugins: a host, a container and a client from network namespaces, real packets, and
//! Debian's own build of the plugins beside ours.

mod bed;
mod interface;
mod ports;
