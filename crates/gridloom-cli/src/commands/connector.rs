//! `gridloom connector`.

use std::fs::{File, Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

use super::serve::{self, ServerOptions};
use super::{OwnFolder, hide_memory};

/// Offer the models of a model server that stays as it is, as typed functions.
///
/// The command asks the server at the endpoint for its models, and then goes on as 'gridloom serve' with a function for each: the
/// model MODEL is the function models/MODEL. A call takes its arguments from wherever they are, submits them to the endpoint, and
/// keeps the results for the next call. Start it on the host of the model server, or near it. A model that no function can stand
/// for is left out, and standard error says why. The models are those that are there when the command starts.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom connector --protocol v2 --endpoint http://127.0.0.1:8080\n  \
gridloom connector --protocol v2 --endpoint http://127.0.0.1:8080 --model encode --shape encode/codes=batch,k --slots 4")]
pub struct Options {
    /// Protocol of the model server; v2 is the Open Inference Protocol over HTTP, which MLServer, Triton and KServe speak
    #[arg(long, value_name = "NAME", value_parser = ["v2"])]
    protocol: String,
    /// Where the model server listens, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    endpoint: String,
    /// Model to offer; may be repeated [default: all that are ready]
    #[arg(long = "model", value_name = "MODEL")]
    only: Vec<String>,
    /// Sizes of a tensor of a model: numbers, names or expressions, one for each dimension; may be repeated
    #[arg(long = "shape", value_name = "MODEL/TENSOR=SIZE,...")]
    shapes: Vec<String>,
    /// Name of functions before the slash
    #[arg(long, value_name = "NAME", default_value = "models")]
    module: String,
    /// Longest time that the endpoint takes for one answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=604_800))]
    answer_within: u32,
    #[command(flatten)]
    server: ServerOptions,
}

pub fn run(options: Options) -> Result<ExitCode> {
    hide_memory()?;
    let folder = OwnFolder::new("connector")?;
    // Workers of another user read it, too. Locked, it is not taken for forgotten by systemd-tmpfiles.
    set_permissions(&folder.0, Permissions::from_mode(0o755))?;
    let open = File::open(&folder.0)?;
    flock(&open, FlockOperation::NonBlockingLockShared)?;
    let python = options.server.python();
    let mut finds = Command::new(python);
    finds.args(["-m", "gridloom.connector", "--protocol", &options.protocol, "--endpoint", &options.endpoint]);
    finds.args(["--module", &options.module, "--answer-within", &options.answer_within.to_string(), "--folder"]);
    finds.arg(&folder.0);
    finds.args(options.only.iter().map(|model| format!("--model={model}")));
    finds.args(options.shapes.iter().map(|shape| format!("--shape={shape}")));
    let found =
        finds.output().with_context(|| format!("cannot run '{}'; name a Python with --python", python.display()))?;
    let said = String::from_utf8_lossy(&found.stderr);
    match (found.status.success(), said.trim()) {
        (true, "") => {}
        (true, said) => gridloom_base::say!("{said}"),
        (false, said) => bail!("{}", said.strip_prefix("gridloom: ").unwrap_or(said)),
    }
    serve::run(options.server.with_module(folder.0.join("models.py")))
}
