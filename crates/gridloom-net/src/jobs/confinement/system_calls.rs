//! The system calls that confined workers cannot make: those through which a process that has some privilege changes the
//! system or leaves landlock's reach. They fail with `EPERM`, as without the privilege.
//!
//! Calls that landlock restricts itself are missing here: `ptrace`, `process_vm_readv` and signals work within a worker,
//! where debuggers and MPI libraries need them.

use std::io;
use std::sync::Arc;

use libc::c_long;
use seccompiler::{
    BpfProgram, Error, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter, sock_filter,
};

const REFUSED: [c_long; 43] = [
    // Other file systems, and files by number instead of by path.
    libc::SYS_chroot,
    libc::SYS_fanotify_init,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    // Namespaces.
    libc::SYS_setns,
    libc::SYS_unshare,
    // The kernel and its modules.
    libc::SYS_acct,
    libc::SYS_bpf,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_perf_event_open,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_userfaultfd,
    // Its queues make system calls that this filter does not see.
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    // Keys that the kernel stores for the user.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // Clocks and names of the machine.
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_vhangup,
];

#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: [c_long; 2] = [libc::SYS_ioperm, libc::SYS_iopl];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: [c_long; 0] = [];

/// Commands of `ioctl` that write into the input of a terminal, whose shell would execute it.
const TERMINAL_INPUT: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Filters of system calls.
#[derive(Clone, Debug)]
pub(super) struct SystemCallFilters(Arc<[BpfProgram; 2]>);

impl SystemCallFilters {
    /// Compiles the filters.
    ///
    /// # Errors
    /// If there are none for this processor.
    pub(super) fn compile() -> Result<SystemCallFilters, seccompiler::BackendError> {
        let always = REFUSED.iter().chain(&REFUSED_HERE).map(|call| (*call, Vec::new()));
        let ioctl = TERMINAL_INPUT.map(|command| rule(1, SeccompCmpOp::Eq, command)).into_iter();
        let user_namespace = libc::CLONE_NEWUSER as u64;
        let clone = vec![rule(0, SeccompCmpOp::MaskedEq(user_namespace), user_namespace)?];
        let some = [(libc::SYS_ioctl, ioctl.collect::<Result<_, _>>()?), (libc::SYS_clone, clone)];
        let mut refused = program(always.chain(some), libc::EPERM)?;
        if cfg!(target_arch = "x86_64") {
            refused.splice(0..0, without_x32());
        }
        // Its flags are in memory, which a filter cannot read. C libraries use 'clone' if the kernel lacks it.
        let missing = program([(libc::SYS_clone3, Vec::new())].into_iter(), libc::ENOSYS)?;
        Ok(SystemCallFilters(Arc::new([refused, missing])))
    }

    /// Applies the filters to this thread and to all processes that it starts. Allocates nothing, so that it can be
    /// called between fork and exec.
    ///
    /// # Errors
    /// If the kernel has no filters.
    pub(super) fn enter(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|program| {
            apply_filter(program).map_err(|error| match error {
                Error::Prctl(error) | Error::Seccomp(error) => error,
                _ => io::ErrorKind::InvalidInput.into(),
            })
        })
    }
}

fn rule(argument: u8, test: SeccompCmpOp, value: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, SeccompCmpArgLen::Dword, test, value)?])
}

/// Compiles a filter that makes these calls fail with `errno`, and kills a process that uses the calls of another
/// processor.
fn program(
    calls: impl Iterator<Item = (c_long, Vec<SeccompRule>)>,
    errno: i32,
) -> Result<BpfProgram, seccompiler::BackendError> {
    let action = SeccompAction::Errno(errno as u32);
    let here = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(calls.collect(), SeccompAction::Allow, action, here)?.try_into()
}

/// Returns the begin of a filter that refuses the calls of the x32 ABI, which have other numbers: this bit is set.
fn without_x32() -> [sock_filter; 3] {
    const X32: u32 = 0x4000_0000;
    let instruction = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    [
        // The number of the call is the first field of the data.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ]
}
