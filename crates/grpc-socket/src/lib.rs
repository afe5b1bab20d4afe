//! gRPC servers on Unix sockets that programs in Go call: kubelets, sidecars, proxies.
//!
//! - [`listen`]: a socket that appears under its name when it already listens, with its mode, over one that a killed process
//!   left; removed with the value, if it is still ours.
//! - [`admit`]: a connection whose client may name the server by the path of its socket.
//!
//! gRPC in Go puts the path of a socket, escaped or not, into `:authority`, where HTTP/2 wants a host. Servers in Go do not look at
//! it; ours refuse the request. [`Admitted`] changes the characters that no host has, and nothing else: every byte
//! that is not part of such a name is passed on as it came.
//!
//! It refuses to replace anything that is not a socket.

mod admitted;
mod authority;
mod fields;
mod huffman;
mod listen;

pub use admitted::{Admitted, admit};
pub use listen::{Listening, listen};
