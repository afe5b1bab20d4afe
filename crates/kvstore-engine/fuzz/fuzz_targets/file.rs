//! Any bytes are a store's file or a snapshot, or are refused; an accepted file can be read and written, and is the
//! same when opened again. Checksums and digest would reject every input, so the input is the bodies of records, and
//! everything around them is built here, by another implementation of the format than the one under test. Every input
//! has a folder of its own: run with `TMPDIR=/dev/shm cargo +nightly fuzz run file -- -malloc_limit_mb=64`.
#![no_main]

mod folder;

use bytes::Bytes;
use folder::Folder;
use kvstore_engine::{Options, PutRequest, RangeRequest, Store};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest as _, Sha256};

const SALT: u64 = 7;
const PAGE: usize = 4096;

fuzz_target!(|input: &[u8]| {
    let [first, rest @ ..] = input else { return };
    let file = match first % 4 {
        // Unchanged, after a valid header.
        0 => [header(), rest.to_vec()].concat(),
        // Unchanged.
        1 => rest.to_vec(),
        _ => [header(), frames(rest)].concat(),
    };
    let has_leases = first % 4 < 2 || rest.contains(&5);
    let folder = Folder::new();
    let store = folder.path().join("store");
    if first % 8 < 4 {
        std::fs::create_dir(&store).expect("a folder");
        std::fs::write(store.join("tortie.db"), file).expect("a file");
    } else {
        let snapshot = folder.path().join("snapshot");
        std::fs::write(&snapshot, packed(file)).expect("a snapshot");
        if let Err(refusal) = Store::restore(&store, &snapshot) {
            assert!(!refusal.to_string().is_empty());
            return;
        }
    }
    let opened = match Store::open(&store, Options::default()) {
        Ok(opened) => opened,
        Err(refusal) => return assert!(!refusal.to_string().is_empty()),
    };
    let all = RangeRequest { range_end: Bytes::from_static(&[0]), ..RangeRequest::key(vec![0]) };
    let _ = opened.range(&all);
    let put = PutRequest { key: Bytes::from_static(b"k"), ..PutRequest::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let _ = runtime.block_on(opened.put(put));
    let before = (opened.revision(), opened.hash(0).map(|hash| hash.hash).ok());
    opened.close();
    drop(opened);
    // A store at the highest revision has overflowed.
    if before.0 > i64::MAX / 2 {
        return;
    }
    let again = Store::open(&store, Options::default()).expect("what was opened once can be opened again");
    // A lease may expire in between.
    if !has_leases {
        assert_eq!((again.revision(), again.hash(0).map(|hash| hash.hash).ok()), before);
    }
    again.close();
});

/// Two pages of header.
fn header() -> Vec<u8> {
    let mut page = b"TortieKV\x01\0\0\0".to_vec();
    for word in [SALT, 1, 2, 3, 2 * PAGE as u64] {
        page.extend(word.to_le_bytes());
    }
    page.extend(crc32(&page).to_le_bytes());
    page.resize(PAGE, 0);
    page.repeat(2)
}

/// Frames records from bodies: a byte with the length, whose highest bit ends a commit, and the body.
fn frames(mut input: &[u8]) -> Vec<u8> {
    let (mut file, mut payload, mut sequence) = (Vec::new(), Vec::new(), 1_u64);
    while let [length, rest @ ..] = input {
        let (body, rest) = rest.split_at(usize::from(length & 0x7f).min(rest.len()));
        input = rest;
        payload.extend(size(body).to_le_bytes());
        payload.extend(crc32(body).to_le_bytes());
        payload.extend(body);
        if *length < 0x80 && !input.is_empty() {
            continue;
        }
        let offset = (2 * PAGE + file.len()) as u64;
        let place = [SALT.to_le_bytes(), offset.to_le_bytes()].concat();
        let sealed = [&place[..], &size(&payload).to_le_bytes(), &sequence.to_le_bytes(), &payload].concat();
        file.extend(0x6d74_7254_u32.to_le_bytes());
        file.extend(size(&payload).to_le_bytes());
        file.extend(sequence.to_le_bytes());
        file.extend(crc32(&sealed).to_le_bytes());
        file.extend([0; 4]);
        file.append(&mut payload);
        file.resize(file.len().next_multiple_of(8), 0);
        sequence += 1;
    }
    file
}

/// Packs a file as a snapshot.
fn packed(mut file: Vec<u8>) -> Vec<u8> {
    file.resize(file.len().next_multiple_of(512), 0);
    let digest = Sha256::digest(&file);
    file.extend(digest);
    file
}

fn size(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("inputs are small")
}

/// The common CRC-32, bit by bit: slow, small, and independent of the implementation under test.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(
            crc ^ u32::from(byte),
            |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 },
        )
    })
}
