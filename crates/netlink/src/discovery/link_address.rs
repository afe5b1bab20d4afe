//! The address of a device for link-layer sockets (`sockaddr_ll`), which no crate that we use offers.

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};

/// Frames of one type on one device, in the kernel's form.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct LinkAddress {
    family: u16,
    /// In the order of the network.
    kind: [u8; 2],
    device: u32,
    hardware_type: u16,
    packet_type: u8,
    address_length: u8,
    address: [u8; 8],
}

impl LinkAddress {
    /// Frames of this type on the device with this number.
    pub(super) fn new(kind: u16, device: u32) -> Self {
        Self {
            family: rustix::net::AddressFamily::PACKET.as_raw(),
            kind: kind.to_be_bytes(),
            device,
            hardware_type: 0,
            packet_type: 0,
            address_length: 0,
            address: [0; 8],
        }
    }
}

// SAFETY: the pointer is to a whole value without padding, of the given length, and it lives as long as the call.
#[expect(
    unsafe_code,
    reason = "rustix takes addresses of other families only by a trait that is unsafe to implement"
)]
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        const LENGTH: SocketAddrLen = 20;
        const { assert!(size_of::<LinkAddress>() == LENGTH as usize) };
        f(std::ptr::from_ref(self).cast(), LENGTH)
    }
}
