//! Extracts two kinds of names from a verified certificate: the subject's common name, and the URIs among its
//! alternative names.
//!
//! Hand-written, because rustls does not expose them and a full certificate parser would add ten crates. Nothing here
//! decides whether a certificate is valid; rustls has done that before.

/// The DER tags needed on the way.
mod tag {
    pub(super) const OCTET_STRING: u8 = 0x04;
    pub(super) const OID: u8 = 0x06;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
    pub(super) const VERSION: u8 = 0xa0;
    pub(super) const EXTENSIONS: u8 = 0xa3;
    /// A URI among the alternative names.
    pub(super) const URI: u8 = 0x86;
}

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// The names of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The subject's common name; the last one if there are several, as in Go.
    pub common_name: Option<String>,
    /// The URIs.
    pub uris: Vec<String>,
}

/// Extracts the names; `None` for bytes that are not a certificate.
#[must_use]
pub fn names(certificate: &[u8]) -> Option<Names> {
    let mut outer = Der(certificate).enter(tag::SEQUENCE)?;
    let mut body = outer.enter(tag::SEQUENCE)?;
    if body.peek() == Some(tag::VERSION) {
        body.next()?;
    }
    // Serial number, algorithm, issuer, validity.
    for _ in 0..4 {
        body.next()?;
    }
    let mut names = Names { common_name: common_name(body.enter(tag::SEQUENCE)?), uris: Vec::new() };
    while let Some((tag, contents)) = body.next() {
        if tag == tag::EXTENSIONS {
            names.uris = uris(Der(contents).enter(tag::SEQUENCE)?).unwrap_or_default();
        }
    }
    Some(names)
}

fn common_name(mut subject: Der<'_>) -> Option<String> {
    let mut found = None;
    while let Some(mut set) = subject.enter(tag::SET) {
        while let Some(mut pair) = set.enter(tag::SEQUENCE) {
            let is_name = pair.next()? == (tag::OID, COMMON_NAME);
            let (_, value) = pair.next()?;
            if is_name {
                found = String::from_utf8(value.to_vec()).ok();
            }
        }
    }
    found
}

fn uris(mut extensions: Der<'_>) -> Option<Vec<String>> {
    while let Some(mut extension) = extensions.enter(tag::SEQUENCE) {
        if extension.next()? != (tag::OID, ALTERNATIVE_NAMES) {
            continue;
        }
        // An optional criticality flag, then the value.
        while let Some((tag, value)) = extension.next() {
            if tag == tag::OCTET_STRING {
                let mut general = Der(value).enter(tag::SEQUENCE)?;
                let mut found = Vec::new();
                while let Some((tag, value)) = general.next() {
                    if tag == tag::URI {
                        found.extend(String::from_utf8(value.to_vec()));
                    }
                }
                return Some(found);
            }
        }
    }
    None
}

/// A reader of tagged values.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], mut rest) = self.0.split_first_chunk()?;
        let length = match first {
            0..=0x7f => usize::from(first),
            0x81..=0x84 => {
                let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
                rest = after;
                digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit))
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, contents))
    }

    fn enter(&mut self, wanted: u8) -> Option<Der<'a>> {
        if self.peek()? != wanted {
            return None;
        }
        self.next().map(|(_, contents)| Der(contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    #[test]
    fn names_of_real_certificates() {
        let folder = testkit::Folder::new("typha-names").unwrap();
        let authority = testkit::Authority::new(folder.path()).unwrap();
        let signed = authority.sign("typha", "typha-server", &[]).unwrap();
        let certificate = CertificateDer::from_pem_file(&signed.certificate).unwrap();
        let found = names(&certificate).unwrap();
        assert_eq!(found.common_name.as_deref(), Some("typha-server"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_names_or_not(bytes: Vec<u8>) {
            let _ = names(&bytes);
            let mut wrapped = vec![0x30, 0x82, 0xff, 0xff];
            wrapped.extend(&bytes);
            let _ = names(&wrapped);
        }
    }
}
