//! Neighbours on a link: who asks for an address by ARP or NDP, what is answered, and how an address is announced.
//!
//! Reading and writing packets are functions of bytes. The sockets belong to one device each, and to the network namespace of
//! the thread that opens them. Which addresses are answered for is decided elsewhere.

pub mod arp;
mod link_address;
pub mod ndp;
