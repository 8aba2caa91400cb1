//! An authority with a server's and a client's certificate, made by openssl, in the directory that
//! `tls-certificates=` names.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use uxfs_oracle::program;

use crate::fixture::run;

fn openssl(dir: &Path, line: &str) {
    let mut command = Command::new(program("openssl", "openssl"));
    run(command.current_dir(dir).args(line.split(' ')));
}

/// Makes the directory.
pub(crate) fn make() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        at,
        &format!("req -x509 {key} -keyout ca-key.pem -out ca-cert.pem -days 3650 -subj /CN=ca"),
    );
    std::fs::write(at.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    for side in ["server", "client"] {
        openssl(
            at,
            &format!("req {key} -keyout {side}-key.pem -out {side}.csr -subj /CN=localhost"),
        );
        openssl(
            at,
            &format!(
                "x509 -req -in {side}.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 3650 \
                 -extfile names -out {side}-cert.pem"
            ),
        );
    }
    dir
}
