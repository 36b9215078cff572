//! Compiles inline bodies of interface descriptions on this machine, with the compiler, options and libraries that a file names,
//! in the file's folder. The core writes the source ([`gridloom_idl::c_text`]).

mod cache;
mod libraries;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gridloom_idl::{
    BEHIND_DECLARATIONS, Body, Class, HEADERS, IdlFile, OWN_SOURCES, OWN_STUB_VARIABLE, STUB_VARIABLE, YIELDED_TYPES,
    defines_type, has_name, has_value,
};
use gridloom_net::children;

pub(crate) use libraries::{Libraries, library_folders};

use crate::Error;

/// A library, with the compiler's warnings.
pub(crate) struct CompiledLibrary {
    pub(crate) library: PathBuf,
    pub(crate) warnings: String,
}

/// How to make a library.
struct Build {
    /// The description, for messages.
    file: PathBuf,
    folder: PathBuf,
    source: String,
    source_name: &'static str,
    /// The compiler's command, without file names; `link` is the linker's.
    compile: Vec<OsString>,
    link: Vec<OsString>,
    /// Arguments after the object file.
    link_after: Vec<OsString>,
    /// Files to link.
    inputs: Vec<PathBuf>,
    /// An object file or archive that the file requires, but that does not exist. Named libraries may have its functions.
    missing: Option<PathBuf>,
    /// The remedy if there is no compiler.
    remedy: &'static str,
}

/// Returns the library of a file's bodies, if there are any, and that of each class, compiled now or taken from the cache. They
/// may call functions of the libraries in `named`.
///
/// # Errors
/// If one cannot be made; the text includes the compiler's output.
pub(crate) fn compiled(
    parsed: &IdlFile,
    file: &Path,
    libraries: &Libraries,
    named: &[PathBuf],
) -> Result<Vec<CompiledLibrary>, Error> {
    let mut made = Vec::new();
    if let Some(recipe) = Build::of(parsed, file, libraries, named)? {
        made.push(cache::library_of(&recipe)?);
    }
    for class in &parsed.classes {
        made.push(cache::library_of(&Build::of_class(class, parsed, file, libraries, named)?)?);
    }
    Ok(made)
}

/// Returns the C library of that name that is part of Gridloom, compiled with those options against `against`, or taken from
/// the cache.
///
/// # Errors
/// If it cannot be made; the text includes the compiler's output.
pub(crate) fn compiled_own(name: &str, source: &str, options: &[&str], against: &Path) -> Result<PathBuf, Error> {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let mut compile = words(&["cc", "-O2", "-fPIC"]);
    compile.extend(words(options));
    let recipe = Build {
        file: name.into(),
        folder: "/".into(),
        source: source.to_string(),
        source_name: "stubs.c",
        compile,
        link: words(&["cc", "-shared", "-Wl,-z,defs"]),
        link_after: vec![against.into()],
        inputs: vec![against.to_path_buf()],
        missing: None,
        remedy: "install one on the server's machine (Debian: gcc)",
    };
    cache::library_of(&recipe).map(|made| made.library)
}

/// Compiles the bodies of an interface description into `library`, for `gridloom serve --no-compile`, and those of each class
/// into a library beside it, as `NAME.class.so`. The bodies may call functions of the libraries in `named`. With `keep` the C
/// sources are kept beside the libraries. Returns the libraries and the compiler's warnings.
///
/// # Errors
/// If the description is invalid, has nothing to compile, or does not compile.
pub fn compile_interface(
    file: &Path,
    library: &Path,
    named: &[PathBuf],
    keep: bool,
) -> Result<(Vec<PathBuf>, String), Error> {
    let parsed = super::parse_description(&crate::read_text(file)?, file);
    let parsed = parsed.map_err(|error| Error::Input(error.to_string()))?;
    let libraries = libraries_of(&parsed, file)?;
    let mut recipes: Vec<(PathBuf, Build)> = Vec::new();
    recipes.extend(Build::of(&parsed, file, &libraries, named)?.map(|recipe| (library.to_path_buf(), recipe)));
    for class in &parsed.classes {
        let name = class.name.rsplit('/').next().unwrap_or_default();
        let recipe = Build::of_class(class, &parsed, file, &libraries, named)?;
        recipes.push((library.with_extension(format!("{name}.so")), recipe));
    }
    if recipes.is_empty() {
        let file = file.display();
        return Err(Error::Input(format!(
            "{file}: nothing to compile: it has no inline bodies, Globals or object files"
        )));
    }
    let mut said = String::new();
    for (library, recipe) in &recipes {
        said.push_str(&recipe.make_as(library, keep)?);
    }
    Ok((recipes.into_iter().map(|(library, _)| library).collect(), said))
}

/// Returns the libraries that a file names with `Required`, `Library` and `LIBS`.
pub(crate) fn libraries_of(parsed: &IdlFile, file: &Path) -> Result<Libraries, Error> {
    let texts: Vec<String> = parsed.build.required.iter().chain(&parsed.libraries).cloned().collect();
    Libraries::find(&texts, file)
}

impl Build {
    /// Returns the recipe of a file's functions; `None` if there is nothing to compile.
    fn of(parsed: &IdlFile, file: &Path, libraries: &Libraries, named: &[PathBuf]) -> Result<Option<Build>, Error> {
        let build = &parsed.build;
        let is_used = build.has_globals || !libraries.archives.is_empty();
        if build.stubs.is_empty() && (!is_used || parsed.definitions.is_empty()) {
            return Ok(None);
        }
        let source = build.c_source(&parsed.definitions, &file.display().to_string());
        Build::new(parsed, file, (libraries, named), source, build.is_cpp(&build.stubs)).map(Some)
    }

    fn of_class(
        class: &Class,
        parsed: &IdlFile,
        file: &Path,
        libraries: &Libraries,
        named: &[PathBuf],
    ) -> Result<Build, Error> {
        let source = parsed.build.class_source(class, &file.display().to_string());
        Build::new(parsed, file, (libraries, named), source, parsed.build.is_cpp(&class.stubs))
    }

    fn new(
        parsed: &IdlFile,
        file: &Path,
        (libraries, named): (&Libraries, &[PathBuf]),
        source: String,
        is_cpp: bool,
    ) -> Result<Build, Error> {
        let build = &parsed.build;
        let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
        let stubs = parsed.classes.iter().flat_map(|class| &class.stubs).chain(&build.stubs);
        let is_on_ranks = stubs.into_iter().any(|stub| stub.on_ranks.is_some());
        let usual = match (is_on_ranks, is_cpp) {
            (true, true) => "mpicxx",
            (true, false) => "mpicc",
            (false, true) => "c++",
            (false, false) => "cc",
        };
        let compiler = build.compiler.clone().unwrap_or_else(|| usual.to_string());
        let linker = build.linker.clone().unwrap_or_else(|| compiler.clone());
        let split = |text: &str| -> Result<Vec<OsString>, Error> {
            Ok(libraries::split(text, file)?.into_iter().map(OsString::from).collect())
        };
        let mut compile = split(&compiler)?;
        compile.extend(["-O2", "-fPIC", "-iquote", "."].map(OsString::from));
        for options in &build.options {
            compile.extend(split(options)?);
        }
        let mut link = split(&linker)?;
        // Missing symbols are reported now, and the library's own symbols take precedence over those of the C library.
        link.extend(["-shared", "-Wl,-z,defs", "-Wl,-Bsymbolic"].map(OsString::from));
        if !libraries.archives.is_empty() {
            link.extend(called(parsed).map(|symbol| OsString::from(format!("-Wl,-u,{symbol}"))));
        }
        let mut link_behind = libraries.link.clone();
        let (named_arguments, named_files) = libraries::linked_if_used(named);
        link_behind.extend(named_arguments);
        link_behind.push("-lm".into());
        let recipe = Build {
            file: file.to_path_buf(),
            folder: absolute.parent().unwrap_or(Path::new("/")).to_path_buf(),
            source,
            source_name: if is_cpp { "stubs.cc" } else { "stubs.c" },
            compile,
            link,
            link_after: link_behind,
            inputs: libraries.archives.iter().cloned().chain(named_files).collect(),
            missing: libraries.missing.first().cloned(),
            remedy: "install a C compiler, name another by `Compiler \"…\";`, or compile it elsewhere by `gridloom idl compile` \
                     and serve it with --library FILE --no-compile",
        };
        match &recipe.missing {
            Some(missing) if named.is_empty() => Err(recipe.wrong(&required(missing))),
            _ => Ok(recipe),
        }
    }

    /// Makes the library in a temporary folder. Returns the compiler's warnings.
    fn make_as(&self, library: &Path, keep: bool) -> Result<String, Error> {
        let library = std::path::absolute(library).map_err(|error| self.wrong(&format!("its library: {error}")))?;
        let new = library.with_extension(format!("new-{}", std::process::id()));
        fs::create_dir(&new).map_err(|error| self.wrong(&format!("{}: {error}", new.display())))?;
        let made = self.make(&new).and_then(|(warnings, _)| {
            let moved = fs::rename(new.join(LIBRARY), &library).and_then(|()| match keep {
                true => fs::rename(
                    new.join(self.source_name),
                    library.with_extension(self.source_name.trim_start_matches("stubs.")),
                ),
                false => Ok(()),
            });
            moved.map_err(|error| self.wrong(&format!("{}: {error}", library.display())))?;
            Ok(warnings)
        });
        // Remaining files are not needed; the result was moved.
        let _ = fs::remove_dir_all(&new);
        made
    }

    /// Makes the library in that folder. Returns the compiler's warnings and the files that it read, as absolute paths.
    fn make(&self, at: &Path) -> Result<(String, Vec<PathBuf>), Error> {
        let wrong = |error: std::io::Error| self.wrong(&format!("{}: {error}", at.display()));
        let (source, object, read) = (at.join(self.source_name), at.join("stubs.o"), at.join("stubs.d"));
        fs::write(&source, &self.source).map_err(wrong)?;
        HEADERS.into_iter().try_for_each(|(header, text)| fs::write(at.join(header), text)).map_err(wrong)?;
        let mut compile = self.compile.clone();
        compile.extend(["-I".into(), at.into()]);
        compile.extend(["-MD".into(), "-MF".into(), read.clone().into(), "-c".into(), source.clone().into()]);
        compile.extend(["-o".into(), object.clone().into()]);
        let mut warnings = self.compile(compile, at)?;
        let mut link = self.link.clone();
        link.extend(["-o".into(), at.join(LIBRARY).into(), object.into()]);
        link.extend(self.link_after.iter().cloned());
        let linked = self.run(&link, "link").map_err(|error| match &self.missing {
            None => error,
            Some(missing) => Error::Input(format!("{error}\n{}", required(missing))),
        });
        warnings.push_str(&linked?);
        let read = fs::read_to_string(&read).unwrap_or_default();
        let mut inputs = self.inputs.clone();
        inputs.extend(dependencies(&read).map(|path| self.folder.join(path)).filter(|path| !path.starts_with(at)));
        Ok((warnings, inputs))
    }

    /// Runs the compiler's command, with macros for the types and the name [`STUB_VARIABLE`] that the file defines itself, possibly
    /// in headers that it includes. Returns the compiler's warnings. The source is in `at`.
    fn compile(&self, mut command: Vec<OsString>, at: &Path) -> Result<String, Error> {
        let define = |name: &str| OsString::from(format!("-D{name}"));
        let may_own_variable = self.source.contains(OWN_STUB_VARIABLE) && {
            let (own, of_system) = self.declarations(at);
            has_name(&own, STUB_VARIABLE) || has_value(&of_system, STUB_VARIABLE)
        };
        let without = command.clone();
        if may_own_variable {
            command.push(define(OWN_STUB_VARIABLE));
        }
        let error = match self.run(&command, "compile") {
            Ok(warnings) => return Ok(warnings),
            Err(error) => error,
        };
        let (own, of_system) = self.declarations(at);
        let is_own = |name: &str| defines_type(&own, name) || defines_type(&of_system, name);
        let types: Vec<OsString> =
            YIELDED_TYPES.iter().filter(|(name, _)| is_own(name)).map(|(_, macro_name)| define(macro_name)).collect();
        let mut error = error;
        if !types.is_empty() {
            command.extend(types.iter().cloned());
            match self.run(&command, "compile") {
                Ok(warnings) => return Ok(warnings),
                Err(with_types) => error = with_types,
            }
        }
        // The name found may be that of a variable in a function or a class, which bodies do not see.
        match may_own_variable {
            true => self.run(&[without, types].concat(), "compile").map_err(|_| error),
            false => Err(error),
        }
    }

    /// Returns the preprocessed declarations of the file, with its headers, and those of the system's headers. The source is in
    /// `at`.
    fn declarations(&self, at: &Path) -> (String, String) {
        let (program, arguments) = self.compile.split_first().expect("a command has a program");
        let mut command = Command::new(program);
        command.args(arguments).arg("-I").arg(at).arg("-E").arg(at.join(self.source_name));
        command.current_dir(&self.folder).stdin(Stdio::null()).stderr(Stdio::null());
        let Ok(output) = children::output(&mut command) else { return Default::default() };
        of_the_file(&String::from_utf8_lossy(&output.stdout), at)
    }

    fn run(&self, command: &[OsString], what: &str) -> Result<String, Error> {
        let (program, arguments) = command.split_first().expect("a command has a program");
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null()).stderr(Stdio::piped());
        let output = children::output(&mut command).map_err(|error| {
            self.wrong(&format!("cannot {what} its C: '{}': {error}; {}", program.to_string_lossy(), self.remedy))
        })?;
        let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        if let Some((end, _)) = said.match_indices('\n').nth(OUTPUT_LINES_MAX) {
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

/// Symbols called by functions and methods, except for those of bodies: archives are linked for them.
fn called(parsed: &IdlFile) -> impl Iterator<Item = &str> {
    let all = [(&parsed.definitions, &parsed.build.stubs)];
    let all = all.into_iter().chain(parsed.classes.iter().map(|class| (&class.methods, &class.stubs)));
    all.flat_map(|(definitions, stubs)| {
        let is_stub = |index: usize| stubs.iter().any(|stub| stub.definition == index);
        definitions.iter().enumerate().filter_map(move |(index, definition)| match &definition.body {
            Body::Native { symbol, .. } if !is_stub(index) => Some(symbol.as_str()),
            _ => None,
        })
    })
}

fn required(missing: &Path) -> String {
    format!("{} is required, but does not exist; compile it first, with -fPIC", missing.display())
}

/// Returns the declarations of a preprocessed source that are neither from the prelude nor from the folder `at`: those of the
/// file, with its headers, and those of the system's headers.
fn of_the_file(preprocessed: &str, at: &Path) -> (String, String) {
    let (mut own, mut of_system) = (String::new(), String::new());
    let (mut is_ours, mut is_system) = (false, false);
    for line in preprocessed.lines() {
        let place = line.strip_prefix("# ").and_then(|marker| marker.split_once('"')?.1.rsplit_once('"'));
        match place {
            Some((BEHIND_DECLARATIONS, _)) => break,
            Some((file, flags)) => {
                is_ours = OWN_SOURCES.contains(&file) || Path::new(file).starts_with(at);
                is_system = flags.split_whitespace().any(|flag| flag == "3");
            }
            None if is_ours => {}
            None if is_system => of_system.extend([line, "\n"]),
            None => own.extend([line, "\n"]),
        }
    }
    (own, of_system)
}

/// Parses the files that a compiler has read from make rules: names after the first colon, in which blanks, `#` and `$` are
/// escaped.
fn dependencies(rules: &str) -> impl Iterator<Item = PathBuf> {
    let names = rules.split_once(": ").map_or("", |(_, names)| names);
    let joined =
        names.replace("\\\r\n", " ").replace("\\\n", " ").replace("\\ ", "\0").replace("\\#", "#").replace("$$", "$");
    let paths: Vec<PathBuf> = joined.split_whitespace().map(|name| PathBuf::from(name.replace('\0', " "))).collect();
    paths.into_iter()
}

/// The library's temporary name.
const LIBRARY: &str = "stubs.so";
/// Maximum number of lines of a compiler's output in an error; nobody would read more.
const OUTPUT_LINES_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_file_are_told_from_those_of_the_prelude() {
        let text = "# 0 \"/c/new/stubs.c\"\na\n# 1 \"grpc_executable.h\"\nb\n# 1 \"/usr/include/x.h\" 1 3 4\nc\n\
                    # 9 \"grpc_executable.h\" 2\nd\n# 2 \"a \\\"b\\\".idl\"\n  e\n# pragma \"f\n\
                    # 1 \"own_types.h\"\ng\n# 7 \"a.idl\"\nh\n";
        let expected = ("  e\n# pragma \"f\n".to_string(), "c\n".to_string());
        assert_eq!(of_the_file(text, Path::new("/c/new")), expected);
    }

    #[test]
    fn files_with_odd_names_are_found_in_make_rules() {
        let rules = "stubs.o: /tmp/x/stubs.c /opt/my\\ tools/a.h \\\n b\\#1.h c$$d.h Ü.h\n";
        let found: Vec<PathBuf> = dependencies(rules).collect();
        assert_eq!(found, ["/tmp/x/stubs.c", "/opt/my tools/a.h", "b#1.h", "c$d.h", "Ü.h"].map(PathBuf::from));
    }
}
