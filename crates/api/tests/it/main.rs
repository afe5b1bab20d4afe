//! Tests of the crate from outside: tables of verdicts, objects written by Calico, properties of random objects.

mod mutations;
mod properties;
mod round_trip;
mod settings;
mod validation;
