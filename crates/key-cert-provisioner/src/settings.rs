//! The environment variables, one row each, and the settings that result from them.

use crate::files::Files;
use crate::keys::KeyKind;
use crate::request::Subject;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use daemon::Environment;
use settings::kinds::{Of, Trouble, go_duration, text};
use settings::{Mistake, Mistakes, Reading};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Go writes certificates into variables in the URL alphabet, with padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

settings::settings! {
    /// The values of the environment variables.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Settings, VARIABLES {
        /// The label by which the request's signer and Calico's operator find it. Required.
        app_name: String = text(), "APP_NAME", "";
        /// Certificates of the authority, PEM in base64, to be written along with the others.
        ca_cert: String = text(), "CA_CERT", "";
        /// The file for the authority's certificates. Required if `CA_CERT` is set.
        ca_cert_name: String = text(), "CA_CERT_NAME", "";
        /// The folder of all files. Required.
        certificate_path: PathBuf = text(), "CERTIFICATE_PATH", "";
        /// The file for the certificate. Required.
        cert_name: String = text(), "CERT_NAME", "";
        /// The common name of the certificate. Required.
        common_name: String = text(), "COMMON_NAME", "";
        /// DNS names of the certificate, separated by commas.
        dns_names: Vec<String> = Of(list), "DNS_NAMES", "";
        /// The email address in the subject; none if empty.
        email_address: String = text(), "EMAIL_ADDRESS", "";
        /// The type of key: `RSAWithSize2048`, `RSAWithSize4096`, `RSAWithSize8192`, `ECDSAWithCurve256` or
        /// `ECDSAWithCurve384`.
        key_algorithm: String = text(), "KEY_ALGORITHM", "RSAWithSize2048";
        /// The file for the key. Required.
        key_name: String = text(), "KEY_NAME", "";
        /// An IP address of the certificate. Required.
        pod_ip: Option<IpAddr> = Of(address), "POD_IP", "";
        /// The pod's name, which is part of the request's name. Required.
        pod_name: String = text(), "POD_NAME", "";
        /// The pod's namespace. Required if `SECRET_NAME` is empty.
        pod_namespace: String = text(), "POD_NAMESPACE", "";
        /// The prefix of the request's name; the pod's namespace if empty.
        secret_name: String = text(), "SECRET_NAME", "";
        /// How the request is signed: `SHA256WithRSA`, `SHA384WithRSA` or `SHA512WithRSA`. Elliptic-curve keys sign
        /// with the hash of their own size.
        signature_algorithm: String = text(), "SIGNATURE_ALGORITHM", "";
        /// The name of the signer. Required.
        signer: String = text(), "SIGNER", "";
        /// The time limit; when it has passed, the pod is restarted.
        timeout_duration: Duration = Of(duration), "TIMEOUT_DURATION", "90s";
    }
}

/// The complete settings.
#[derive(Debug)]
pub(crate) struct Provision {
    /// The name of the request.
    pub(crate) name: String,
    pub(crate) signer: String,
    pub(crate) app: String,
    pub(crate) kind: KeyKind,
    pub(crate) subject: Subject,
    /// The files, still without the key and the certificate.
    pub(crate) files: Files,
    pub(crate) patience: Duration,
}

impl Settings {
    /// Reads the environment.
    pub(crate) fn read(environment: &dyn Environment) -> Result<Self, Mistakes> {
        let (settings, Reading { mistakes, warnings }) =
            Self::read_from(|name| settings::utf8(environment.variable(name)));
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        if mistakes.0.is_empty() { Ok(settings) } else { Err(mistakes) }
    }

    /// Combines the variables.
    pub(crate) fn provision(self) -> Result<Provision, Mistakes> {
        let mut mistakes = Vec::new();
        let mut wrong = |name, value: &str, reason: &str| {
            mistakes.push(Mistake { name, value: value.to_owned(), reason: reason.to_owned() });
        };
        for (name, value) in [
            ("APP_NAME", &self.app_name),
            ("COMMON_NAME", &self.common_name),
            ("POD_NAME", &self.pod_name),
            ("SIGNER", &self.signer),
        ] {
            if value.is_empty() {
                wrong(name, value, "cannot be empty");
            }
        }
        if self.certificate_path.as_os_str().is_empty() {
            wrong("CERTIFICATE_PATH", "", "cannot be empty");
        }
        let first = if self.secret_name.is_empty() { &self.pod_namespace } else { &self.secret_name };
        if first.is_empty() {
            wrong("POD_NAMESPACE", "", "cannot be empty where SECRET_NAME is");
        }
        let mut file = |name, value: &str, is_needed| {
            if is_needed && (value.is_empty() || value.contains('/') || value == "." || value == "..") {
                wrong(name, value, "must be the name of a file");
            }
            self.certificate_path.join(value)
        };
        let key_path = file("KEY_NAME", &self.key_name, true);
        let certificate_path = file("CERT_NAME", &self.cert_name, true);
        let authority_path = file("CA_CERT_NAME", &self.ca_cert_name, !self.ca_cert.is_empty());
        let authority = BASE64.decode(&self.ca_cert).unwrap_or_else(|error| {
            wrong("CA_CERT", "...", &format!("is not base64: {error}"));
            Vec::new()
        });
        let kind = self.key_algorithm.parse::<KeyKind>();
        if let Err(reason) = &kind {
            wrong("KEY_ALGORITHM", &self.key_algorithm, reason);
        }
        if self.pod_ip.is_none() {
            wrong("POD_IP", "", "cannot be empty");
        }
        let (Some(address), Ok(kind), true) = (self.pod_ip, kind, mistakes.is_empty()) else {
            return Err(Mistakes(mistakes));
        };
        Ok(Provision {
            name: format!("{first}:{}", self.pod_name),
            signer: self.signer,
            app: self.app_name,
            kind: kind.signing(&self.signature_algorithm),
            subject: Subject {
                common_name: self.common_name,
                email: self.email_address,
                names: self.dns_names,
                address,
            },
            files: Files {
                key: String::new(),
                key_path,
                certificate: Vec::new(),
                certificate_path,
                authority: Some(authority)
                    .filter(|authority| !authority.is_empty())
                    .map(|text| (authority_path, text)),
            },
            patience: self.timeout_duration,
        })
    }
}

fn list(text: &str) -> Result<Vec<String>, Trouble> {
    Ok(text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

fn address(text: &str) -> Result<Option<IpAddr>, Trouble> {
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| Trouble::Mistake("is not an address".to_owned())),
    }
}

fn duration(text: &str) -> Result<Duration, Trouble> {
    go_duration(text).map_err(Trouble::Mistake)
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;

    /// The values that Calico's operator sets.
    const OPERATORS: [(&str, &str); 16] = [
        ("CERTIFICATE_PATH", "/certs-share/"),
        ("SECRET_NAME", "typha-certs"),
        ("SIGNER", "example.com/signer"),
        ("COMMON_NAME", "typha-server"),
        ("KEY_ALGORITHM", ""),
        ("SIGNATURE_ALGORITHM", ""),
        ("KEY_NAME", "tls.key"),
        ("CERT_NAME", "tls.crt"),
        ("CA_CERT_NAME", "ca.crt"),
        ("CA_CERT", "LS0tLS1CRUdJTg=="),
        ("APP_NAME", "calico-typha"),
        ("DNS_NAMES", "typha,typha.calico-system.svc"),
        ("POD_IP", "10.1.2.3"),
        ("POD_NAME", "calico-typha-x"),
        ("POD_NAMESPACE", "calico-system"),
        ("OTHER", ""),
    ];

    fn provision(changes: &[(&str, &str)]) -> Result<Provision, Mistakes> {
        Settings::read(&Variables::new(OPERATORS).with(changes.iter().copied()))?.provision()
    }

    #[test]
    fn the_operators_variables() {
        let found = provision(&[]).unwrap();
        assert_eq!(
            (found.name.as_str(), found.patience),
            ("typha-certs:calico-typha-x", Duration::from_secs(90))
        );
        assert_eq!(found.kind, "RSAWithSize2048".parse::<KeyKind>().unwrap());
        assert_eq!(found.subject.names, ["typha", "typha.calico-system.svc"]);
        assert_eq!(found.files.key_path, PathBuf::from("/certs-share/tls.key"));
        let authority = found.files.authority.unwrap();
        assert_eq!(authority, (PathBuf::from("/certs-share/ca.crt"), b"-----BEGIN".to_vec()));
        let other = provision(&[
            ("SECRET_NAME", ""),
            ("CA_CERT", ""),
            ("CA_CERT_NAME", ""),
            ("TIMEOUT_DURATION", "2m"),
        ]);
        let other = other.unwrap();
        assert_eq!(
            (other.name.as_str(), other.patience),
            ("calico-system:calico-typha-x", Duration::from_secs(120))
        );
        assert_eq!(other.files.authority, None);
    }

    #[test]
    fn mistakes_are_reported_together() {
        let all = OPERATORS.map(|(name, _)| (name, ""));
        let mistakes = provision(&all).unwrap_err();
        let names: Vec<&str> = mistakes.0.iter().map(|mistake| mistake.name).collect();
        assert_eq!(
            names,
            [
                "APP_NAME",
                "COMMON_NAME",
                "POD_NAME",
                "SIGNER",
                "CERTIFICATE_PATH",
                "POD_NAMESPACE",
                "KEY_NAME",
                "CERT_NAME",
                "POD_IP"
            ]
        );
        for (name, value) in [
            ("POD_IP", "here"),
            ("KEY_NAME", "../tls.key"),
            ("CA_CERT", "not base64!"),
            ("KEY_ALGORITHM", "ECDSAWithCurve521"),
            ("KEY_ALGORITHM", "none"),
            ("TIMEOUT_DURATION", "soon"),
        ] {
            let mistakes = provision(&[(name, value)]).unwrap_err();
            assert_eq!(mistakes.0.iter().map(|mistake| mistake.name).collect::<Vec<_>>(), [name]);
        }
    }
}
