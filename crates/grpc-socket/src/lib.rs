//! gRPC servers on Unix sockets for clients written in Go: kubelets, sidecars, proxies.
//!
//! - [`listen`]: creates a socket that appears under its name, with its mode, only when it already listens. It replaces
//!   a socket left by a killed process, and is removed with the value, if it is still ours.
//! - [`admit`]: accepts a client that uses the path of its socket as the server's name.
//!
//! gRPC in Go puts the path of a socket, escaped or not, into `:authority`, where HTTP/2 requires a host. Servers in Go
//! ignore it; ours refuse the request. [`Admitted`] replaces the characters that are not allowed in a host, and nothing
//! else: every byte that is not part of such an authority is passed on unchanged.
//!
//! Does not replace anything that is not a socket.

mod admitted;
mod authority;
mod fields;
mod huffman;
mod listen;

pub use admitted::{Admitted, admit};
pub use listen::{Listening, listen};
