//! Certificates whose names or uses only look right, on both sides: what counts is the subject's common name and the
//! URIs among the alternative names, compared literally, and that the certificate is meant for that side.

use crate::secure::is_served;
use crate::world::{World, quick};
use model::feed::Status;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
};
use testkit::Folder;
use typha_client::tls::{PeerName, ServerTls, TlsFiles};

const BOTH: [ExtendedKeyUsagePurpose; 2] =
    [ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
const URI: &str = "spiffe://cluster/ns/calico-system/sa/calico-node";

struct Signer {
    folder: Folder,
    issuer: Issuer<'static, KeyPair>,
}

impl Signer {
    /// An authority whose own common name is one that clients must have.
    fn new() -> Self {
        let folder = Folder::new("typha-certificate-names").unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, "typha-client");
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { folder, issuer: Issuer::new(parameters, key) }
    }

    fn sign(
        &self,
        file: &str,
        common_name: &str,
        others: Vec<SanType>,
        uses: &[ExtendedKeyUsagePurpose],
    ) -> TlsFiles {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        if !common_name.is_empty() {
            parameters.distinguished_name.push(DnType::CommonName, common_name);
        }
        parameters.subject_alt_names = others;
        parameters.extended_key_usages = uses.to_vec();
        let key = KeyPair::generate().unwrap();
        let path = |name: String| self.folder.path().join(name);
        let files = TlsFiles {
            key: path(format!("{file}-key.pem")),
            certificate: path(format!("{file}.pem")),
            authorities: path("ca.pem".to_owned()),
        };
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        std::fs::write(&files.certificate, parameters.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        files
    }
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookalike_names_are_refused_by_both_sides() {
    let signer = Signer::new();
    let wanted = PeerName { common_name: "typha-client".to_owned(), uri_san: URI.to_owned() };
    let near = format!("{URI}-2");
    let (short, upper) = (&URI[..URI.len() - 1], URI.to_uppercase());
    let name = "typha-client";
    let cases: Vec<(&str, &str, Vec<SanType>, bool)> = vec![
        ("the name", name, vec![], true),
        ("the URI, and no name", "", vec![uri("spiffe://other"), uri(URI)], true),
        ("no name at all, and the authority has it", "", vec![], false),
        ("another name", "typha-client2", vec![], false),
        ("a part of it", "typha-clien", vec![], false),
        ("in capitals", "TYPHA-CLIENT", vec![], false),
        ("with a space", "typha-client ", vec![], false),
        ("cut off by a zero", "typha-client\0.example", vec![], false),
        ("as a host's name", "other", vec![dns(name)], false),
        ("as a URI", "other", vec![uri(name)], false),
        ("the URI as a name", URI, vec![], false),
        ("the URI with more", "other", vec![uri(&near)], false),
        ("the URI with less", "other", vec![uri(short)], false),
        ("the URI in capitals", "other", vec![uri(&upper)], false),
    ];
    let server = signer.sign("server", name, vec![], &BOTH);
    let client = signer.sign("client", name, vec![], &BOTH);
    let ours = World::start(quick(), Some(ServerTls::new(server, wanted.clone()))).await;
    ours.felix().set_status(Status::InSync);
    for (place, (what, common_name, others, accepted)) in cases.into_iter().enumerate() {
        let files = signer.sign(&format!("peer-{place}"), common_name, others, &BOTH);
        let served = is_served(&ours, Some((files.clone(), wanted.clone()))).await;
        assert_eq!(served, accepted, "a client: {what}");
        let theirs = World::start(quick(), Some(ServerTls::new(files, wanted.clone()))).await;
        theirs.felix().set_status(Status::InSync);
        let served = is_served(&theirs, Some((client.clone(), wanted.clone()))).await;
        assert_eq!(served, accepted, "a server: {what}");
    }
}

/// A client's certificate is not valid for a server, nor the reverse, if certificates state their use: a node whose key
/// was stolen cannot pose as Typha to all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_for_one_side_is_refused_by_the_other() {
    let signer = Signer::new();
    let wanted = PeerName { common_name: "typha-client".to_owned(), ..PeerName::default() };
    let [client_only, server_only] =
        BOTH.map(|one| signer.sign(&format!("{one:?}"), "typha-client", vec![], &[one]));
    for (server, client, accepted) in [
        (&server_only, &client_only, true),
        (&server_only, &server_only, false),
        (&client_only, &client_only, false),
    ] {
        let world = World::start(quick(), Some(ServerTls::new(server.clone(), wanted.clone()))).await;
        world.felix().set_status(Status::InSync);
        let served = is_served(&world, Some((client.clone(), wanted.clone()))).await;
        assert_eq!(served, accepted, "{} with {}", server.key.display(), client.key.display());
    }
}
