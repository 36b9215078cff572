//! Texts and certificates of others: identities, requests, records and revocations are refused or read back the same.

#![no_main]

use gridloom_keys::{Bundle, Certificate, Identity, Issued, Pattern, Record, Request, Revocations, Trust, UnixTime};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let text = || std::str::from_utf8(bytes).ok();
    match kind % 6 {
        0 => {
            let Some(uri) = text() else { return };
            if let Ok(identity) = Identity::from_uri(uri) {
                assert_eq!(identity.uri(), uri);
            }
            if let Ok(pattern) = uri.parse::<Pattern>() {
                let _ = pattern.matches("module/function");
            }
        }
        1 => {
            let at = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_800_000_000));
            if let Ok(request) = Request::from_pem(bytes, at) {
                assert_eq!(Request::from_pem(request.to_pem().as_bytes(), at).expect("it is one"), request);
            }
        }
        2 => {
            let Some(text) = text() else { return };
            if let Ok(revocations) = Revocations::from_text(text) {
                assert_eq!(Revocations::from_text(&revocations.to_text()).expect("they are some"), revocations);
            }
        }
        3 => drop(text().map(Record::from_text)),
        4 => {
            let _ = Certificate::read(&bytes.into());
            let _ = Trust::from_der(&bytes.into());
        }
        _ => {
            let _ = (Issued::from_pem(bytes), Bundle::from_pem(bytes), Trust::from_pem(bytes));
        }
    }
});
