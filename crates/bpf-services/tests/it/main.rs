//! Services: tables of objects and maps, random histories compared with a naive model, restarts.

mod histories;
mod naive;
mod questions;
mod random;
mod restart;
mod tables;
mod world;
