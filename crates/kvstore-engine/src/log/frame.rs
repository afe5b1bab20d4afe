//! Frames: one commit in the file. `magic u32 | payload length u32 | sequence u64 | crc32 u32 | zero u32`, then the payload.
//! The checksum covers the file's salt, the frame's offset, the header's other fields and the payload.

/// Length of a frame's header.
pub(crate) const FRAME_HEADER: usize = 24;
/// The first bytes of a frame.
pub(super) const MAGIC: u32 = 0x6d74_7254;

/// A frame header as read, before verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: u32,
    pub(super) sequence: u64,
    crc: u32,
}

/// Reads a header; `None` if these bytes cannot be one.
pub(super) fn parse(bytes: &[u8]) -> Option<FrameHeader> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if word(0)? != MAGIC || word(20)? != 0 {
        return None;
    }
    let sequence = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    Some(FrameHeader { length: word(4)?, sequence, crc: word(16)? })
}

/// Whether `payload` is what the header at `offset` of the file with this salt describes.
pub(super) fn verify(header: &FrameHeader, salt: u64, offset: u64, payload: &[u8]) -> bool {
    payload.len() == header.length as usize
        && checksum(salt, offset, header.length, header.sequence, payload) == header.crc
}

/// Fills in the header at the front of `frame`, whose payload is in place.
pub(super) fn seal(frame: &mut [u8], salt: u64, offset: u64, sequence: u64) {
    let (header, payload) = frame.split_at_mut(FRAME_HEADER);
    let length = u32::try_from(payload.len()).expect("commits are cut far below 4 GiB");
    let crc = checksum(salt, offset, length, sequence, payload);
    header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&length.to_le_bytes());
    header[8..16].copy_from_slice(&sequence.to_le_bytes());
    header[16..20].copy_from_slice(&crc.to_le_bytes());
    header[20..24].fill(0);
}

fn checksum(salt: u64, offset: u64, length: u32, sequence: u64, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(&length.to_le_bytes());
    hasher.update(&sequence.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_valid_only_at_its_offset_in_its_file() {
        let mut frame = vec![0; FRAME_HEADER];
        frame.extend_from_slice(b"payload");
        seal(&mut frame, 11, 8192, 5);
        let header = parse(&frame).unwrap();
        assert_eq!((header.length, header.sequence), (7, 5));
        assert!(verify(&header, 11, 8192, b"payload"));
        assert!(!verify(&header, 12, 8192, b"payload"));
        assert!(!verify(&header, 11, 8200, b"payload"));
        assert!(!verify(&header, 11, 8192, b"paYload"));
        assert_eq!(parse(&frame[..20]), None);
        assert_eq!(parse(&[0; 24]), None);
    }
}
