//! Streams that Calico's own programs wrote, decoded and encoded again.
//!
//! `streams.bin` contains the bytes of both directions of 37 connections to Calico's Typha, `streams.txt` their
//! positions, `messages.txt` the output of Calico's decoder.

mod captures;
mod hostile;
mod shared;
