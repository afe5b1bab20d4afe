//! A client as a process, for tests that kill it: follows the Typha at the given address.

use anyhow::Context as _;
use telemetry::Pulse;
use typha_client::{ClientSettings, Discovery, follow_feed};
use typha_wire::SyncerType;

fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).context("no address")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let settings = ClientSettings::new(SyncerType::Felix, "killed", "test", "");
        let (_follower, mut events) = follow_feed(Discovery::Address(address), settings, Pulse::new());
        while events.recv().await.is_some() {}
        Ok(())
    })
}
