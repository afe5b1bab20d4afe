//! The common name and the organisations of a certificate's subject.
//!
//! Parsed by hand: the certificate has been verified before it gets here, and two attributes of one field do not
//! justify a full X.509 parser in the program. Anything unexpected yields no name at all.

/// One DER element: its tag, its contents, and the bytes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, first, rest @ ..] = bytes else { return None };
    let (length, rest) = match first {
        0..=0x7f => (usize::from(*first), rest),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let digits = rest.get(..count)?;
            let length = digits.iter().fold(0_usize, |sum, digit| (sum << 8) | usize::from(*digit));
            (length, rest.get(count..)?)
        }
        _ => return None,
    };
    Some((*tag, rest.get(..length)?, rest.get(length..)?))
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const OBJECT: u8 = 0x06;
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const ORGANISATION: [u8; 3] = [0x55, 0x04, 0x0a];

/// The contents of the next element, which must have this tag, and the bytes after it.
fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    element(bytes).filter(|(found, ..)| *found == tag).map(|(_, contents, rest)| (contents, rest))
}

/// The common name and the organisations, in their order.
#[must_use]
pub(crate) fn names(certificate: &[u8]) -> Option<(String, Vec<String>)> {
    let (certificate, _) = expect(certificate, SEQUENCE)?;
    let (mut fields, _) = expect(certificate, SEQUENCE)?;
    if let Some((_, rest)) = expect(fields, VERSION) {
        fields = rest;
    }
    // The serial number, the algorithm, the issuer and the validity precede the subject.
    for _ in 0..4 {
        fields = element(fields)?.2;
    }
    let (mut subject, _) = expect(fields, SEQUENCE)?;
    let (mut common_name, mut organisations) = (None, Vec::new());
    while !subject.is_empty() {
        let (mut set, rest) = expect(subject, SET)?;
        subject = rest;
        while !set.is_empty() {
            let (attribute, rest) = expect(set, SEQUENCE)?;
            set = rest;
            let (kind, value) = expect(attribute, OBJECT)?;
            let (tag, text, _) = element(value)?;
            // UTF8String, PrintableString, IA5String.
            let text = matches!(tag, 0x0c | 0x13 | 0x16).then(|| std::str::from_utf8(text).ok()).flatten();
            match (kind == COMMON_NAME, kind == ORGANISATION) {
                (true, _) => common_name = common_name.or(text),
                (_, true) => organisations.push(text?.to_owned()),
                _ => {}
            }
        }
    }
    Some((common_name?.to_owned(), organisations))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    use testkit::{Authority, Folder};

    #[test]
    fn names_are_read_from_a_certificate() {
        let folder = Folder::new("subject").unwrap();
        let authority = Authority::new(folder.path()).unwrap();
        for (name, groups) in
            [("bob", vec![]), ("system:node:ä", vec!["one"]), (&*"x".repeat(300), vec!["g"])]
        {
            let files = authority.sign("c", name, &groups).unwrap();
            let der = CertificateDer::from_pem_file(&files.certificate).unwrap();
            let groups: Vec<String> = groups.into_iter().map(str::to_owned).collect();
            assert_eq!(names(&der), Some((name.to_owned(), groups)));
            // A truncated certificate yields no name.
            for end in 0..der.len() {
                let _ = names(&der[..end]);
            }
        }
        assert_eq!(names(b"rubbish"), None);
    }
}
