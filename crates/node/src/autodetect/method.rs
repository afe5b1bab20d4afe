//! The methods of autodetection, and how they are written.

use api::scalars::Cidr;
use ipnet::IpNet;
use std::fmt;

/// A way to choose an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// The first usable address.
    FirstFound,
    /// An address of an interface whose name matches one of these.
    Interface(Vec<String>),
    /// The first usable address of an interface whose name matches none of these.
    SkipInterface(Vec<String>),
    /// The local address from which a destination is reached.
    CanReach(String),
    /// An address in one of these ranges.
    Cidr(Vec<IpNet>),
    /// The address that Kubernetes has for the node.
    KubernetesInternalIp,
}

/// Why a method cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MethodError {
    /// The method does not exist.
    #[error(
        "there is no autodetection method '{0}': use first-found, interface=REGEX, skip-interface=REGEX, can-reach=HOST, \
         cidr=RANGE or kubernetes-internal-ip"
    )]
    Unknown(String),
    /// An element of the list is empty.
    #[error("'{0}' has an empty element, which would match everything: remove it")]
    Empty(String),
    /// An element is not an IP range.
    #[error("'{method}' has an element that is not a range: {reason}")]
    Range {
        /// The whole setting.
        method: String,
        /// What is wrong.
        reason: String,
    },
    /// An element is not a regular expression.
    #[error("'{expression}' is not a regular expression: {reason}")]
    Expression {
        /// The element.
        expression: String,
        /// What is wrong.
        reason: String,
    },
}

impl MethodError {
    /// Whether the whole setting is invalid, so that no node can have been started with it before.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }
}

impl Method {
    /// Parses a method. An empty text means `first-found`.
    ///
    /// # Errors
    /// When the text is not a valid method.
    pub fn parse(text: &str) -> Result<Self, MethodError> {
        if text.is_empty() || text == "first-found" {
            return Ok(Self::FirstFound);
        }
        if text.starts_with("kubernetes-internal-ip") {
            return Ok(Self::KubernetesInternalIp);
        }
        let (name, rest) = text.split_once('=').ok_or_else(|| MethodError::Unknown(text.to_owned()))?;
        let elements = || -> Result<Vec<String>, MethodError> {
            let elements: Vec<String> = rest.split(',').map(|element| element.trim().to_owned()).collect();
            if elements.iter().any(String::is_empty) {
                return Err(MethodError::Empty(text.to_owned()));
            }
            Ok(elements)
        };
        match name {
            "interface" => Ok(Self::Interface(elements()?)),
            "skip-interface" => Ok(Self::SkipInterface(elements()?)),
            "can-reach" if rest.is_empty() => Err(MethodError::Empty(text.to_owned())),
            "can-reach" => Ok(Self::CanReach(rest.to_owned())),
            "cidr" => {
                let range = |element: String| match Cidr::from(element).parse() {
                    Ok(network) => Ok(network.masked()),
                    Err(reason) => Err(MethodError::Range { method: text.to_owned(), reason }),
                };
                Ok(Self::Cidr(elements()?.into_iter().map(range).collect::<Result<_, _>>()?))
            }
            _ => Err(MethodError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FirstFound => f.write_str("first-found"),
            Self::Interface(names) => write!(f, "interface={}", names.join(",")),
            Self::SkipInterface(names) => write!(f, "skip-interface={}", names.join(",")),
            Self::CanReach(destination) => write!(f, "can-reach={destination}"),
            Self::Cidr(ranges) => {
                let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
                write!(f, "cidr={}", ranges.join(","))
            }
            Self::KubernetesInternalIp => f.write_str("kubernetes-internal-ip"),
        }
    }
}
