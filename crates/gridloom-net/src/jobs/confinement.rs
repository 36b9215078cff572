//! Confinement of workers. A worker process gives up rights before it executes its program; all processes that its
//! functions start inherit this, and nothing can undo it.
//!
//! | | what functions cannot do |
//! |---|---|
//! | landlock | open files other than those in [`PermittedFiles`] and in the scratch folder of their worker; trace processes outside of their worker; since Linux 6.12, send signals to them; since Linux 7.1, connect to their unix sockets, except those in [`NAME_SERVICES`] and of nodes |
//! | seccomp | make the system calls in [`system_calls`] |
//! | `no_new_privs` | gain privileges by executing a program such as `sudo` |
//! | namespaces, if root runs the server | use the shared memory of other workers ([`shared_memory`]) |
//! | capabilities | as root: what root can do beyond [`CAPABILITIES`] |
//!
//! **Limits:** the network is not restricted, and before Linux 7.1 neither are connections to unix sockets that have a path. The metadata
//! of all files can be read (`stat`) and, of the user's own files, changed (`chmod`).

use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use thiserror::Error;

use self::landlock::{ABI_WITH_SIGNALS, ABI_WITH_SOCKETS, Access, Ruleset};
use self::system_calls::SystemCallFilters;
use super::scratch::Scratch;
use crate::transport::host::HostSockets;

mod landlock;
mod shared_memory;
mod system_calls;

/// Environment variable that is set for confined workers.
pub const CONFINED_VARIABLE: &str = "GRIDLOOM_CONFINED";

/// The oldest landlock ABI that protects files from being truncated.
const ABI_MIN: u32 = 3;
/// The newest landlock ABI whose restrictions are used. The restrictions of ABI 8 and 9 were not tested on such a
/// kernel.
const ABI_MAX: u32 = 9;

/// Folders that programs and libraries need. Missing folders are skipped.
const SYSTEM: [&str; 16] = [
    "/bin",
    "/etc",
    "/gnu/store",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/opt",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
    // Configurations of name servers, to which /etc/resolv.conf may be a link.
    "/run/NetworkManager/resolv.conf",
    "/run/resolvconf",
    "/run/systemd/resolve",
];
/// Sockets through which C libraries look up the names of hosts and users.
const NAME_SERVICES: [&str; 2] = ["/run/nscd", "/run/systemd/resolve"];
/// Shared memory of `shm_open` and of Python's `multiprocessing`.
const SHARED_MEMORY: &str = "/dev/shm";
const DEVICES: [&str; 5] = ["full", "null", "random", "urandom", "zero"];
/// First letters of the names of accelerators and network interfaces in `/dev`, for libraries of GPUs and of MPI.
const FAST_DEVICES: [&str; 10] =
    ["accel", "cxi", "dri", "dxg", "gdrdrv", "hfi1", "infiniband", "kfd", "nvidia", "xpmem"];

/// Capabilities that functions keep if they run as root: those for files, of which landlock has the last word, and for
/// programs that give up root.
const CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID);

/// Files that functions may use, in addition to the scratch folder of their worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PermittedFiles {
    /// Files to read and execute, and folders with all that is in them.
    pub readable: Vec<PathBuf>,
    /// Folders in which everything can be read, executed and changed.
    pub writable: Vec<PathBuf>,
}

impl PermittedFiles {
    /// Returns the folders of the system.
    pub fn of_system() -> PermittedFiles {
        PermittedFiles { readable: SYSTEM.map(PathBuf::from).into(), writable: vec![SHARED_MEMORY.into()] }
    }
}

/// Reason why workers cannot be confined.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum ConfinementError {
    /// The kernel has no landlock.
    #[error("the kernel (Linux {kernel}) has no landlock: {remedy}", remedy = REMEDY)]
    NotBuilt { kernel: String },
    /// It was not enabled.
    #[error(
        "landlock is not enabled in the kernel (Linux {kernel}): add 'landlock' to the kernel's parameter 'lsm=', or \
         {remedy}",
        remedy = REMEDY
    )]
    NotEnabled { kernel: String },
    /// It is too old.
    #[error(
        "landlock of the kernel (Linux {kernel}) has ABI {abi}, and {min} is needed to protect files from being \
         truncated: {remedy}",
        min = ABI_MIN,
        remedy = REMEDY
    )]
    TooOld { kernel: String, abi: u32 },
    /// There is no filter of system calls for this processor.
    #[error("there is no filter of system calls for this processor: {why}")]
    NoFilter { why: String },
}

const REMEDY: &str = "run the server on Linux 6.2 or newer, or leave the option out and run functions as another user \
                      with --run-as";

/// How workers are confined.
#[derive(Clone, Debug)]
pub struct Confinement {
    abi: u32,
    files: PermittedFiles,
    filters: SystemCallFilters,
    has_own_shared_memory: bool,
}

impl Confinement {
    /// Confines workers to these files.
    ///
    /// # Errors
    /// If this kernel cannot do it.
    pub fn new(files: PermittedFiles) -> Result<Confinement, ConfinementError> {
        let kernel = || rustix::system::uname().release().to_string_lossy().into_owned();
        let abi = supported(landlock::abi(), kernel)?;
        let no_filter = |error: seccompiler::BackendError| ConfinementError::NoFilter { why: error.to_string() };
        let filters = SystemCallFilters::compile().map_err(no_filter)?;
        Ok(Confinement { abi, files, filters, has_own_shared_memory: shared_memory::can_separate() })
    }

    /// Returns the version of landlock that is used.
    pub fn abi(&self) -> u32 {
        self.abi
    }

    /// Reports whether functions cannot send signals to processes outside of their worker.
    pub fn restricts_signals(&self) -> bool {
        self.abi >= ABI_WITH_SIGNALS
    }

    /// Reports whether functions cannot connect to unix sockets of other processes by their paths.
    pub fn restricts_sockets(&self) -> bool {
        self.abi >= ABI_WITH_SOCKETS
    }

    /// Reports whether the shared memory of each worker is its own.
    pub fn has_own_shared_memory(&self) -> bool {
        self.has_own_shared_memory
    }

    /// Confines the process that the command will start, and creates its scratch folder. The process runs as `owner`, a user
    /// and a group. `keys`: a folder that it may read, too. `shared_memory_bytes` limits its own shared memory, if it gets any.
    ///
    /// # Errors
    /// If the folder cannot be created, or the kernel has no memory. A permitted file that does not exist, or that this
    /// process cannot use, is skipped.
    pub(super) fn apply(
        &self,
        command: &mut Command,
        scratch: &mut Scratch,
        (program, keys): (&Path, Option<&Path>),
        owner: Option<(u32, u32)>,
        shared_memory_bytes: Option<u64>,
    ) -> io::Result<()> {
        std::fs::DirBuilder::new().mode(0o700).create(scratch.path()).map_err(|error| {
            let why = format!(
                "its temporary folder '{}' cannot be created ({error}): let TMPDIR of the server name a folder that its \
                 user can write to",
                scratch.path().display()
            );
            io::Error::new(error.kind(), why)
        })?;
        scratch.is_confined = true;
        if let Some((user, group)) = owner {
            std::os::unix::fs::chown(scratch.path(), Some(user), Some(group))?;
        }
        command.env("TMPDIR", scratch.path()).env(CONFINED_VARIABLE, "1");
        let ruleset = self.ruleset(scratch.path(), program, keys)?;
        let filters = self.filters.clone();
        let shared_memory = self.has_own_shared_memory.then(|| shared_memory::options(shared_memory_bytes));
        let enter = move || {
            if let Some(options) = &shared_memory {
                shared_memory::separate(options)?;
                // The rule of the folder does not apply to what is mounted over it.
                ruleset.grant(Path::new(SHARED_MEMORY), Access::Write)?;
            }
            if let Some((user, group)) = owner {
                become_user(user, group)?;
            }
            rustix::thread::set_no_new_privs(true)?;
            drop_capabilities()?;
            ruleset.enter()?;
            filters.enter()
        };
        // SAFETY: between fork and exec the closure makes system calls and allocates nothing.
        unsafe { command.pre_exec(enter) };
        Ok(())
    }

    fn ruleset(&self, scratch: &Path, program: &Path, keys: Option<&Path>) -> io::Result<Ruleset> {
        let ruleset = Ruleset::new(self.abi)?;
        // Search paths often have folders that do not exist or that the user cannot use.
        let is_useless = |error: &io::Error| {
            use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
            matches!(error.kind(), NotADirectory | NotFound | PermissionDenied)
        };
        let grant = |path: &Path, access: Access| match ruleset.grant(path, access) {
            Err(error) if is_useless(&error) => Ok(()),
            Err(error) => Err(io::Error::new(error.kind(), format!("'{}': {error}", path.display()))),
            Ok(()) => Ok(()),
        };
        self.files.readable.iter().map(PathBuf::as_path).chain(keys).try_for_each(|path| grant(path, Access::Read))?;
        self.files.writable.iter().try_for_each(|path| grant(path, Access::Write))?;
        grant(scratch, Access::Write)?;
        // A name without a folder is found in PATH, which the caller has permitted.
        if program.components().count() > 1 {
            grant(program, Access::Read)?;
        }
        devices().iter().try_for_each(|path| grant(path, Access::Device))?;
        NAME_SERVICES.iter().try_for_each(|path| grant(Path::new(path), Access::Connect))?;
        // Sessions that functions open connect to nodes and listen there. They cannot remove or replace the sockets of other nodes.
        if let Ok(sockets) = HostSockets::open() {
            grant(sockets.folder(), Access::Sockets)?;
        }
        Ok(ruleset)
    }
}

/// Gives up root for another user, without further groups. Allocates nothing, so that it can be called between fork and exec.
fn become_user(user: u32, group: u32) -> io::Result<()> {
    let checked = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: no list of groups is read.
    checked(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: these calls read no memory.
    checked(unsafe { libc::setgid(group) }).and_then(|()| checked(unsafe { libc::setuid(user) }))
}

/// Drops all capabilities but [`CAPABILITIES`]. Without new privileges, a program that root executes does not get them
/// back. Allocates nothing, so that it can be called between fork and exec.
fn drop_capabilities() -> io::Result<()> {
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    let kept = CapabilitySets {
        effective: effective & CAPABILITIES,
        permitted: permitted & CAPABILITIES,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, kept)?)
}

fn devices() -> Vec<PathBuf> {
    let is_fast = |name: &str| FAST_DEVICES.iter().any(|start| name.starts_with(start));
    let all = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let fast = all.filter(|entry| entry.file_name().to_str().is_some_and(is_fast)).map(|entry| entry.path());
    DEVICES.iter().map(|name| Path::new("/dev").join(name)).chain(fast).collect()
}

/// Returns the version of landlock to use.
fn supported(found: io::Result<u32>, kernel: impl Fn() -> String) -> Result<u32, ConfinementError> {
    match found {
        Ok(abi) if abi < ABI_MIN => Err(ConfinementError::TooOld { kernel: kernel(), abi }),
        Ok(abi) => Ok(abi.min(ABI_MAX)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Err(ConfinementError::NotEnabled { kernel: kernel() })
        }
        Err(_) => Err(ConfinementError::NotBuilt { kernel: kernel() }),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_kernel_that_cannot_confine_workers_is_an_error_with_a_remedy() {
        let kernel = || "5.15.0".to_string();
        let error = |code| Err(io::Error::from_raw_os_error(code));
        assert_eq!((supported(Ok(3), kernel), supported(Ok(99), kernel)), (Ok(3), Ok(ABI_MAX)));
        for (found, part) in [
            (error(libc::ENOSYS), "the kernel (Linux 5.15.0) has no landlock: "),
            (error(libc::EOPNOTSUPP), "add 'landlock' to the kernel's parameter 'lsm='"),
            (Ok(2), "has ABI 2, and 3 is needed"),
        ] {
            let error = supported(found, kernel).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("Linux 6.2 or newer"), "{error}");
        }
    }

    /// Runs a script in a confined shell, and returns its output.
    fn confined(script: &str) -> Option<String> {
        let confinement = match Confinement::new(PermittedFiles::of_system()) {
            Ok(confinement) => confinement,
            Err(error) => {
                gridloom_base::stderr_line!("skipped: {error}");
                return None;
            }
        };
        let (mut command, mut scratch) = (Command::new("/bin/sh"), Scratch::new().unwrap());
        command.args(["-c", script]).stdin(Stdio::null()).stderr(Stdio::piped());
        confinement.apply(&mut command, &mut scratch, (Path::new("/bin/sh"), None), None, None).unwrap();
        let output = command.output().unwrap();
        Some(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    }

    #[test]
    fn a_confined_process_uses_permitted_files_only() {
        let folder = std::env::temp_dir().join(format!("gridloom-confined-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let secret = folder.join("secret");
        std::fs::write(&secret, "secret").unwrap();
        let (path, own) = (secret.display(), std::process::id());
        let script = format!(
            "cat {path}; echo more >> {path}; (: > {path}); rm -f {path}; kill -0 {own} || echo no signal; \
             echo kept > $TMPDIR/file && cat $TMPDIR/file && mkdir $TMPDIR/a && mv $TMPDIR/file $TMPDIR/a/moved && \
             echo moved; unshare -U true || echo no namespace; echo dropped > /dev/null && echo null"
        );
        let Some(output) = confined(&script) else { return };
        assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret", "{output}");
        std::fs::remove_dir_all(&folder).unwrap();
        for part in ["kept\n", "moved\n", "no namespace\n", "null\n", "Permission denied"] {
            assert!(output.contains(part), "{part}: {output}");
        }
        assert!(!output.contains("secret\n") && !output.starts_with("secret"), "{output}");
        let restricts_signals = landlock::abi().is_ok_and(|abi| abi >= ABI_WITH_SIGNALS);
        assert_eq!(output.contains("no signal\n"), restricts_signals, "{output}");
    }

    #[test]
    fn a_confined_process_connects_to_no_socket_of_others_if_the_kernel_can_restrict_that() {
        let path = std::env::temp_dir().join(format!("gridloom-socket-{}", std::process::id()));
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('connected')";
        let output = confined(&format!("python3 -c \"{connect}\" {}", path.display()));
        std::fs::remove_file(&path).unwrap();
        let Some(output) = output else { return };
        let is_restricted = landlock::abi().is_ok_and(|abi| abi >= ABI_WITH_SOCKETS);
        assert_eq!(output.contains("PermissionError"), is_restricted, "{output}");
        assert_eq!(output.contains("connected"), !is_restricted, "{output}");
    }

    #[test]
    fn a_confined_process_has_shared_memory_of_its_own_if_root_starts_it() {
        let path = Path::new(SHARED_MEMORY).join(format!("gridloom-test-{}", std::process::id()));
        std::fs::write(&path, "of another worker").unwrap();
        let script = format!("cat {0}; echo own > {0}-own && cat {0}-own", path.display());
        let output = confined(&script);
        std::fs::remove_file(&path).unwrap();
        let Some(output) = output else { return };
        assert!(output.contains("own\n"), "{output}");
        let left = Path::new(&format!("{}-own", path.display())).to_path_buf();
        let is_shared = left.exists();
        let _ = std::fs::remove_file(&left);
        assert_eq!(output.contains("of another worker"), !shared_memory::can_separate(), "{output}");
        assert_eq!(is_shared, !shared_memory::can_separate());
    }

    #[test]
    fn the_filters_leave_threads_and_processes_alone() {
        let Some(output) = confined("(sleep 0; echo child) | cat; grep -E 'NoNewPrivs|CapEff' /proc/self/status")
        else {
            return;
        };
        assert!(output.contains("child\n") && output.contains("NoNewPrivs:\t1"), "{output}");
        let effective = output.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
        assert_eq!(u64::from_str_radix(effective, 16).unwrap() & !CAPABILITIES.bits(), 0);
    }
}
