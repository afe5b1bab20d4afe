//! The contents of a request: like Calico's, because signers may have rules about them. Pure, except for the signature.

use crate::keys::Key;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
    SanType,
};
use std::net::IpAddr;

/// The object identifier of email addresses in names (RFC 2985).
const EMAIL: [u64; 7] = [1, 2, 840, 113_549, 1, 9, 1];

/// The subject of the certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) common_name: String,
    /// Empty for none.
    pub(crate) email: String,
    pub(crate) names: Vec<String>,
    pub(crate) address: IpAddr,
}

/// The request in PEM, signed with its key.
pub(crate) fn sign(subject: &Subject, key: &Key) -> Result<String, rcgen::Error> {
    let mut parameters = CertificateParams::default();
    let mut name = DistinguishedName::new();
    for (kind, value) in [
        (DnType::CountryName, "US"),
        (DnType::OrganizationName, "Tigera"),
        (DnType::OrganizationalUnitName, "Engineering"),
        (DnType::LocalityName, "San Francisco"),
        (DnType::StateOrProvinceName, "California"),
        (DnType::CommonName, &subject.common_name),
    ] {
        name.push(kind, value);
    }
    if !subject.email.is_empty() {
        name.push(
            DnType::CustomDnType(EMAIL.to_vec()),
            DnValue::Ia5String(subject.email.as_str().try_into()?),
        );
    }
    parameters.distinguished_name = name;
    let names = subject.names.iter().map(|name| Ok(SanType::DnsName(name.as_str().try_into()?)));
    parameters.subject_alt_names = names.collect::<Result<_, rcgen::Error>>()?;
    parameters.subject_alt_names.push(SanType::IpAddress(subject.address));
    parameters.is_ca = IsCa::ExplicitNoCa;
    parameters.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::KeyAgreement,
    ];
    parameters.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    parameters.serialize_request(key)?.pem()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyKind;

    #[test]
    fn a_request_names_subject_and_usages() {
        let subject = Subject {
            common_name: "typha-server".to_owned(),
            email: "a@example.com".to_owned(),
            names: vec!["typha".to_owned(), "typha.calico-system.svc".to_owned()],
            address: "fd00::1".parse().unwrap(),
        };
        let pem = sign(&subject, &Key::new(KeyKind::P256).unwrap()).unwrap();
        let read = rcgen::CertificateSigningRequestParams::from_pem(&pem).unwrap().params;
        assert_eq!(
            read.distinguished_name.get(&DnType::CommonName),
            Some(&DnValue::Utf8String("typha-server".to_owned()))
        );
        assert_eq!(read.subject_alt_names.len(), 3);
        assert_eq!(read.subject_alt_names[2], SanType::IpAddress(subject.address));
        assert_eq!(read.extended_key_usages.len(), 2);
        let bad = Subject { names: vec!["naïve".to_owned()], ..subject };
        assert!(sign(&bad, &Key::new(KeyKind::P256).unwrap()).is_err());
    }
}
