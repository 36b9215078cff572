//! Text files of the program's user.

use std::path::Path;

use crate::Error;

/// Reads a text file with [`gridloom_resources::text_file::read_text`].
///
/// # Errors
/// [`Error::Input`], with the file and the place in it.
pub fn read_text(file: &Path) -> Result<String, Error> {
    gridloom_resources::text_file::read_text(file).map_err(Error::Input)
}
