//! Neighbour discovery on a link: who asks for an address by ARP or NDP, the answers, and announcements.
//!
//! Reading and writing packets are pure functions of bytes. Each socket belongs to one device and to the network
//! namespace of the thread that opens it. Which addresses are answered for is decided elsewhere.

pub mod arp;
mod link_address;
pub mod ndp;
