//! The CSI driver as a separate process, for tests that kill it. Arguments: its socket, and the folder of all volumes.

use pod2daemon::for_tests::{Homes, serve_driver};
use std::path::Path;

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let [_, socket, home] = words.as_slice() else { anyhow::bail!("a socket and a folder are needed") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let homes = Homes::under(Path::new(home));
    runtime.block_on(serve_driver(Path::new(socket), "node1".to_owned(), homes, daemon::Shutdown::never()))
}
