//! The embedded store as a server, for the conformance suite to start and kill: `embedded_store FOLDER URL`.

use kvstore::server::{Config, run};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, listen] = arguments.as_slice() else { anyhow::bail!("usage: embedded_store FOLDER URL") };
    run(Config { listen: vec![listen.parse()?], ..Config::new(folder) }, std::future::pending()).await?;
    anyhow::bail!("the server ended by itself")
}
