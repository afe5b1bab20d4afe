//! Approves and signs requests, with an administrator's rights.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use testkit::ApiServer;

/// An authority, and the API server whose requests it signs.
pub(crate) struct Signer<'a> {
    pub(crate) api: &'a ApiServer,
    issuer: Issuer<'static, KeyPair>,
}

impl<'a> Signer<'a> {
    pub(crate) fn new(api: &'a ApiServer) -> Result<Self> {
        let mut parameters = CertificateParams::new(Vec::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self { api, issuer: Issuer::new(parameters, KeyPair::generate()?) })
    }

    /// The request of this name, as soon as it exists.
    pub(crate) fn request(&self, name: &str) -> Result<Value> {
        testkit::eventually("the request", || {
            let output = self.api.kubectl(&["get", "csr", name, "-o", "json"])?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(Some(serde_json::from_slice::<Value>(&output.stdout)?))
        })
    }

    pub(crate) fn approve(&self, name: &str) -> Result<()> {
        self.must(&["certificate", "approve", name])
    }

    pub(crate) fn deny(&self, name: &str) -> Result<()> {
        self.must(&["certificate", "deny", name])
    }

    /// Signs a request after verifying that its key signed it.
    pub(crate) fn sign(&self, request: &Value) -> Result<String> {
        let pem = BASE64_STANDARD.decode(request["spec"]["request"].as_str().context("a request")?)?;
        let parameters = CertificateSigningRequestParams::from_pem(std::str::from_utf8(&pem)?)?;
        let certificate = parameters.signed_by(&self.issuer)?.pem();
        self.answer(request, &certificate)?;
        Ok(certificate)
    }

    /// Signs a different key instead.
    pub(crate) fn sign_another(&self, request: &Value) -> Result<()> {
        let certificate =
            CertificateParams::new(Vec::new())?.signed_by(&KeyPair::generate()?, &self.issuer)?.pem();
        self.answer(request, &certificate)
    }

    fn answer(&self, request: &Value, certificate: &str) -> Result<()> {
        let name = request["metadata"]["name"].as_str().context("a name")?;
        let patch = json!({"status": {"certificate": BASE64_STANDARD.encode(certificate)}}).to_string();
        self.must(&["patch", "csr", name, "--subresource=status", "--type=merge", "-p", &patch])
    }

    fn must(&self, words: &[&str]) -> Result<()> {
        let output = self.api.kubectl(words)?;
        ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}
