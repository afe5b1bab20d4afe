//! Streams that Calico's own programs wrote, taken apart and put together again.
//!
//! `streams.bin` holds the bytes of both directions of 37 connections to Calico's Typha, `streams.txt` where each one
//! stands, `messages.txt` what Calico's decoder made of them.

mod captures;
mod hostile;
mod shared;
