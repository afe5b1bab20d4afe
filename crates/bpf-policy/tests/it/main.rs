//! Compares tables with other implementations of policy: rendered chains, the evaluator of resources, and tables built
//! from scratch.

mod chains;
mod changes;
#[path = "../../../explain/tests/it/clusters.rs"]
mod clusters;
mod explained;
#[expect(dead_code, reason = "only the conversion of resources is used here")]
#[path = "../../../explain/tests/it/kernel.rs"]
mod kernel;
mod sizes;
mod state;
mod transitions;
#[expect(dead_code, reason = "tests of whole tables use the rest")]
#[path = "../../../rules/tests/it/world.rs"]
mod world;
