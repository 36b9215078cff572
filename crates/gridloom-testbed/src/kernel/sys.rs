//! System calls without a safe interface elsewhere: packet sockets with a mapped ring, netlink sockets, `fork`, and
//! calls in a child before it runs its program. All `unsafe` of this crate is here.
//!
//! **Invariant:** a [`PacketRing`] owns its socket and its mapping. A slot is read only while the kernel has handed it
//! to us (`TP_STATUS_USER`), and is returned before the next is read.

use std::ffi::c_void;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::UnshareFlags;

/// Length of the header that states how a packet must be segmented and what its checksum lacks (`struct
/// virtio_net_hdr`). It precedes every packet.
pub const OFFLOAD_HEADER_BYTES: usize = 10;

const PACKET_QDISC_BYPASS: libc::c_int = 20;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const PACKET_VNET_HDR: libc::c_int = 15;
const ETH_P_IP: u16 = 0x0800;
const BLOCK_BYTES: u32 = 1 << 18;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn option<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of `value`, which lives for the duration of the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const *value).cast(), length) }).map(drop)
}

fn socket(family: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = check(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the descriptor is new and exclusively ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Receives all IP packets that arrive on one interface, and sends packets out of it.
pub struct PacketRing {
    socket: OwnedFd,
    memory: *mut u8,
    memory_bytes: usize,
    slot_bytes: usize,
    slots: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it is bound to a thread.
unsafe impl Send for PacketRing {}

/// A packet in the ring.
pub struct RingPacket<'a> {
    /// Offload header, then the Ethernet frame.
    pub bytes: &'a [u8],
    /// Time at which the kernel received it, on the time-of-day clock, in nanoseconds.
    pub realtime_ns: i128,
    /// True if the packet did not fit into its slot.
    pub is_cut: bool,
}

impl PacketRing {
    /// Opens a ring on the interface with this index, in the network namespace of this thread. `slot_bytes` is a power
    /// of two of at least 2048: the longest packet with its headers. `slots` is the number of packets that the kernel
    /// keeps until they are read.
    ///
    /// # Errors
    /// If the system does not permit packet sockets, or has no memory for the ring.
    pub fn open(interface: u32, slot_bytes: usize, slots: usize) -> io::Result<PacketRing> {
        assert!(slot_bytes.is_power_of_two() && slot_bytes >= 2048, "a slot size that divides a block");
        let socket = socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0)?;
        let one: libc::c_int = 1;
        option(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        option(&socket, libc::SOL_PACKET, PACKET_VNET_HDR, &one)?;
        option(&socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &one)?;
        option(&socket, libc::SOL_PACKET, PACKET_QDISC_BYPASS, &one)?;
        let per_block = BLOCK_BYTES as usize / slot_bytes;
        let blocks = slots.div_ceil(per_block).max(1);
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot_bytes as u32,
            tp_frame_nr: (blocks * per_block) as u32,
        };
        option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let memory_bytes = blocks * BLOCK_BYTES as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address chosen by the kernel.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), memory_bytes, protection, libc::MAP_SHARED, socket.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let slots = blocks * per_block;
        let ring = PacketRing { socket, memory: memory.cast(), memory_bytes, slot_bytes, slots, next: 0 };
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ETH_P_IP.to_be();
        address.sll_ifindex = interface as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the pointer and the length are those of `address`.
        check(unsafe { libc::bind(ring.socket.as_raw_fd(), (&raw const address).cast(), length) })?;
        Ok(ring)
    }

    /// Passes the oldest packet to `read` and returns its slot to the kernel; `None` if there is none.
    pub fn receive<R>(&mut self, read: impl FnOnce(RingPacket<'_>) -> R) -> Option<R> {
        // SAFETY: `next` is below `slots`, so the header is within the mapping; slots are aligned to 2048 bytes.
        let header = unsafe { self.memory.add(self.next * self.slot_bytes).cast::<libc::tpacket2_hdr>() };
        // SAFETY: the field is inside the header; the kernel and this process change it in turn, hence the atomic.
        let status = unsafe { AtomicU32::from_ptr(&raw mut (*header).tp_status) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the kernel has handed the slot to us, so it does not write to it until the status changes.
        let (header, bytes) = unsafe {
            let header = *header;
            let start = usize::from(header.tp_mac) - OFFLOAD_HEADER_BYTES;
            let length = OFFLOAD_HEADER_BYTES + header.tp_snaplen as usize;
            assert!(start + length <= self.slot_bytes, "the kernel keeps packets within their slots");
            (header, std::slice::from_raw_parts(self.memory.add(self.next * self.slot_bytes + start), length))
        };
        let realtime_ns = i128::from(header.tp_sec) * 1_000_000_000 + i128::from(header.tp_nsec);
        let result = read(RingPacket { bytes, realtime_ns, is_cut: header.tp_len > header.tp_snaplen });
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
        Some(result)
    }

    /// Sends an offload header and a frame out of the interface.
    ///
    /// # Errors
    /// If the system has no room for it now, or the frame is invalid.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of `bytes`.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Returns the number of packets that found no free slot since the last call.
    pub fn lost(&self) -> u64 {
        // SAFETY: all zeros is a valid value of this plain structure.
        let mut stats: libc::tpacket_stats = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        let (level, name) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
        let place: *mut c_void = (&raw mut stats).cast();
        // SAFETY: the pointer and the length are those of `stats`.
        let result = unsafe { libc::getsockopt(self.socket.as_raw_fd(), level, name, place, &raw mut length) };
        if result < 0 { 0 } else { u64::from(stats.tp_drops) }
    }
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no slice of it outlives a call of `receive`.
        unsafe { libc::munmap(self.memory.cast(), self.memory_bytes) };
    }
}

/// Opens a socket for requests to the kernel to change interfaces, in the network namespace of this thread.
///
/// # Errors
/// If the system call fails.
pub fn netlink_socket() -> io::Result<OwnedFd> {
    socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)
}

/// Takes over a descriptor, by its number, that the parent process left open for this one.
///
/// # Errors
/// If there is no open descriptor with this number.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: the number is only queried.
    check(unsafe { libc::fcntl(number, libc::F_GETFD) })?;
    // SAFETY: it is open, and nothing else in this process knows the number, which was passed on the command line.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The process in which [`fork`] returns.
pub enum Forked {
    /// The new process.
    Child,
    /// The original process, with the pid of the new one.
    Parent(i32),
}

/// Forks this process.
///
/// # Errors
/// If the system cannot create a process.
///
/// # Panics
/// If the process has more than one thread: the copy could contain locks that no thread ever releases.
pub fn fork() -> io::Result<Forked> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    assert_eq!(threads, 1, "a process is copied before it starts threads");
    // SAFETY: there is only one thread, so no lock is held by another, and the copy is consistent.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// Runs `prepare` in the child before its program.
///
/// `prepare` must do nothing but system calls: it must neither allocate nor take a lock.
pub fn before_exec(command: &mut Command, prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static) {
    // SAFETY: the closures passed in this crate call the kernel through rustix and do nothing else.
    unsafe { command.pre_exec(prepare) };
}

/// Moves this thread into new namespaces.
///
/// # Errors
/// If the system does not permit it.
///
/// # Panics
/// If `flags` contains the table of file descriptors.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    assert!(!flags.contains(UnshareFlags::FILES), "namespaces only");
    // SAFETY: the table of file descriptors stays shared; unsharing it is the only thing that could harm other threads.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Makes the kernel kill the command's process when this thread ends, for whatever reason; therefore start it on the
/// main thread. Processes that it starts itself are not killed with it.
pub fn end_with_this_thread(command: &mut Command) {
    let parent = rustix::process::getpid();
    before_exec(command, move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have ended just before.
        if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    });
}

/// Blocks all signals that can be blocked.
pub fn block_signals() {
    let mut set = no_signals();
    // SAFETY: the set is initialised and belongs to this call.
    unsafe {
        libc::sigfillset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Restores the usual effect of all signals, including those that arrived meanwhile.
pub fn free_signals() {
    let set = no_signals();
    // SAFETY: the set is initialised and belongs to this call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

/// Blocks interrupts until [`take_interrupt`], and restores the usual effect of other signals. Must be called before
/// threads are started.
pub fn hold_interrupts() {
    let set = interrupts();
    // SAFETY: the set is initialised and belongs to this call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}

/// Reports whether an interrupt arrived since the last call.
pub fn take_interrupt() -> bool {
    let (set, now) = (interrupts(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: the set is initialised; both belong to this call, and no information about the signal is requested.
    unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const now) == libc::SIGINT }
}

fn no_signals() -> libc::sigset_t {
    // SAFETY: the set is initialised before it is read.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        set
    }
}

fn interrupts() -> libc::sigset_t {
    let mut set = no_signals();
    // SAFETY: the set is initialised and belongs to this call.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGINT) };
    set
}

/// Returns the process group of a process, 0 if the group's leader is outside this namespace; `None` if there is no such process.
pub fn group_of(pid: i32) -> Option<i32> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::getpgid(pid) }).ok()
}
