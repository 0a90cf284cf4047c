//! Generates new certificates for each test: valid ones, and ones with a flaw.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// A certificate authority.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

// The key of a test is no secret. It is left out because it would fill a screen.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates an authority that nobody trusts yet.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = new_key();
        let certificate = params.self_signed(&key).expect("it can be signed").pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// Returns its certificate in PEM, for a client that is to trust the authority.
    #[must_use]
    pub fn pem(&self) -> String {
        self.certificate.clone()
    }

    /// Issues a server certificate for these names and addresses.
    #[must_use]
    pub fn server(&self, hosts: &[&str]) -> Identity {
        self.sign(&server(hosts))
    }

    /// Issues a server certificate that has expired.
    #[must_use]
    pub fn expired_server(&self, hosts: &[&str]) -> Identity {
        let mut params = server(hosts);
        params.not_after = date_time_ymd(2001, 1, 1);
        self.sign(&params)
    }

    /// Issues a server certificate that is not yet valid.
    #[must_use]
    pub fn future_server(&self, hosts: &[&str]) -> Identity {
        let mut params = server(hosts);
        params.not_before = date_time_ymd(4000, 1, 1);
        self.sign(&params)
    }

    /// Issues a client certificate.
    #[must_use]
    pub fn client(&self) -> Identity {
        self.sign(&client())
    }

    /// Issues a client certificate that has expired.
    #[must_use]
    pub fn expired_client(&self) -> Identity {
        let mut params = client();
        params.not_after = date_time_ymd(2001, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = new_key();
        let certificate = params.signed_by(&key, &self.issuer).expect("it can be signed");
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// Creates a self-signed server certificate.
#[must_use]
pub fn self_signed(hosts: &[&str]) -> Identity {
    let key = new_key();
    let certificate = server(hosts).self_signed(&key).expect("it can be signed");
    Identity { certificate: certificate.pem(), key: key.serialize_pem() }
}

fn server(hosts: &[&str]) -> CertificateParams {
    let mut params = params("a server", hosts);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn client() -> CertificateParams {
    let mut params = params("a client", &[]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let mut params = CertificateParams::new(hosts).expect("names of hosts");
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("a key can be made")
}
