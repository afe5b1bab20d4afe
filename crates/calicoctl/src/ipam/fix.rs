//! `calicoctl ipam check --fix`: repairs records that contradict each other. No address changes hands: leaked addresses
//! are released by `ipam release`, which is a separate decision.
//!
//! Programs that allocate pass through states that look like contradictions. So, unless the datastore is locked, the
//! same repair must be due at two readings some time apart, on an entry that did not change in between; and each write
//! compares revisions.

use super::snapshot::Snapshot;
use crate::context::Context;
use crate::failure::{Failure, Result};
use api::BlockAffinityState;
use client::Client;
use ipam_core::Repair;
use model::{BlockAffinity, IpamHandle, Key, KvPair, Value};
use std::io::Read as _;
use std::time::Duration;

/// Longer input is not an answer.
const LONGEST_ANSWER: usize = 16;

/// How to carry out the repairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixOptions {
    /// Whether to skip the confirmation.
    pub(super) yes: bool,
    /// How long to wait for work in progress.
    pub(super) settle: Duration,
    /// Whether the datastore is locked, so that nothing else writes.
    pub(super) is_locked: bool,
}

/// Plans the repairs, asks for confirmation and carries them out.
pub(super) async fn run(client: &Client, options: FixOptions, context: &mut Context) -> Result<()> {
    let backend = client.backend();
    let first = Snapshot::load(backend.as_ref()).await?;
    let plan = first.repairs();
    if plan.is_empty() {
        return context
            .print("\nBlocks, claims and handles agree with each other; there is nothing to repair.\n");
    }
    let mut text = format!("\nRepairs that are safe ({}):\n", plan.len());
    for repair in plan.values() {
        text += &format!("  - {repair}\n");
    }
    context.print(&text)?;
    if !options.yes && !confirmed(context)? {
        return context.print("Nothing was changed.\n");
    }
    if !options.is_locked && !options.settle.is_zero() {
        context.warn(&format!(
            "The datastore is not locked: looking again in {} s, so that allocations under way are left alone.",
            options.settle.as_secs()
        ));
        tokio::time::sleep(options.settle).await;
    }
    let second = Snapshot::load(backend.as_ref()).await?;
    let (mut done, mut skipped, mut failures) = (0, 0, Vec::new());
    let due = second.repairs();
    for (key, repair) in &plan {
        let is_due = due.get(key) == Some(repair) && second.revision(key) == first.revision(key);
        let outcome =
            if is_due { carry_out(client, key, repair, second.entry(key)).await } else { Ok(false) };
        match outcome {
            Ok(true) => done += 1,
            Ok(false) => {
                skipped += 1;
                context.print(&format!("  skipped, since it changed meanwhile: {repair}\n"))?;
            }
            Err(error) => failures.push(format!("could not {repair}: {error}")),
        }
    }
    context.print(&format!(
        "Made {done} of {} repairs; {skipped} skipped; {} failed.\n",
        plan.len(),
        failures.len()
    ))?;
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(failures.join("\n"))) }
}

/// Asks on standard output and reads a line from standard input; no input means no.
fn confirmed(context: &mut Context) -> Result<bool> {
    context.print("Carry them out? [y/N] ")?;
    context.surroundings.stdout.flush()?;
    let (mut answer, mut byte) = (Vec::new(), [0]);
    // One byte at a time: anything after the line is not ours to read, and a line is short.
    while answer.len() < LONGEST_ANSWER && context.surroundings.stdin.read(&mut byte)? == 1 && byte != *b"\n"
    {
        answer.extend_from_slice(&byte);
    }
    Ok(matches!(String::from_utf8_lossy(&answer).trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Makes one repair; false if another client changed the entry first.
async fn carry_out(
    client: &Client,
    key: &Key,
    repair: &Repair,
    entry: Option<&KvPair>,
) -> client::Result<bool> {
    let backend = client.backend();
    let changed = |value| entry.map(|entry| KvPair { value, ..entry.clone() });
    let new = |value| KvPair::new(key.clone(), value);
    let outcome = match (repair, entry) {
        (
            Repair::DeleteHandle { .. } | Repair::DeleteClaim { .. } | Repair::DeleteBlock { .. },
            Some(entry),
        ) => backend.delete_entry(entry).await,
        (Repair::SetHandle { handle_id, to, .. }, entry) => {
            let mut handle = match entry.map(|entry| &entry.value) {
                Some(Value::IpamHandle(handle)) => handle.clone(),
                _ => IpamHandle { handle_id: handle_id.clone(), ..IpamHandle::default() },
            };
            handle.block.clone_from(to);
            let value = Value::IpamHandle(handle);
            match changed(value.clone()) {
                Some(entry) => backend.update(&entry).await,
                None => backend.create(&new(value)).await,
            }
        }
        (Repair::CreateClaim { .. }, None) => {
            let claim = BlockAffinity { state: BlockAffinityState::Confirmed, ..BlockAffinity::default() };
            backend.create(&new(Value::BlockAffinity(claim))).await
        }
        (Repair::RewriteBlock { block }, Some(entry)) => {
            let mut block = block.clone();
            block.sequence_number += 1;
            backend.update(&KvPair { value: Value::Block(*block), ..entry.clone() }).await
        }
        _ => return Ok(false),
    };
    match outcome {
        Ok(_) => Ok(true),
        Err(error) if error.is_conflict() || error.is_does_not_exist() || error.is_already_exists() => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}
