//! Explanations of whole clusters, and the comparison with the rules that are calculated and rendered for the kernel.

mod clusters;
mod kernel;
mod oracle;
mod pending;
mod tables;
mod yaml;
