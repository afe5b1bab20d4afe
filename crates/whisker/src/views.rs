//! Views of many flows at once, as functions of a list of flows: the service graph, the policy board, top talkers, the
//! matrix of all workloads.

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
