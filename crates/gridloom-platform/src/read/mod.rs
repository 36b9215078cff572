//! Readers of platform files: our TOML and SimGrid's XML.

pub(crate) mod foreign;
pub(crate) mod toml_format;
pub(crate) mod toml_tree;
pub(crate) mod tree;
pub(crate) mod xml;
pub(crate) mod xml_cluster;

/// Reads another file, by its name relative to this one.
pub(crate) type FileReader<'a> = dyn FnMut(&str) -> Result<String, String> + 'a;
