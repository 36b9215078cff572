//! Saves descriptions of data as text, by which another program or a later run can find the data.
//!
//! In the program that saved it, the text leads to the same datum. Elsewhere it describes a new datum. The inputs of
//! that one are the files to which the saved datum had been written, then its own inputs. Addresses are left out, since
//! they are valid only in the program itself.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use gridloom_net::payload::Payload;
use serde::{Deserialize, Serialize};

use super::{DataError, DataPlaces, Datum, Description, Kind, Mode, Uri};
use crate::Error;

/// Maximum size of a saved description in memory.
const SAVED_BYTES_MAX: usize = 4096;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedDatum {
    inputs: Vec<String>,
    outputs: Vec<String>,
    modes: Vec<String>,
    r#type: String,
    dimensions: Vec<u64>,
    /// Files that have its value.
    files: Vec<String>,
    /// Its number in the program that saved it.
    datum: u64,
    program: String,
}

impl Datum {
    /// Writes its description to a place: a file, or memory with room for 4096 bytes.
    ///
    /// # Errors
    /// If it has no description, or the place does not accept the text.
    pub fn save(&self, places: &DataPlaces<'_>, to: Uri) -> Result<(), DataError> {
        let text = toml::to_string(&self.saved()?).map_err(|error| Error::Usage(error.to_string()))?;
        let is_memory = !matches!(to, Uri::File(_) | Uri::ServerFile(..));
        if is_memory && text.len() >= SAVED_BYTES_MAX {
            let text = format!("the description has {} bytes, memory has room for {SAVED_BYTES_MAX}", text.len());
            return Err(DataError::Unwritable(text));
        }
        let bytes = if is_memory { [text.as_bytes(), b"\0"].concat() } else { text.into_bytes() };
        let plain = Datum::managed(Description::opaque(Kind::String));
        plain.put(Payload::Inline(bytes.into()));
        plain.write(places, &[(to, Mode::Volatile)])
    }

    /// Loads a datum from the description saved at a place. If this program saved it, `numbered` finds the datum by its
    /// number.
    ///
    /// # Errors
    /// If the place cannot be read, or has no description.
    pub fn load(
        places: &DataPlaces<'_>,
        from: &Uri,
        numbered: impl FnOnce(u64) -> Option<Arc<Datum>>,
    ) -> Result<Arc<Datum>, DataError> {
        let plain = Datum::managed(Description::opaque(Kind::String));
        plain.fill(places, std::slice::from_ref(from))?;
        let bytes = plain.bytes()?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let saved: SavedDatum = toml::from_str(text.trim_end_matches('\0'))
            .map_err(|error| DataError::Invalid(format!("'{from}': {error}")))?;
        let known = (saved.program == program()).then(|| numbered(saved.datum)).flatten();
        known.map_or_else(|| Ok(Datum::managed(saved.description()?)), Ok)
    }

    fn saved(&self) -> Result<SavedDatum, DataError> {
        let managed = self.as_managed()?;
        let description = managed.description();
        Ok(SavedDatum {
            inputs: description.inputs().iter().map(Uri::to_string).collect(),
            outputs: description.outputs().iter().map(|(uri, _)| uri.to_string()).collect(),
            modes: description.outputs().iter().map(|(_, mode)| mode.to_string()).collect(),
            r#type: description.kind().name().to_string(),
            dimensions: description.extents().to_vec(),
            files: managed.files().iter().map(Uri::to_string).collect(),
            datum: self.number(),
            program: program(),
        })
    }
}

/// Identifies this process, since numbers of data are unique only within it: the time of the first use, and the process id.
fn program() -> String {
    static FIRST: OnceLock<u64> = OnceLock::new();
    let since = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let first = FIRST.get_or_init(|| since().map_or(0, |since| since.as_nanos() as u64));
    format!("{first:016x}-{:08x}", std::process::id())
}

impl SavedDatum {
    fn description(&self) -> Result<Description, DataError> {
        let wrong = |what: &str, name: &str| DataError::Invalid(format!("'{name}' is not a {what} of data"));
        let mode = |name: &String| Mode::named(name).ok_or_else(|| wrong("mode", name));
        let modes = self.modes.iter().map(mode).collect::<Result<Vec<Mode>, _>>()?;
        let parsed = |texts: &[String]| texts.iter().map(|text| Uri::parse(text)).collect::<Result<Vec<Uri>, _>>();
        let is_of_all = |uri: &Uri| !matches!(uri, Uri::Address(_));
        let outputs = parsed(&self.outputs)?.into_iter().zip(modes).filter(|(uri, _)| is_of_all(uri)).collect();
        let inputs = parsed(&self.files)?.into_iter().chain(parsed(&self.inputs)?).filter(is_of_all).collect();
        let kind = Kind::named(&self.r#type).ok_or_else(|| wrong("type", &self.r#type))?;
        Ok(Description::new(inputs, outputs, kind, self.dimensions.clone())?)
    }
}
