//! The drivers from their callers' point of view: gRPC on real sockets, real mounts in a test's own mount namespace,
//! processes that are killed between steps.

mod clients;
mod csi;
mod flexvol;
mod mounts;
mod registrar;
