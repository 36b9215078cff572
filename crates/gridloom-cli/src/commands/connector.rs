//! `gridloom connector`.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use gridloom_base::size::parse_size;
use gridloom_net::children;

use super::serve::{self, ServerOptions};
use super::{OwnFolder, end_on_signals, hide_memory};

/// Offer the models of an existing model server as typed functions.
///
/// The model server needs no change. The command asks the server at the endpoint for its models, and then works like
/// 'gridloom serve' with a function for each model: the model MODEL is the function models/MODEL. A call fetches its
/// arguments from wherever they are, submits them to the endpoint, and keeps the results for the next call. Start the
/// command on the host of the model server, or near it. A model that no function can represent is left out, and
/// standard error shows why. The models are those that exist when the command starts.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom connector --protocol v2 --endpoint http://127.0.0.1:8080\n  \
gridloom connector --protocol v2 --endpoint http://127.0.0.1:8080 --model encode --shape encode/codes=batch,k --slots 4")]
pub struct Options {
    /// Protocol of the model server; v2 is the Open Inference Protocol over HTTP, as in MLServer, Triton and KServe
    #[arg(long, value_name = "NAME", value_parser = ["v2"])]
    protocol: String,
    /// URL of the model server, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    endpoint: String,
    /// Model to offer; may be repeated [default: all that are ready]
    #[arg(long = "model", value_name = "MODEL")]
    only: Vec<String>,
    /// Sizes of a tensor of a model: numbers, names or expressions, one for each dimension; may be repeated
    #[arg(long = "shape", value_name = "MODEL/TENSOR=SIZE,...")]
    shapes: Vec<String>,
    /// Module name of the functions (the part before the slash)
    #[arg(long, value_name = "NAME", default_value = "models")]
    module: String,
    /// Time limit for the answers of the endpoint to one call, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=604_800))]
    answer_within: u32,
    /// Maximum size of one answer of the endpoint, such as 4GiB
    #[arg(long, value_parser = parse_size, value_name = "SIZE", default_value = "1GiB")]
    answer_limit: u64,
    #[command(flatten)]
    server: ServerOptions,
}

pub fn run(options: Options) -> Result<ExitCode> {
    hide_memory()?;
    let folder = OwnFolder::new("connector")?;
    end_on_signals(&folder)?;
    // Workers may run as another user, and must be able to read the folder.
    set_permissions(&folder.0, Permissions::from_mode(0o755))?;
    let python = options.server.python();
    let mut finds = python.command("gridloom.connector");
    finds.args(["--protocol", &options.protocol, "--endpoint", &options.endpoint]);
    finds.args(["--module", &options.module, "--answer-within", &options.answer_within.to_string()]);
    finds.args(["--answer-limit", &options.answer_limit.to_string(), "--folder"]);
    finds.arg(&folder.0);
    finds.args(options.only.iter().map(|model| format!("--model={model}")));
    finds.args(options.shapes.iter().map(|shape| format!("--shape={shape}")));
    let found = children::output(finds.stdin(Stdio::null()).stderr(Stdio::piped()))
        .with_context(|| format!("cannot run '{}'; name a Python with --python", python.program.display()))?;
    let said = String::from_utf8_lossy(&found.stderr);
    match (found.status.success(), said.trim()) {
        (true, "") => {}
        (true, said) => gridloom_base::stderr_line!("{said}"),
        (false, said) => bail!("{}", said.strip_prefix("gridloom: ").unwrap_or(said)),
    }
    serve::run(options.server.with_module(folder.0.join("models.py")))
}
