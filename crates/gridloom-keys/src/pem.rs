//! Texts in the format PEM: base64 between a line `-----BEGIN KIND-----` and a line `-----END KIND-----`. Other text may
//! stand before, between and after them.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::{PemObject, SectionKind};

/// The certificates and private keys of a text.
#[derive(Default)]
pub(crate) struct Sections {
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    /// Private keys in the form PKCS #8.
    pub(crate) keys: Vec<Vec<u8>>,
}

/// The mistake in a text, and its line, from 1.
#[derive(Debug)]
pub(crate) struct PemError {
    pub(crate) line: Option<usize>,
    pub(crate) why: String,
}

/// Reads the sections of a text.
pub(crate) fn sections(text: &[u8]) -> Result<Sections, PemError> {
    let wrong = |line, why: String| PemError { line, why };
    if text.len() > PEM_BYTES_MAX {
        return Err(wrong(None, format!("it has {} bytes, and the limit is {PEM_BYTES_MAX}", text.len())));
    }
    let mut found = Sections::default();
    for section in Section::pem_slice_iter(text) {
        match section {
            Ok(Section(SectionKind::Certificate, der)) => found.certificates.push(der.into()),
            Ok(Section(SectionKind::PrivateKey, der)) => found.keys.push(der),
            Ok(Section(kind, _)) => {
                return Err(wrong(None, format!("it has a section {kind:?}; expected a certificate or a PKCS #8 key")));
            }
            Err(error) => return Err(wrong(wrong_line(text), format!("it is not a complete PEM text ({error:?})"))),
        }
    }
    Ok(found)
}

pub(crate) fn certificate(der: &CertificateDer<'_>) -> String {
    encoded("CERTIFICATE", der)
}

pub(crate) fn private_key(der: &[u8]) -> String {
    encoded("PRIVATE KEY", der)
}

fn encoded(kind: &str, der: &[u8]) -> String {
    let config = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(kind, der), config)
}

struct Section(SectionKind, Vec<u8>);

impl PemObject for Section {
    fn from_pem(kind: SectionKind, der: Vec<u8>) -> Option<Section> {
        Some(Section(kind, der))
    }
}

/// Returns the first line within a section that is not base64.
fn wrong_line(text: &[u8]) -> Option<usize> {
    let mut is_within = false;
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        let is_base64 = line.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte));
        match line {
            _ if line.starts_with(b"-----BEGIN ") && line.ends_with(b"-----") && !is_within => is_within = true,
            _ if line.starts_with(b"-----END ") => is_within = false,
            _ if line.starts_with(b"-----") || is_within && !is_base64 => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Maximum size of a text: a certificate, that of its authority and a key have less than 30 KiB.
const PEM_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::KeysError;

    #[test]
    fn sections_are_read_among_other_text() {
        let text = format!("from: a\n{}to: b\n{}", certificate(&vec![1, 2].into()), private_key(&[3]));
        let found = sections(text.as_bytes()).unwrap();
        assert_eq!((found.certificates, found.keys), (vec![vec![1, 2].into()], vec![vec![3]]));
        assert!(sections(b"nothing").unwrap().certificates.is_empty());
    }

    #[test]
    fn wrong_texts_are_refused_with_the_line() {
        let text = certificate(&vec![7; 100].into());
        let error = |text: &str| sections(text.as_bytes()).err().map(KeysError::from).unwrap().to_string();
        let damaged = format!("to: b\n{}", text.replacen("BwcH", "B!cH", 1));
        assert!(error(&damaged).starts_with("line 3: it is not a complete PEM text"), "{}", error(&damaged));
        assert!(error(&text[..80]).contains("not a complete PEM text"));
        assert!(error(&text.replace("CERTIFICATE", "X509 CRL")).contains("a section Crl"));
        assert!(error(&"x".repeat(1 << 20)).contains("the limit is 65536"));
    }
}
