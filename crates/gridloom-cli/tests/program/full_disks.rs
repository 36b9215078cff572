//! Durable data when a disk is full: other servers store them, and the server keeps running. The disk is a file system
//! in memory, which a server mounts for itself only.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Grid, Running, file, folder, line_with, skipped, succeeds};

/// `put` puts this many durable bytes under a name. GRPC_NO_ROOM_NP is 26.
const IDL: &str = r#"Module disk;
Define put(IN string name, IN int size, OUT int *code)
{
    char *bytes = calloc(size, 1);
    *code = grpc_shared_put_np(name, bytes, size, GRPC_DURABLE_NP);
    free(bytes);
}
"#;
const MIB: usize = 1 << 20;

fn serve(grid: &Grid, name: &str, durable: &str) -> Command {
    let idl = file("full_disks.idl", IDL);
    let mut command = grid.serve_command(name, &[&idl], &["--slots", "1", "--durable", durable]);
    command.env("GRIDLOOM_CACHE", folder("full-disks-cache"));
    command
}

/// Returns the command with a file system of `bytes` bytes mounted at that folder.
fn with_disk(command: &Command, at: &str, bytes: usize) -> Command {
    let mut inside = Command::new("unshare");
    let mount = r#"mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@""#;
    inside.args(["--map-root-user", "--mount", "sh", "-c", mount, "sh", &bytes.to_string(), at]);
    inside.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    inside
}

fn put(grid: &Grid, name: &str, bytes: usize) -> String {
    succeeds(grid.command(&["call", "disk/put", name, &bytes.to_string()]))
}

#[test]
fn a_server_whose_disk_is_full_continues_and_others_keep_what_it_cannot() {
    let at = folder("full-disk").to_str().unwrap().to_string();
    let probe = with_disk(&Command::new("true"), &at, MIB).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return skipped("this machine does not let this user mount a file system");
    }
    let free = folder("free-disk");
    // The filler of an earlier run.
    std::fs::remove_dir_all(&free).unwrap();
    let (grid, mut log) = Grid::start_logging();
    let _one = Running::start(with_disk(&serve(&grid, "one", &at), &at, 8 * MIB));
    assert_eq!(put(&grid, "large", 16 * MIB), "code = 26\n");
    let line = line_with(&mut log, "a server cannot keep durable data");
    assert!(line.contains("one") && line.contains(&format!("folder '{at}': No space left")), "{line}");
    // The disk is filled to its last byte, so that the database has no room either.
    let mut kept = Vec::new();
    for number in 0.. {
        let name = format!("small/{number:04}");
        if put(&grid, &name, 100_000) != "code = 0\n" {
            break;
        }
        kept.push(name);
    }
    assert!(!kept.is_empty() && kept.len() < 100, "{} fit", kept.len());
    let two = Running::start(serve(&grid, "two", free.to_str().unwrap()));
    assert_eq!(put(&grid, "large", 16 * MIB), "code = 0\n");
    let servers = |name: &str| -> Vec<Value> {
        let told = grid.json(&["data", name]);
        told["names"].as_array().unwrap().iter().map(|one| one["servers"].clone()).collect()
    };
    assert_eq!(servers("large"), [json!(["two"])]);
    drop(two);
    // There is room again, and the data on the disk are still there.
    let page = succeeds(grid.command(&["data", "delete", &kept[0], &kept[1]]));
    assert_eq!(page.lines().count(), 2, "{page}");
    assert_eq!(put(&grid, "small/again", 100_000), "code = 0\n");
    assert_eq!(servers("small/"), vec![json!(["one"]); kept.len() - 1]);
}
