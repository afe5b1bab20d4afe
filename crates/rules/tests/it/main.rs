//! Integration tests of `rules`: Calico's own output as golden files, real kernels, random policies.

mod beside_bpf;
mod captures;
mod combinations;
mod hashes;
mod host;
mod kernel;
mod naive;
mod random;
mod shapes;
mod shop;
mod short_way;
mod texts;
mod world;
