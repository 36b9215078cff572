//! Interface descriptions that need the C preprocessor: conditions, macros with parameters, and files that they include.
//!
//! A description is parsed as it is if that is possible. Otherwise `cc -E` processes it, and the result is parsed. Lines keep their numbers, so that errors and the C code of bodies have the positions of the file. `#include <...>` is
//! left to the compiler of the bodies: the declarations of system headers are no interface descriptions.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use gridloom_idl::{IdlError, IdlFile, parse_file};

/// Stands for `#` in front of directives that the preprocessor must not see.
const KEPT: &str = "@gridloom@";
/// Name of the standard input in the preprocessor's output.
const INPUT: &str = "<stdin>";

/// Parses a description, with the C preprocessor if it does not parse without and has directives for it.
///
/// # Errors
/// The first mistake: in the processed text, or, if the preprocessor fails, in the original one, with the preprocessor's message.
pub fn parse_description(text: &str, file: &Path) -> Result<IdlFile, IdlError> {
    let name = file.display().to_string();
    let error = match parse_file(text, &name) {
        Err(error) if needs_preprocessor(text) => error,
        other => return other,
    };
    match preprocessed(text, file.parent().unwrap_or(Path::new(""))) {
        Ok(text) => parse_file(&text, &name),
        Err(why) => {
            let message = format!("{}; the C preprocessor cannot process the file: {why}", error.message);
            Err(IdlError { message, ..error })
        }
    }
}

/// True if a text has directives that only the preprocessor handles.
fn needs_preprocessor(text: &str) -> bool {
    text.lines().filter_map(directive).any(|(word, rest)| match word {
        "include" => rest.starts_with('"'),
        "define" => rest.find(|c: char| !c.is_alphanumeric() && c != '_').is_some_and(|at| rest[at..].starts_with('(')),
        "if" | "ifdef" | "ifndef" | "undef" => true,
        _ => false,
    })
}

/// Returns the word of a directive, and the rest of its line.
fn directive(line: &str) -> Option<(&str, &str)> {
    let text = line.trim_start().strip_prefix('#')?.trim_start();
    let end = text.find(|c: char| !c.is_alphabetic()).unwrap_or(text.len());
    Some((&text[..end], text[end..].trim_start()))
}

/// Returns the output of the preprocessor, in the lines of the original.
///
/// # Errors
/// The first line of the preprocessor's message.
fn preprocessed(text: &str, folder: &Path) -> Result<String, String> {
    let keeps = |line: &str| directive(line).is_some_and(|(word, rest)| word == "include" && rest.starts_with('<'));
    let lines = text.lines().map(|line| if keeps(line) { line.replacen('#', KEPT, 1) } else { line.to_string() });
    let input = lines.collect::<Vec<_>>().join("\n") + "\n";
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut command = Command::new("cc");
    // The standard language, without extensions, so that the words 'linux' and 'unix' are not macros.
    command
        .args(["-E", "-std=c11", "-x", "c", "-I"])
        .arg(folder)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cc: {error}"))?;
    let mut to_child = child.stdin.take().expect("it is piped");
    // The preprocessor may write before it has read everything.
    let writer = std::thread::spawn(move || to_child.write_all(input.as_bytes()));
    let done = child.wait_with_output().map_err(|error| format!("cc: {error}"))?;
    let _ = writer.join();
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(said.lines().next().unwrap_or("it failed").replace(INPUT, "line"));
    }
    Ok(in_original_lines(&String::from_utf8_lossy(&done.stdout)).replace(KEPT, "#"))
}

/// Puts each line of the preprocessor's output back where it was in the original, and the text of included files into the line that
/// includes them.
fn in_original_lines(output: &str) -> String {
    let (mut text, mut line, mut is_own) = (String::new(), 1, true);
    for part in output.lines() {
        if let Some((number, file)) = marker(part) {
            is_own = file == INPUT;
            while is_own && line < number {
                text.push('\n');
                line += 1;
            }
            continue;
        }
        if part.trim_start().starts_with('#') {
            // A pragma.
            continue;
        }
        text.push_str(part);
        if is_own {
            text.push('\n');
            line += 1;
        } else {
            text.push(' ');
        }
    }
    text
}

/// Returns line number and file of a line of the form `# 12 "file" 1`.
fn marker(line: &str) -> Option<(usize, &str)> {
    let (number, rest) = line.strip_prefix("# ")?.split_once(' ')?;
    let file = rest.strip_prefix('"')?;
    Some((number.parse().ok()?, &file[..file.find('"')?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, folder: &Path) -> Result<IdlFile, IdlError> {
        parse_description(text, &folder.join("t.idl"))
    }

    /// A folder that ends with the test.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("gridloom-preprocess-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn conditions_and_macros_are_processed_and_lines_are_kept() {
        let folder = Folder::new("macros");
        std::fs::write(folder.0.join("sizes.h"), "#define ROWS 4\n#define VECTOR(name) IN double name[ROWS]\n")
            .unwrap();
        let text = "Module m;\n#include \"sizes.h\"\n#include <math.h>\n#ifdef ABSENT\nDefine no(IN int n)\n#else\n\
                    Define norm(VECTOR(x), OUT double *r)\n#endif\n{ *r = sqrt(x[0]) * unix(); }\n";
        let file = parse(text, &folder.0).unwrap();
        assert_eq!(file.definitions.len(), 1);
        assert_eq!(file.definitions[0].signature.name, "m/norm");
        let source = format!("{:?}", file.build);
        assert!(
            source.contains("#include <math.h>") && source.contains("line: 9") && source.contains("unix()"),
            "{source}"
        );
    }

    #[test]
    fn mistakes_have_their_own_lines() {
        let folder = Folder::new("mistakes");
        let text =
            "#define IN_(n) IN int n\n#if 1\n\nDefine f(IN_(n), OUT double r[m])\nCalls \"C\" f(n, r);\n#endif\n";
        let error = parse(text, &folder.0).unwrap_err();
        assert!(error.line == 4 && error.message.contains('m'), "{error}");
        let error = parse("#ifdef A\nDefine f(IN int n)\nCalls \"C\" f(n);\n", &folder.0).unwrap_err();
        assert!(error.message.contains("the C preprocessor cannot process the file"), "{error}");
        // Text that needs no preprocessor has the parser's own error.
        let error = parse("#define N 3\nDefine f(IN it n)\nCalls \"C\" f(n);\n", &folder.0).unwrap_err();
        assert!(error.line == 2 && !error.message.contains("preprocessor"), "{error}");
    }
}
