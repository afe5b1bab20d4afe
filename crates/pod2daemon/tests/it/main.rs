//! The drivers as their callers see them: gRPC on real sockets, real mounts in a mount namespace of the test's own, processes that
//! are killed between steps.

mod clients;
mod csi;
mod flexvol;
mod mounts;
mod registrar;
