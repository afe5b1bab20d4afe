//! The service as clients see it: requests in, answers out.

mod access;
mod compatible;
mod goldmane;
mod own;
mod page;
mod reasons;
mod streams;
mod world;
