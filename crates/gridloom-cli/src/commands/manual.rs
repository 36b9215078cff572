//! `gridloom manual`: manual pages of the program and its commands.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// Write manual pages of the program and its commands
#[derive(clap::Args)]
pub struct Options {
    /// Folder for the pages, such as share/man/man1
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Date of the pages
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: String,
}

pub fn run(options: &Options, mut program: clap::Command) -> Result<ExitCode> {
    std::fs::create_dir_all(&options.out).with_context(|| options.out.display().to_string())?;
    program = program.disable_help_subcommand(true);
    program.build();
    write(&program, options)?;
    Ok(ExitCode::SUCCESS)
}

fn write(command: &clap::Command, options: &Options) -> Result<()> {
    let source = format!("Gridloom {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).date(&options.date).source(source).manual("Gridloom");
    let file = options.out.join(man.get_filename());
    std::fs::write(&file, page(&man, command)?).with_context(|| file.display().to_string())?;
    command.get_subcommands().filter(|inner| !inner.is_hide_set()).try_for_each(|inner| write(inner, options))
}

fn page(man: &Man, command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    let examples = command.get_after_help().map(|text| text.to_string()).unwrap_or_default();
    for (number, line) in examples.lines().enumerate() {
        match number {
            0 => rest.control("SH", [line.trim_end_matches(':').to_uppercase().as_str()]),
            _ => rest.control("PP", []).text([bold(line.trim())]),
        };
    }
    rest.control("SH", ["SEE ALSO"]).text([bold("gridloom"), roman("(1), "), bold("gridrpc"), roman("(7)")]);
    rest.to_writer(&mut page)?;
    Ok(page)
}
