//! What the page shows of many flows at once, as functions of a list of flows: the service graph, the policy board, who talks
//! most, everybody to everybody.

mod board;
mod graph;
mod matrix;
mod order;
mod top;
mod traffic;

pub(crate) use board::board;
pub(crate) use graph::{GraphQuery, Level, graph};
pub(crate) use matrix::{cell_names, matrix};
pub(crate) use top::{By, Of, top};
