//! Felix as a process: its probes, the settings that it applies without a restart, and how it ends. Its datastore is
//! the embedded store's server in this process, its kernel a network namespace. Needs root.

mod process;

use anyhow::Result;
use process::{Felix, Site};
use serde_json::json;
use testkit::eventually_async;

/// The exit code by which Felix requests a restart, as Calico's does.
const RESTART: i32 = 129;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uninitialised_datastore_is_waited_for() -> Result<()> {
    let site = Site::new().await?;
    let mut felix = Felix::start(&site)?;
    felix.until("alive", async |felix| Ok(felix.answer("/liveness")? == 200)).await?;
    felix
        .until("it says what it waits for", async |felix| Ok(felix.log().contains("datastoreReady")))
        .await?;
    assert_eq!(felix.answer("/readiness")?, 503, "{}", felix.log());
    site.client.ensure_initialized("v3.32.0", "k8s").await?;
    felix.until("ready", async |felix| Ok(felix.answer("/readiness")? == 200)).await?;
    assert!(site.namespace.shell("nft list tables")?.contains("calico"), "{}", felix.log());
    assert_eq!(felix.terminate().await?, Some(0), "{}", felix.log());
    // The kernel's state remains for the next one.
    assert!(site.namespace.shell("nft list tables")?.contains("calico"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn felix_can_be_ended_while_it_waits_for_the_datastore() -> Result<()> {
    let site = Site::new().await?;
    let mut felix = Felix::start(&site)?;
    felix.until("alive", async |felix| Ok(felix.answer("/liveness")? == 200)).await?;
    assert_eq!(felix.terminate().await?, Some(0), "{}", felix.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_settings_are_applied_and_others_require_a_restart() -> Result<()> {
    let site = Site::new().await?;
    site.client.ensure_initialized("v3.32.0", "k8s").await?;
    let mut felix = Felix::start(&site)?;
    felix.until("ready", async |felix| Ok(felix.answer("/readiness")? == 200)).await?;
    site.set_felix(json!({"healthTimeoutOverrides": [{"name": "CalculationGraph", "timeout": "45s"}]}))
        .await?;
    felix
        .until("the live setting is applied", async |felix| {
            let log = felix.log();
            Ok(log.contains("HealthTimeoutOverrides") && log.contains("applied without a restart"))
        })
        .await?;
    assert_eq!(felix.answer("/readiness")?, 200);
    site.set_felix(json!({"nftablesRefreshInterval": "77s"})).await?;
    assert_eq!(felix.end().await?, Some(RESTART), "{}", felix.log());
    let mut next = Felix::start(&site)?;
    next.until("ready", async |felix| Ok(felix.answer("/readiness")? == 200)).await?;
    // It already has the new value: only the live setting changes.
    let overrides = json!([{"name": "CalculationGraph", "timeout": "50s"}]);
    site.set_felix(json!({"nftablesRefreshInterval": "77s", "healthTimeoutOverrides": overrides})).await?;
    next.until("the live setting is applied", async |felix| {
        Ok(felix.log().contains("applied without a restart"))
    })
    .await?;
    assert_eq!(next.terminate().await?, Some(0), "{}", next.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_without_effect_are_named_in_warnings() -> Result<()> {
    let site = Site::new().await?;
    site.client.ensure_initialized("v3.32.0", "k8s").await?;
    let idle = json!({"debugPort": 6060, "bpfExtToServiceConnmark": 128, "genericXDPEnabled": true});
    site.set_felix(idle).await?;
    let mut felix = Felix::start(&site)?;
    felix
        .until("all of them are named", async |felix| {
            let log = felix.log();
            let says = |words: &[&str]| log.lines().any(|line| words.iter().all(|word| line.contains(word)));
            Ok(says(&["WARN", "set, and without effect in this version: ", "DebugPort"])
                && says(&["WARN", "which is off (BPFEnabled): BPFExtToServiceConnmark, GenericXDPEnabled"]))
        })
        .await?;
    assert_eq!(felix.terminate().await?, Some(0), "{}", felix.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_datastore_ends_felix_and_the_next_one_waits() -> Result<()> {
    let site = Site::new().await?;
    site.client.ensure_initialized("v3.32.0", "k8s").await?;
    let mut felix = Felix::start(&site)?;
    felix.until("ready", async |felix| Ok(felix.answer("/readiness")? == 200)).await?;
    site.set_datastore_ready(false).await?;
    assert_eq!(felix.end().await?, Some(RESTART), "{}", felix.log());
    let rules = site.namespace.shell("nft list ruleset")?;
    assert!(rules.contains("calico"), "what is programmed stays");
    let mut next = Felix::start(&site)?;
    next.until("alive", async |felix| Ok(felix.answer("/liveness")? == 200)).await?;
    next.until("it waits", async |felix| Ok(felix.log().contains("waiting"))).await?;
    assert_eq!(next.answer("/readiness")?, 503, "{}", next.log());
    site.set_datastore_ready(true).await?;
    next.until("ready", async |felix| Ok(felix.answer("/readiness")? == 200)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_process_waits_for_a_store_that_disappears() -> Result<()> {
    let site = Site::new().await?;
    site.client.ensure_initialized("v3.32.0", "k8s").await?;
    let mut felix = Felix::start(&site)?;
    felix.until("ready", async |felix| Ok(felix.answer("/readiness")? == 200)).await?;
    site.stop_store().await?;
    site.start_store().await?;
    // The first request may use the broken connection.
    eventually_async("the store takes a write", async || {
        site.set_felix(json!({"healthTimeoutOverrides": [{"name": "CalculationGraph", "timeout": "45s"}]}))
            .await?;
        Ok(true)
    })
    .await?;
    felix
        .until("later writes are applied", async |felix| {
            Ok(felix.log().contains("applied without a restart"))
        })
        .await?;
    felix.until("ready", async |felix| Ok(felix.answer("/readiness")? == 200)).await?;
    assert_eq!(felix.terminate().await?, Some(0), "{}", felix.log());
    Ok(())
}
