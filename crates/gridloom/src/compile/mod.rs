//! Inline bodies of interface descriptions, compiled on this machine: what a file says of compiler, options and libraries,
//! run in the file's folder. The core writes the source ([`gridloom_core::idl::c_text`]).

mod cache;
mod libraries;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gridloom_core::idl::{Body, IdlFile};

pub(crate) use libraries::Libraries;

use crate::Error;

/// A library and what the compiler said while it made it: warnings.
pub(crate) struct Made {
    pub(crate) library: PathBuf,
    pub(crate) warnings: String,
}

/// How a library is made.
struct Recipe {
    /// The description, for messages.
    file: PathBuf,
    folder: PathBuf,
    source: String,
    source_name: &'static str,
    /// Without the names of files.
    compile: Vec<OsString>,
    link: Vec<OsString>,
    /// Behind the object file.
    link_behind: Vec<OsString>,
    /// Files that are linked.
    inputs: Vec<PathBuf>,
}

/// The library of a file's bodies, made or kept from an earlier time; `None` if nothing is to be compiled.
///
/// # Errors
/// If it cannot be made; the text has what the compiler says.
pub(crate) fn compiled(parsed: &IdlFile, file: &Path, libraries: &Libraries) -> Result<Option<Made>, Error> {
    match Recipe::of(parsed, file, libraries)? {
        Some(recipe) => cache::library_of(&recipe).map(Some),
        None => Ok(None),
    }
}

/// Compiles the bodies of an interface description into `library`, for `gridloom serve --no-compile`; with `keep` the C
/// source is left beside it. Gives what the compiler says: warnings.
///
/// # Errors
/// If the description is wrong, has nothing to compile, or does not compile.
pub fn compile_interface(file: &Path, library: &Path, keep: bool) -> Result<String, Error> {
    let parsed = gridloom_core::idl::parse_file(&crate::offer::read(file)?, &file.display().to_string());
    let parsed = parsed.map_err(|error| Error::Input(error.to_string()))?;
    let libraries = libraries_of(&parsed, file)?;
    let Some(recipe) = Recipe::of(&parsed, file, &libraries)? else {
        let file = file.display();
        return Err(Error::Input(format!(
            "{file}: nothing to compile: it has no inline bodies, Globals or object files"
        )));
    };
    let library = std::path::absolute(library).map_err(|error| recipe.wrong(&format!("its library: {error}")))?;
    let new = library.with_extension(format!("new-{}", std::process::id()));
    fs::create_dir(&new).map_err(|error| recipe.wrong(&format!("{}: {error}", new.display())))?;
    let made = recipe.make(&new).and_then(|(warnings, _)| {
        let moved = fs::rename(new.join(LIBRARY), &library).and_then(|()| match keep {
            true => fs::rename(
                new.join(recipe.source_name),
                library.with_extension(recipe.source_name.trim_start_matches("stubs.")),
            ),
            false => Ok(()),
        });
        moved.map_err(|error| recipe.wrong(&format!("{}: {error}", library.display())))?;
        Ok(warnings)
    });
    // Whatever is left in it is of no use; the result was moved.
    let _ = fs::remove_dir_all(&new);
    made
}

/// The libraries that a file names by `Required`, `Library` and `LIBS`.
pub(crate) fn libraries_of(parsed: &IdlFile, file: &Path) -> Result<Libraries, Error> {
    let texts: Vec<String> = parsed.build.required.iter().chain(&parsed.libraries).cloned().collect();
    Libraries::find(&texts, file)
}

impl Recipe {
    fn of(parsed: &IdlFile, file: &Path, libraries: &Libraries) -> Result<Option<Recipe>, Error> {
        let build = &parsed.build;
        if build.stubs.is_empty() && !build.has_globals && libraries.archives.is_empty() {
            return Ok(None);
        }
        let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
        let is_cpp = build.is_cpp();
        let compiler = build.compiler.clone().unwrap_or_else(|| if is_cpp { "c++" } else { "cc" }.to_string());
        let linker = build.linker.clone().unwrap_or_else(|| compiler.clone());
        let split = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let mut compile = split(&compiler);
        compile.extend(["-O2", "-fPIC", "-iquote", "."].map(OsString::from));
        compile.extend(build.options.iter().flat_map(|options| split(options)));
        let mut link = split(&linker);
        // What is missing is told now, and names of its own win over those of the C library.
        link.extend(["-shared", "-Wl,-z,defs", "-Wl,-Bsymbolic"].map(OsString::from));
        if !libraries.archives.is_empty() {
            link.extend(called(parsed).map(|symbol| OsString::from(format!("-Wl,-u,{symbol}"))));
        }
        let mut link_behind = libraries.link.clone();
        link_behind.push("-lm".into());
        let recipe = Recipe {
            file: file.to_path_buf(),
            folder: absolute.parent().unwrap_or(Path::new("/")).to_path_buf(),
            source: build.c_source(&parsed.definitions, &file.display().to_string()),
            source_name: if is_cpp { "stubs.cc" } else { "stubs.c" },
            compile,
            link,
            link_behind,
            inputs: libraries.archives.clone(),
        };
        match libraries.missing.first() {
            None => Ok(Some(recipe)),
            Some(missing) => {
                let missing = missing.display();
                Err(recipe.wrong(&format!("{missing} is not there, which it requires; compile it first, with -fPIC")))
            }
        }
    }

    /// Makes the library in that folder. Gives the compiler's warnings and the files that it read, absolute.
    fn make(&self, at: &Path) -> Result<(String, Vec<PathBuf>), Error> {
        let wrong = |error: std::io::Error| self.wrong(&format!("{}: {error}", at.display()));
        let (source, object, read) = (at.join(self.source_name), at.join("stubs.o"), at.join("stubs.d"));
        fs::write(&source, &self.source).map_err(wrong)?;
        let mut compile = self.compile.clone();
        compile.extend(["-MD".into(), "-MF".into(), read.clone().into(), "-c".into(), source.clone().into()]);
        compile.extend(["-o".into(), object.clone().into()]);
        let mut warnings = self.run(&compile, "compile")?;
        let mut link = self.link.clone();
        link.extend(["-o".into(), at.join(LIBRARY).into(), object.into()]);
        link.extend(self.link_behind.iter().cloned());
        warnings.push_str(&self.run(&link, "link")?);
        let read = fs::read_to_string(&read).unwrap_or_default();
        let mut inputs = self.inputs.clone();
        inputs.extend(dependencies(&read).map(|path| self.folder.join(path)).filter(|path| *path != source));
        Ok((warnings, inputs))
    }

    fn run(&self, command: &[OsString], what: &str) -> Result<String, Error> {
        let (program, arguments) = command.split_first().expect("a command has a program");
        let output = Command::new(program).args(arguments).current_dir(&self.folder).stdin(Stdio::null()).output();
        let output = output.map_err(|error| {
            self.wrong(&format!(
                "cannot {what} its C: '{}': {error}; install a C compiler, name another by `Compiler \"…\";`, or compile \
                 it elsewhere by `gridloom idl compile` and serve it with --library FILE --no-compile",
                program.to_string_lossy()
            ))
        })?;
        let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        if let Some((end, _)) = said.match_indices('\n').nth(SAID_LINES_MAX) {
            said.truncate(end);
            said.push_str("\n…");
        }
        let program = program.to_string_lossy();
        Err(self.wrong(&format!("its C does not {what}: {program} ended with {}:\n{}", output.status, said.trim_end())))
    }

    fn wrong(&self, why: &str) -> Error {
        Error::Input(format!("{}: {why}", self.file.display()))
    }
}

/// Symbols that definitions call, but for those of the bodies: they are what archives are linked for.
fn called(parsed: &IdlFile) -> impl Iterator<Item = &str> {
    let is_stub = |index: usize| parsed.build.stubs.iter().any(|stub| stub.definition == index);
    parsed.definitions.iter().enumerate().filter_map(move |(index, definition)| match &definition.body {
        Body::Native { symbol, .. } if !is_stub(index) => Some(symbol.as_str()),
        _ => None,
    })
}

/// The files that a compiler says it read, as rules of make: names behind the first colon, blanks in them escaped.
fn dependencies(rules: &str) -> impl Iterator<Item = PathBuf> {
    let names = rules.split_once(": ").map_or("", |(_, names)| names);
    let joined = names.replace("\\\r\n", " ").replace("\\\n", " ").replace("\\ ", "\0");
    let paths: Vec<PathBuf> = joined.split_whitespace().map(|name| PathBuf::from(name.replace('\0', " "))).collect();
    paths.into_iter()
}

/// The library's name while it is made.
const LIBRARY: &str = "stubs.so";
/// More of a compiler's messages would not be read.
const SAID_LINES_MAX: usize = 60;
