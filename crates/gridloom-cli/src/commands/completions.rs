//! `gridloom completions`.

use std::process::ExitCode;

use anyhow::Result;
use clap_complete::{Shell, generate};

use super::print_text;

/// Print a script that lets a shell complete commands and options.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
mkdir -p ~/.local/share/bash-completion/completions\n  \
gridloom completions bash > ~/.local/share/bash-completion/completions/gridloom\n\n  \
mkdir -p ~/.zfunc    # .zshrc, before compinit: fpath=(~/.zfunc $fpath)\n  \
gridloom completions zsh > ~/.zfunc/_gridloom\n\n  \
mkdir -p ~/.config/fish/completions\n  \
gridloom completions fish > ~/.config/fish/completions/gridloom.fish")]
pub struct Options {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub fn run(options: &Options, mut program: clap::Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    generate(options.shell, &mut program, "gridloom", &mut script);
    print_text(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
