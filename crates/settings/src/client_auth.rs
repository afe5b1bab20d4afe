//! What is asked of a client's certificate: one choice for Felix, Typha and the servers that carry it out.

use api::PrometheusMetricsClientAuth as Word;
use std::fmt;

/// What is asked of a client's certificate. The words are Calico's (and Go's).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// There need be none: `NoClientCert`.
    #[default]
    None,
    /// None, or any: `RequestClientCert`. Whoever serves looks at it. Not a word for users.
    RequestAny,
    /// Any: `RequireAnyClientCert`.
    RequireAny,
    /// None, or one that an authority signed: `VerifyClientCertIfGiven`.
    VerifyIfGiven,
    /// One that an authority signed: `RequireAndVerifyClientCert`.
    RequireAndVerify,
}

impl ClientAuth {
    /// The words that users write.
    pub const WORDS: &'static [(&'static str, Self)] = &[
        (Word::RequireAndVerifyClientCert.as_str(), Self::RequireAndVerify),
        (Word::RequireAnyClientCert.as_str(), Self::RequireAny),
        (Word::VerifyClientCertIfGiven.as_str(), Self::VerifyIfGiven),
        (Word::NoClientCert.as_str(), Self::None),
    ];
}

impl fmt::Display for ClientAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::WORDS.iter().find(|(_, value)| value == self);
        f.write_str(word.map_or("RequestClientCert", |(word, _)| word))
    }
}
