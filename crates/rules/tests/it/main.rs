//! Integration tests of `rules`: Calico's own output as golden files, real kernels, random policies.

mod captures;
mod combinations;
mod hashes;
mod kernel;
mod naive;
mod random;
mod shop;
mod shapes;
mod world;
