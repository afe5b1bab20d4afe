//! What is required of a client's certificate: one choice for Felix, Typha and the servers that enforce it.

use api::PrometheusMetricsClientAuth as Word;
use std::fmt;

/// What is required of a client's certificate. The words are Calico's (and Go's).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// No certificate is needed: `NoClientCert`.
    #[default]
    None,
    /// None, or any: `RequestClientCert`. The server itself inspects it. Not offered to users.
    RequestAny,
    /// Any: `RequireAnyClientCert`.
    RequireAny,
    /// None, or one that an authority signed: `VerifyClientCertIfGiven`.
    VerifyIfGiven,
    /// One that an authority signed: `RequireAndVerifyClientCert`.
    RequireAndVerify,
}

impl ClientAuth {
    /// The words that users write for each choice.
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
