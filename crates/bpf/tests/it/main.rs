//! The loader and the programs on the kernel of this machine: as root, attached only in new namespaces.

mod attachments;
mod bench;
mod connect;
mod direct;
mod envelopes;
mod events;
mod forwarded;
mod fragments;
mod guest;
mod limits;
mod maglev;
mod maps;
mod netfilter;
mod objects;
mod packets;
mod paths;
mod random;
mod services;
mod traffic;
mod untracked;
mod walks;
mod world;
mod xdp;
