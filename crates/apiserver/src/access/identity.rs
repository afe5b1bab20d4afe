//! The user that a connection and its headers name.
//!
//! The sources, in the order of Kubernetes' servers: headers of a proxy with a certificate of the request-header
//! authority; the client's own certificate; a token; none (`system:anonymous`).

use kube_access::reviews::User;
use std::collections::BTreeMap;

/// The names of the headers in which a proxy names users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderNames {
    /// Headers for the name.
    pub user: Vec<String>,
    /// Headers for the uid.
    pub uid: Vec<String>,
    /// Headers for the groups, one header per group.
    pub group: Vec<String>,
    /// Prefixes of the headers for everything else.
    pub extra: Vec<String>,
}

impl Default for HeaderNames {
    fn default() -> Self {
        Self {
            user: vec!["x-remote-user".into()],
            uid: vec!["x-remote-uid".into()],
            group: vec!["x-remote-group".into()],
            extra: vec!["x-remote-extra-".into()],
        }
    }
}

/// The user that a trusted proxy names; `None` if it names none.
#[must_use]
pub(crate) fn from_headers(names: &HeaderNames, headers: &[(String, String)]) -> Option<User> {
    let values = |wanted: &[String]| -> Vec<String> {
        headers
            .iter()
            .filter(|(name, _)| wanted.iter().any(|wanted| wanted.eq_ignore_ascii_case(name)))
            .map(|(_, value)| value.clone())
            .collect()
    };
    let name = values(&names.user).into_iter().find(|value| !value.is_empty())?;
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (header, value) in headers {
        let lower = header.to_ascii_lowercase();
        let prefix = names.extra.iter().find(|prefix| lower.starts_with(&prefix.to_ascii_lowercase()));
        if let Some(prefix) = prefix {
            let key = unescaped(&lower[prefix.len()..]);
            extra.entry(key).or_default().push(value.clone());
        }
    }
    let uid = values(&names.uid).into_iter().next().unwrap_or_default();
    Some(User { name, uid, groups: values(&names.group), extra })
}

/// Decodes the key of an extra value, which is percent-encoded in headers.
fn unescaped(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, others @ ..] = rest {
        rest = others;
        if *first == b'%'
            && let [high, low, others @ ..] = rest
            && let Ok(digits) = std::str::from_utf8(&[*high, *low])
            && let Ok(byte) = u8::from_str_radix(digits, 16)
        {
            bytes.push(byte);
            rest = others;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// The user of a certificate: its common name, and its organisations as groups.
#[must_use]
pub(crate) fn from_certificate(der: &[u8]) -> Option<User> {
    let (name, groups) = super::subject::names(der)?;
    Some(User { name, groups, ..User::default() })
}

/// The token in an `Authorization` header.
#[must_use]
pub(crate) fn bearer_token(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_names_the_user() {
        let headers: Vec<(String, String)> = [
            ("X-Remote-User", "alice"),
            ("X-Remote-Group", "a"),
            ("x-remote-group", "b"),
            ("X-Remote-Extra-Scopes%2Fx", "one"),
            ("X-Other", "z"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let user = from_headers(&HeaderNames::default(), &headers).unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups.as_slice()),
            ("alice", ["a".to_owned(), "b".to_owned()].as_slice())
        );
        assert_eq!(user.extra, BTreeMap::from([("scopes/x".to_owned(), vec!["one".to_owned()])]));
        assert_eq!(from_headers(&HeaderNames::default(), &headers[1..]), None);
    }

    #[test]
    fn tokens() {
        assert_eq!(bearer_token("Bearer abc"), Some("abc"));
        assert_eq!(bearer_token("bearer  abc "), Some("abc"));
        assert_eq!(
            (bearer_token("Basic abc"), bearer_token("Bearer "), bearer_token("")),
            (None, None, None)
        );
    }
}
