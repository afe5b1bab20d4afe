//! The order in which blocks are used, as in Calico: the owner's blocks, then a new block, then (unless only owners may
//! use blocks) any block with room.
//!
//! ```text
//!  Start ─► own blocks ─► (claims may be old: own blocks again) ─► (settings may be old: read them)
//!             │                                                          │
//!             │ done                        limit reached: refused ◄─────┼─► new block ─┐ (until done)
//!             ▼                                                          │             │
//!         finished ◄── strict affinity: short ◄──── no free block ◄──────┴─────────────┘
//!             ▲                                          │
//!             └────────────── borrow ◄───────────────────┘
//! ```

use crate::pools::{self, Chosen, Labels, Pool};
use crate::reservation::AddressSet;
use ipnet::IpNet;
use model::IpamConfig;

/// The default limit of blocks of one IP version per owner.
pub const DEFAULT_MAX_BLOCKS: usize = 20;

/// How many blocks an owner may have: the smaller limit of the request and the settings; 0 means no limit of its own.
#[must_use]
pub fn block_limit(requested: u32, settings: &IpamConfig) -> usize {
    let requested = usize::try_from(requested).unwrap_or(usize::MAX);
    let global = usize::try_from(settings.max_blocks_per_host).unwrap_or_default();
    match (requested, global) {
        (0, 0) => DEFAULT_MAX_BLOCKS,
        (0, limit) | (limit, 0) => limit,
        (requested, global) => requested.min(global),
    }
}

/// What has been tried so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing.
    Start,
    /// The owner's blocks, by claims that may be incomplete.
    Known,
    /// The owner's blocks, with the number of those that count against the limit.
    Owned(usize),
    /// New blocks, until none was free.
    Exhausted,
    /// Blocks of other owners.
    Borrowed,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Serve from the owner's blocks, by the known claims.
    OwnBlocks,
    /// Serve from the owner's blocks, by claims that are read now: before a new block is taken, the real number of the
    /// owner's blocks must be known.
    OwnBlocksAgain,
    /// Read the settings: from here on they may cause a refusal, and a refusal writes nothing that would detect that
    /// they have changed.
    ReadSettings,
    /// Create a new block and serve from it.
    NewBlock {
        /// How many blocks the owner has.
        owned: usize,
    },
    /// Serve from any block of the pools.
    Borrow,
    /// Stop: the owner has reached its limit of blocks.
    Refuse {
        /// How many blocks it has.
        owned: usize,
        /// How many blocks it may have.
        limit: usize,
    },
    /// Stop: owners may not allocate blocks by themselves.
    Forbidden,
    /// Stop with fewer addresses than requested.
    Short(&'static str),
    /// Stop: nothing is missing.
    Finish,
}

/// The settings that determine the order.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// The settings.
    pub settings: &'a IpamConfig,
    /// Whether they were read for an earlier request.
    pub is_cached: bool,
    /// How many blocks the request allows; 0 for no limit of its own.
    pub max_blocks: u32,
}

/// The next step. `is_done` means that no address is missing any more.
#[must_use]
pub fn next(stage: Stage, is_done: bool, limits: Limits<'_>) -> Step {
    match stage {
        Stage::Start => Step::OwnBlocks,
        _ if is_done => Step::Finish,
        Stage::Known => Step::OwnBlocksAgain,
        Stage::Owned(_) if limits.is_cached => Step::ReadSettings,
        Stage::Owned(owned) => match block_limit(limits.max_blocks, limits.settings) {
            limit if owned >= limit => Step::Refuse { owned, limit },
            _ if !limits.settings.auto_allocate_blocks => Step::Forbidden,
            _ => Step::NewBlock { owned },
        },
        Stage::Exhausted if limits.settings.strict_affinity => {
            Step::Short("No more free affine blocks and strict affinity enabled")
        }
        Stage::Exhausted => Step::Borrow,
        Stage::Borrowed => Step::Finish,
    }
}

/// How a claim of the owner can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimUse {
    /// Addresses can be taken from the block.
    Serve,
    /// All addresses of the block are reserved; it counts against the limit.
    Count,
    /// The block's pool no longer selects the node: the block is given up if it is empty.
    GiveUp,
    /// The block is in a pool that this request may not use.
    Ignore,
}

/// How a claim on a block can be used.
///
/// # Errors
/// A node selector that cannot be parsed, so that it is unknown whether the block still belongs to the node.
pub fn claim_use(
    cidr: IpNet,
    chosen: &Chosen,
    all: &[Pool],
    reserved: &AddressSet,
    node: &Labels,
) -> Result<ClaimUse, crate::NoPool> {
    let first = cidr.network();
    if pools::containing(&chosen.usable, first).is_some() {
        return Ok(if reserved.covers(&cidr) { ClaimUse::Count } else { ClaimUse::Serve });
    }
    let is_selected = pools::containing(&chosen.selecting, first).is_some();
    Ok(if !is_selected && is_unselected(cidr, all, node)? { ClaimUse::GiveUp } else { ClaimUse::Ignore })
}

/// Whether a block is in a pool that no longer selects the node.
///
/// # Errors
/// A node selector that cannot be parsed.
pub fn is_unselected(cidr: IpNet, all: &[Pool], node: &Labels) -> Result<bool, crate::NoPool> {
    match pools::containing(all.iter().filter(|pool| pool.is_enabled), cidr.network()) {
        Some(pool) => Ok(!pool.selects_node(node)?),
        None => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(strict_affinity: bool, max_blocks_per_host: i32) -> IpamConfig {
        IpamConfig {
            strict_affinity,
            max_blocks_per_host,
            auto_allocate_blocks: true,
            ..IpamConfig::default()
        }
    }

    #[test]
    fn the_smaller_limit_applies_and_20_by_default() {
        for (requested, global, expected) in [
            (0, 0, 20),
            (0, 5, 5),
            (3, 0, 3),
            (3, 5, 3),
            (9, 5, 5),
            (0, -1, 20),
            (7, -1, 7),
            (u32::MAX, 5, 5),
        ] {
            assert_eq!(block_limit(requested, &settings(true, global)), expected, "{requested} {global}");
        }
    }

    #[test]
    fn the_order_is_calicos() {
        let refuse = |owned| Step::Refuse { owned, limit: 2 };
        let short = Step::Short("No more free affine blocks and strict affinity enabled");
        // Stage, done, settings cached, strict affinity, step.
        for (stage, is_done, is_cached, strict, expected) in [
            // Even with nothing missing: this gives up claims on blocks of pools that no longer select the node.
            (Stage::Start, false, true, false, Step::OwnBlocks),
            (Stage::Start, true, true, false, Step::OwnBlocks),
            (Stage::Known, false, true, false, Step::OwnBlocksAgain),
            (Stage::Known, true, true, false, Step::Finish),
            (Stage::Owned(0), false, true, false, Step::ReadSettings),
            (Stage::Owned(9), false, true, false, Step::ReadSettings),
            (Stage::Owned(1), false, false, true, Step::NewBlock { owned: 1 }),
            (Stage::Owned(2), false, false, true, refuse(2)),
            (Stage::Owned(3), false, false, false, refuse(3)),
            (Stage::Owned(3), true, false, true, Step::Finish),
            (Stage::Exhausted, false, false, true, short),
            (Stage::Exhausted, false, false, false, Step::Borrow),
            (Stage::Exhausted, true, false, false, Step::Finish),
            (Stage::Borrowed, false, false, false, Step::Finish),
            (Stage::Borrowed, true, false, false, Step::Finish),
        ] {
            let settings = settings(strict, 2);
            let limits = Limits { settings: &settings, is_cached, max_blocks: 0 };
            assert_eq!(next(stage, is_done, limits), expected, "{stage:?} {is_done} {is_cached} {strict}");
        }
        let settings = IpamConfig { auto_allocate_blocks: false, ..settings(true, 2) };
        let limits = Limits { settings: &settings, is_cached: false, max_blocks: 0 };
        assert_eq!(next(Stage::Owned(1), false, limits), Step::Forbidden);
        assert_eq!(next(Stage::Owned(2), false, limits), refuse(2));
        assert_eq!(next(Stage::Owned(1), true, limits), Step::Finish);
    }
}
