//! `gridloom connector`.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use gridloom_base::size::parse_size;
use gridloom_net::children;

use super::serve::{self, ServerOptions};
use super::{OwnFolder, end_on_signals, hide_memory};

/// Offer the models of an existing model server, or the methods of an existing RPC server, as typed functions.
///
/// The existing server needs no change. The command asks the server at the endpoint for its models or methods, and then
/// works like 'gridloom serve' with a function for each: the model MODEL is the function models/MODEL, and the method
/// shop.Prices/Find of a gRPC server is Prices/Find. A call fetches its arguments from wherever they are, submits them to
/// the endpoint, and keeps the results for the next call. Start the command on the host of the existing server, or near
/// it. A model or method that no function can represent is left out, and standard error shows why. The functions are
/// those of the models and methods that exist when the command starts.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  gridloom connector --protocol v2 --endpoint http://127.0.0.1:8080\n  \
gridloom connector --protocol v2 --endpoint http://127.0.0.1:8080 --model encode --shape encode/codes=batch,k --slots 4\n  \
gridloom connector --protocol grpc --endpoint 127.0.0.1:50051 --shape Matrix/Product/c=n,n\n  \
gridloom connector --protocol xml-rpc --endpoint http://127.0.0.1:8000 --signature 'norm(x: float64[n]) -> y: float64'")]
pub struct Options {
    /// Protocol of the server: v2 is the Open Inference Protocol over HTTP, as in MLServer, Triton and KServe; grpc is gRPC
    /// with reflection; xml-rpc is XML-RPC
    #[arg(long, value_name = "NAME", value_parser = ["v2", "grpc", "xml-rpc"])]
    protocol: String,
    /// Address of the server: a URL such as http://127.0.0.1:8080, for gRPC HOST:PORT or https://HOST:PORT
    #[arg(long, value_name = "URL")]
    endpoint: String,
    /// PEM file with the certificates of the authorities to trust for a server with TLS [default: those of the system, for gRPC
    /// those of grpcio]
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Model or method to offer; may be repeated [default: all that can be called]
    #[arg(long = "model", visible_alias = "method", value_name = "MODEL")]
    only: Vec<String>,
    /// Sizes of an input or output of a model or method: numbers, names or expressions, one for each dimension; may be repeated
    #[arg(long = "shape", value_name = "MODEL/TENSOR=SIZE,...")]
    shapes: Vec<String>,
    /// Parameters and results of a method of an XML-RPC server, which does not describe arrays; may be repeated
    #[arg(long = "signature", value_name = "SIGNATURE")]
    signatures: Vec<String>,
    /// Module name of all functions (the part before the slash) [default: models; the gRPC service; the part of an XML-RPC
    /// method's name before its last dot, or methods]
    #[arg(long, value_name = "NAME")]
    module: Option<String>,
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
    finds.args(["--answer-within", &options.answer_within.to_string()]);
    finds.args(["--answer-limit", &options.answer_limit.to_string(), "--folder"]);
    finds.arg(&folder.0);
    finds.args(options.module.iter().map(|module| format!("--module={module}")));
    if let Some(file) = &options.ca_file {
        finds.arg("--ca-file").arg(file);
    }
    finds.args(options.only.iter().map(|model| format!("--model={model}")));
    finds.args(options.shapes.iter().map(|shape| format!("--shape={shape}")));
    finds.args(options.signatures.iter().map(|signature| format!("--signature={signature}")));
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
