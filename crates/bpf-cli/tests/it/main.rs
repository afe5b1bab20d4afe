//! Commands on maps given as data, and one on maps of the kernel.

mod arguments;
mod bootstrapped;
mod connections;
mod dumps;
mod given;
mod real;
mod services;
mod watched;
mod writes;
