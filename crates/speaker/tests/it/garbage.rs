//! A peer that does not speak BGP.

use crate::harness::{OURS, Running, Wire, intent, session, wait_for};
use anyhow::Result;
use bgp::IpVersion;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn garbage_is_answered_and_changes_nothing() -> Result<()> {
    let wire = Wire::new()?;
    let mut passive = session(IpVersion::V4);
    passive.passive = true;
    let running = Running::start(&wire, intent([passive]))?;
    let address = format!("{}:179", OURS[0]);
    let open = [&[0xff; 16][..], &[0, 29, 1, 4, 0xfc, 0, 0, 90, 10, 99, 0, 2, 0]].concat();
    let mut short = open.clone();
    short[17] = 18;
    let mut unknown = open.clone();
    unknown[18] = 9;
    for (bytes, code, subcode) in [
        (b"GET / HTTP/1.1\r\nHost: router\r\n\r\n".to_vec(), 1, 1),
        (short, 1, 2),
        (unknown, 1, 3),
        // A keepalive where an OPEN is expected.
        ([&[0xff; 16][..], &[0, 19, 4]].concat(), 5, 1),
    ] {
        let mut answer = Vec::new();
        // During the pause after an error the speaker closes connections without a message.
        wait_for("an answer", || {
            answer = wire
                .theirs
                .run(|| -> std::io::Result<Vec<u8>> {
                    let mut stream = TcpStream::connect(&address)?;
                    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
                    stream.write_all(&bytes)?;
                    let mut answer = Vec::new();
                    // A reset also ends reading.
                    let _ = stream.read_to_end(&mut answer);
                    Ok(answer)
                })?
                .unwrap_or_default();
            Ok(answer.len() > 19)
        })?;
        // Our OPEN comes first, the NOTIFICATION last.
        let length = usize::from(u16::from_be_bytes([answer[16], answer[17]]));
        let last = answer.get(length..).unwrap_or_default();
        assert_eq!(last.get(18..21), Some(&[3, code, subcode][..]), "{bytes:?}: {answer:?}");
    }
    assert_eq!(running.peers()?.len(), 1);
    Ok(())
}
