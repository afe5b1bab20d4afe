//! The file's header: its identity and how far it is known to be synced. Two copies in two pages are written
//! alternately, so that a torn write of one leaves the other. It holds no data of the store.

/// Size of one copy.
pub(super) const PAGE: usize = 4096;
/// Where the first frame starts.
pub(super) const FIRST_FRAME: u64 = 2 * PAGE as u64;

const MAGIC: &[u8; 8] = b"TortieKV";
const FORMAT: u32 = 1;
/// Bytes of a copy that are in use.
const USED: usize = 60;

/// The header's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Seed of all checksums of this file.
    pub(super) salt: u64,
    pub(super) cluster_id: u64,
    pub(super) member_id: u64,
    /// Counts header writes; the valid copy with the higher number counts.
    pub(super) turn: u64,
    /// Frames before this offset were synced: if they do not read back, the file is damaged.
    pub(super) synced: u64,
}

/// The state according to the two header pages.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderState {
    Valid(Header),
    /// A store file of a format this program does not know.
    Format(u32),
    /// Not a store file, or both copies are broken.
    Invalid,
}

impl Header {
    /// The encoded copy for this turn, and its offset.
    pub(super) fn encode(&self) -> (u64, Vec<u8>) {
        let mut page = Vec::with_capacity(PAGE);
        page.extend_from_slice(MAGIC);
        page.extend_from_slice(&FORMAT.to_le_bytes());
        for word in [self.salt, self.cluster_id, self.member_id, self.turn, self.synced] {
            page.extend_from_slice(&word.to_le_bytes());
        }
        let crc = crc32fast::hash(&page);
        page.extend_from_slice(&crc.to_le_bytes());
        page.resize(PAGE, 0);
        ((self.turn % 2) * PAGE as u64, page)
    }

    /// Reads both copies.
    pub(super) fn decode(pages: &[u8]) -> HeaderState {
        let copies = [pages.get(..PAGE).map(one), pages.get(PAGE..2 * PAGE).map(one)];
        let mut state = HeaderState::Invalid;
        for copy in copies.into_iter().flatten() {
            state = match (state, copy) {
                (HeaderState::Valid(a), HeaderState::Valid(b)) => {
                    HeaderState::Valid(if b.turn > a.turn { b } else { a })
                }
                (HeaderState::Valid(a), _) => HeaderState::Valid(a),
                (_, HeaderState::Valid(b)) => HeaderState::Valid(b),
                (HeaderState::Format(a), _) => HeaderState::Format(a),
                (HeaderState::Invalid, other) => other,
            };
        }
        state
    }
}

fn one(page: &[u8]) -> HeaderState {
    let word = |at: usize| page[at..at + 8].try_into().map(u64::from_le_bytes).unwrap_or_default();
    let crc = page[52..56].try_into().map(u32::from_le_bytes).unwrap_or_default();
    if &page[..8] != MAGIC || page.len() < USED || crc32fast::hash(&page[..52]) != crc {
        return HeaderState::Invalid;
    }
    let format = page[8..12].try_into().map(u32::from_le_bytes).unwrap_or_default();
    if format != FORMAT {
        return HeaderState::Format(format);
    }
    HeaderState::Valid(Header {
        salt: word(12),
        cluster_id: word(20),
        member_id: word(28),
        turn: word(36),
        synced: word(44),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_valid_copy_counts() {
        let mut file = vec![0; 2 * PAGE];
        assert_eq!(Header::decode(&file), HeaderState::Invalid);
        let mut header = Header { salt: 1, cluster_id: 2, member_id: 3, turn: 1, synced: 8192 };
        for turn in 1..=4 {
            header = Header { turn, synced: 8192 * turn, ..header };
            let (at, page) = header.encode();
            file[usize::try_from(at).unwrap()..][..PAGE].copy_from_slice(&page);
            assert_eq!(Header::decode(&file), HeaderState::Valid(header));
        }
        // Turn 4 lives in page 0: with it torn, turn 3 counts.
        file[20] ^= 1;
        assert_eq!(Header::decode(&file), HeaderState::Valid(Header { turn: 3, synced: 8192 * 3, ..header }));
        file[PAGE + 20] ^= 1;
        assert_eq!(Header::decode(&file), HeaderState::Invalid);
        assert_eq!(Header::decode(&file[..100]), HeaderState::Invalid);
    }
}
