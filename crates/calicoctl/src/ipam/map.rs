//! `calicoctl ipam show --map`: pools as maps, one cell per block, shaded by use; for a terminal, or as a page.
//!
//! Pure: values in, text out. A pool with room for more blocks than a map can show is drawn with its existing blocks
//! only. Each shade is also a character, so that the map can be read without colours.

mod page;

pub(super) use page::html;

use super::usage::{BlockUse, PoolUse, percent};
use ::explain::counted;
use std::fmt::Write as _;

/// The maximum number of cells of one map.
const MOST_CELLS: u128 = 2048;

/// Cells per line, if the terminal is wide enough.
const LONGEST_LINE: usize = 64;

/// The width of the indentation before the cells of a line.
const MARGIN: usize = 2;

/// One place of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell<'a> {
    /// No block exists here.
    Vacant,
    Block(&'a BlockUse),
}

/// The cells of a pool in the order of addresses, and whether they include places without a block.
fn cells(pool: &PoolUse) -> (Vec<Cell<'_>>, bool) {
    let existing = || pool.blocks.iter().map(Cell::Block).collect::<Vec<_>>();
    let Some((cidr, places)) = pool.cidr.zip(pool.places()).filter(|(_, places)| *places <= MOST_CELLS)
    else {
        return (existing(), false);
    };
    let Ok(subnets) = cidr.subnets(pool.block_size) else { return (existing(), false) };
    // Blocks of another size than the pool has now do not fit its grid.
    if pool.blocks.iter().any(|block| block.cidr.prefix_len() != pool.block_size) {
        return (existing(), false);
    }
    let mut cells = Vec::with_capacity(usize::try_from(places).unwrap_or_default());
    let mut blocks = pool.blocks.iter().peekable();
    for subnet in subnets {
        cells.push(match blocks.next_if(|block| block.cidr == subnet) {
            Some(block) => Cell::Block(block),
            None => Cell::Vacant,
        });
    }
    (cells, true)
}

/// How full a block is, from 0 to 10.
fn tenths(block: &BlockUse) -> u8 {
    if block.in_use >= block.capacity && block.capacity > 0 {
        return 10;
    }
    let tenths = (block.in_use.saturating_mul(10)).div_ceil(block.capacity.max(1)).min(9);
    u8::try_from(tenths).unwrap_or(9)
}

fn character(cell: Cell<'_>) -> char {
    match cell {
        Cell::Vacant => '.',
        Cell::Block(block) => match tenths(block) {
            10 => '#',
            tenths => char::from(b'0' + tenths),
        },
    }
}

/// The background of a cell: from green over yellow to red, of the 256 colours that modern terminals have.
fn background(cell: Cell<'_>) -> Option<u8> {
    const SHADES: [u8; 11] = [22, 28, 34, 70, 106, 142, 178, 172, 166, 160, 124];
    match cell {
        Cell::Vacant => None,
        Cell::Block(block) => Some(SHADES[usize::from(tenths(block)).min(10)]),
    }
}

/// The maps of all pools.
#[must_use]
pub(super) fn text(pools: &[PoolUse], width: Option<usize>, colours: bool) -> String {
    let length = width.unwrap_or(80).saturating_sub(MARGIN).clamp(8, LONGEST_LINE);
    // A power of two aligns the lines of a map with address boundaries.
    let length = 1 << length.ilog2();
    let mut out = String::new();
    for pool in pools {
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{}{}: {} of {} addresses in use ({}%), {} on {}",
            pool.title(),
            if pool.disabled { " (disabled)" } else { "" },
            pool.in_use,
            pool.capacity,
            percent(pool.in_use, pool.capacity),
            counted(pool.blocks.len(), "block"),
            match owners(pool) {
                0 => "no node".to_owned(),
                number => counted(number, "node"),
            }
        );
        let (cells, is_whole) = cells(pool);
        for line in cells.chunks(length) {
            out.push_str(&" ".repeat(MARGIN));
            for cell in line {
                match background(*cell).filter(|_| colours) {
                    Some(shade) => {
                        let _ = write!(out, "\u{1b}[48;5;{shade}m\u{1b}[97m{}\u{1b}[0m", character(*cell));
                    }
                    None => out.push(character(*cell)),
                }
            }
            out.push('\n');
        }
        if !is_whole && !pool.blocks.is_empty() {
            out.push_str("  (only blocks that exist are shown)\n");
        }
        out.push('\n');
    }
    if !pools.is_empty() {
        out.push_str(
            "One character per block: . none yet, 0 empty, 1 to 9 up to that many tenths in use, # full.\n\
             Figures: calicoctl ipam show --show-blocks\n",
        );
    }
    out
}

/// The number of distinct owners of the blocks.
fn owners(pool: &PoolUse) -> usize {
    let owners: std::collections::BTreeSet<&str> =
        pool.blocks.iter().map(|block| block.owner.as_str()).filter(|owner| !owner.is_empty()).collect();
    owners.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn block(cidr: &str, owner: &str, in_use: u128) -> BlockUse {
        let cidr: ipnet::IpNet = cidr.parse().expect("a range");
        let capacity = 1 << (cidr.max_prefix_len() - cidr.prefix_len());
        BlockUse { cidr, owner: owner.to_owned(), capacity, in_use, reserved: 0 }
    }

    pub(super) fn pool(cidr: &str, block_size: u8, blocks: Vec<BlockUse>) -> PoolUse {
        let cidr: ipnet::IpNet = cidr.parse().expect("a range");
        let capacity = 1_u128 << (cidr.max_prefix_len() - cidr.prefix_len());
        let in_use = blocks.iter().map(|block| block.in_use).sum();
        PoolUse {
            name: "pool".to_owned(),
            cidr: Some(cidr),
            block_size,
            disabled: false,
            capacity,
            in_use,
            reserved: 0,
            available: capacity - in_use,
            blocks,
        }
    }

    fn four() -> PoolUse {
        pool(
            "10.0.0.0/24",
            28,
            vec![
                block("10.0.0.0/28", "n1", 16),
                block("10.0.0.16/28", "n1", 1),
                block("10.0.0.48/28", "n2", 0),
                block("10.0.0.240/28", "", 8),
            ],
        )
    }

    #[test]
    fn each_block_has_its_cell_and_character() {
        assert_eq!(
            text(&[four()], Some(40), false),
            "pool 10.0.0.0/24: 25 of 256 addresses in use (9%), 4 blocks on 2 nodes\n  #1.0...........5\n\n\
             One character per block: . none yet, 0 empty, 1 to 9 up to that many tenths in use, # full.\n\
             Figures: calicoctl ipam show --show-blocks\n"
        );
        // A narrow terminal has shorter lines, which are still aligned.
        assert!(text(&[four()], Some(13), false).contains("  #1.0....\n  .......5\n"));
        let coloured = text(&[four()], Some(80), true);
        assert!(coloured.contains("  \u{1b}[48;5;124m\u{1b}[97m#\u{1b}[0m"), "{coloured}");
        assert!(!text(&[four()], Some(80), false).contains('\u{1b}'));
    }

    #[test]
    fn a_pool_too_large_for_a_map_shows_only_existing_blocks() {
        let huge =
            pool("fd00::/48", 122, vec![block("fd00::40/122", "n1", 3), block("fd00:0:0:1::/122", "n2", 64)]);
        let text = text(&[huge], None, false);
        assert!(text.contains("\n  1#\n  (only blocks that exist are shown)\n"), "{text}");
        let other_size = pool("10.0.0.0/24", 26, vec![block("10.0.0.0/28", "n1", 3)]);
        assert!(super::text(&[other_size], None, false).contains("\n  2\n"));
    }

    #[test]
    fn shades_show_utilisation() {
        for (in_use, expected) in
            [(0, '0'), (1, '1'), (6, '1'), (7, '2'), (32, '5'), (58, '9'), (63, '9'), (64, '#')]
        {
            let block = block("10.0.0.0/26", "n", in_use);
            assert_eq!(character(Cell::Block(&block)), expected, "{in_use}");
        }
    }
}
