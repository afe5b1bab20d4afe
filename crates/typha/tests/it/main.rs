//! Server and client against each other, over real sockets.

mod captured;
mod crowds;
mod faults;
mod half_open;
mod histories;
mod hostile;
mod interleavings;
mod kubernetes;
mod naive;
mod names;
mod outages;
mod peers;
mod process;
mod secure;
mod store;
mod wire;
mod world;
