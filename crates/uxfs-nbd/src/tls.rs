//! What TLS trusts and shows: authorities, certificates and keys, read from PEM files.
//!
//! 1. A client always verifies the server, by the authorities of the system or of a directory. There is
//!    no way to leave that out.
//! 2. A server that has authorities for clients serves only clients with a certificate of theirs.
//! 3. Keys are read once and never shown; errors name the file.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use crate::uri::Uri;

fn failed(what: &Path, why: impl core::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", what.display()))
}

fn tls_failed(why: impl core::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("TLS: {why}"))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn certificates(file: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_file_iter(file).map_err(|error| failed(file, error))?;
    let found: Result<Vec<_>, _> = found.collect();
    match found {
        Ok(list) if !list.is_empty() => Ok(list),
        Ok(_) => Err(failed(file, "holds no certificate in PEM format")),
        Err(error) => Err(failed(file, error)),
    }
}

fn key(file: &Path) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| failed(file, error))
}

fn authorities(file: &Path) -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(file)? {
        store.add(certificate).map_err(|error| failed(file, error))?;
    }
    Ok(store)
}

fn system_authorities() -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    // Some authorities of a system may be out of use; the others count.
    let _ = store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() {
        let text = "this system has no certificates of authorities: install ca-certificates, or name a \
                    directory by tls-certificates=DIR";
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    Ok(store)
}

/// What a client needs to begin TLS.
#[derive(Clone)]
pub(crate) struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ClientTls {
    /// As the address says.
    pub(crate) fn new(uri: &Uri) -> io::Result<Self> {
        let roots = match &uri.certificates {
            Some(dir) => authorities(&dir.join("ca-cert.pem"))?,
            None => system_authorities()?,
        };
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(tls_failed)?
            .with_root_certificates(roots);
        let own = uri.certificates.as_ref().map(|dir| dir.join("client-cert.pem"));
        let config = match own.filter(|file| file.exists()) {
            Some(file) => {
                let secret = key(&file.with_file_name("client-key.pem"))?;
                let with = config.with_client_auth_cert(certificates(&file)?, secret);
                with.map_err(|error| failed(&file, error))?
            }
            None => config.with_no_client_auth(),
        };
        let name = ServerName::try_from(uri.certified().to_owned()).map_err(tls_failed)?;
        Ok(Self { config: Arc::new(config), name })
    }

    pub(crate) fn begin(&self) -> io::Result<rustls::Connection> {
        let state = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        Ok(state.map_err(tls_failed)?.into())
    }
}

/// What a server shows to clients, and whom it serves.
#[derive(Clone, Debug)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
}

impl ServerTls {
    /// The server's certificates, its key, and, if only clients with a certificate are to be served, the
    /// certificates of the authorities that sign those. All are PEM files.
    ///
    /// # Errors
    /// A file that cannot be read or does not hold what it should.
    pub fn new(certificate: &Path, secret: &Path, clients: Option<&Path>) -> io::Result<Self> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(tls_failed)?;
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(file) => {
                let roots = Arc::new(authorities(file)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = verifier.build().map_err(|error| failed(file, error))?;
                config.with_client_cert_verifier(verifier)
            }
        };
        let config = config.with_single_cert(certificates(certificate)?, key(secret)?);
        let config = config.map_err(|error| failed(certificate, error))?;
        Ok(Self { config: Arc::new(config) })
    }

    pub(crate) fn begin(&self) -> io::Result<rustls::Connection> {
        let state = ServerConnection::new(Arc::clone(&self.config));
        Ok(state.map_err(tls_failed)?.into())
    }
}
