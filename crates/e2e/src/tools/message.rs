//! DNS messages: one query out, its answers back. Pure; rejects what it cannot parse.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The offset of the first query.
const HEADER: usize = 12;
/// Names may refer to earlier ones, but no name has more labels than this.
const LONGEST: usize = 128;

/// The type of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    A,
    Cname,
    Ptr,
    Aaaa,
    Srv,
}

impl Kind {
    const ALL: [(Self, &'static str, u16); 5] = [
        (Self::A, "A", 1),
        (Self::Cname, "CNAME", 5),
        (Self::Ptr, "PTR", 12),
        (Self::Aaaa, "AAAA", 28),
        (Self::Srv, "SRV", 33),
    ];

    pub(super) fn read(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name, _)| *name == word).map(|(kind, _, _)| *kind)
    }

    fn of_number(number: u16) -> Option<Self> {
        Self::ALL.iter().find(|(_, _, own)| *own == number).map(|(kind, _, _)| *kind)
    }

    fn row(self) -> &'static (Self, &'static str, u16) {
        Self::ALL.iter().find(|(kind, _, _)| *kind == self).unwrap_or(&Self::ALL[0])
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.row().1)
    }
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) seconds: u32,
    pub(super) value: String,
}

/// A query message; `None` if the name is not valid.
pub(super) fn question(name: &str, kind: Kind) -> Option<Vec<u8>> {
    // Answers are matched by their socket, so any identifier will do; recursion is desired.
    let mut message = vec![0x74, 0x6f, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for part in name.split('.') {
        let length = u8::try_from(part.len()).ok().filter(|length| (1..64).contains(length))?;
        message.push(length);
        message.extend(part.as_bytes());
    }
    message.push(0);
    message.extend(kind.row().2.to_be_bytes());
    message.extend([0, 1]);
    Some(message)
}

/// The answers in a message, of the known types; `None` if it cannot be parsed.
pub(super) fn records(message: &[u8]) -> Option<Vec<Record>> {
    let (questions, answers) = (word(message, 4)?, word(message, 6)?);
    let mut at = HEADER;
    for _ in 0..questions {
        at = name(message, at)?.1 + 4;
    }
    let mut found = Vec::new();
    for _ in 0..answers {
        let (owner, after) = name(message, at)?;
        let kind = word(message, after)?;
        let seconds = u32::from(word(message, after + 4)?) << 16 | u32::from(word(message, after + 6)?);
        let length = usize::from(word(message, after + 8)?);
        let data = after + 10;
        if let Some(kind) = Kind::of_number(kind) {
            let value = value(message, data, length, kind)?;
            found.push(Record { name: owner, kind, seconds, value });
        }
        at = data + length;
    }
    Some(found)
}

fn value(message: &[u8], at: usize, length: usize, kind: Kind) -> Option<String> {
    let bytes = message.get(at..at + length)?;
    Some(match kind {
        Kind::A => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string(),
        Kind::Aaaa => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string(),
        Kind::Cname | Kind::Ptr => format!("{}.", name(message, at)?.0),
        Kind::Srv => {
            let number = |offset| word(message, at + offset);
            format!("{} {} {} {}.", number(0)?, number(2)?, number(4)?, name(message, at + 6)?.0)
        }
    })
}

fn word(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]))
}

/// A name, and the offset after it.
fn name(message: &[u8], start: usize) -> Option<(String, usize)> {
    let (mut at, mut end, mut parts) = (start, None, Vec::new());
    for _ in 0..LONGEST {
        let length = *message.get(at)?;
        if length == 0 {
            return Some((parts.join("."), end.unwrap_or(at + 1)));
        }
        if length & 0xc0 == 0xc0 {
            end = end.or(Some(at + 2));
            at = usize::from(word(message, at)? & 0x3fff);
            continue;
        }
        let part = message.get(at + 1..at + 1 + usize::from(length))?;
        parts.push(String::from_utf8_lossy(part).into_owned());
        at += 1 + usize::from(length);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Kind, question, records};

    #[test]
    fn answers_are_parsed_and_invalid_messages_rejected() {
        let mut message = question("web.test", Kind::A).unwrap();
        message[7] = 2;
        // An alias with a name that ends like the query's, then its address.
        message.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 30, 0, 6, 3, b'o', b'w', b'n', 0xc0, 16]);
        message.extend([0xc0, 38, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4, 10, 0, 0, 9]);
        let found = records(&message).unwrap();
        assert_eq!(
            (found[0].kind, found[0].value.as_str(), found[0].seconds),
            (Kind::Cname, "own.test.", 30)
        );
        assert_eq!((found[1].name.as_str(), found[1].value.as_str()), ("own.test", "10.0.0.9"));
        assert_eq!(found[1].seconds, 256);
        assert_eq!(records(&message[..message.len() - 1]), None);
        // A name that refers to itself.
        let mut endless = question("web.test", Kind::A).unwrap();
        endless[7] = 1;
        let own = u8::try_from(endless.len()).unwrap();
        endless.extend([0xc0, own, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(records(&endless), None);
        assert_eq!(question("a..b", Kind::A), None);
    }
}
