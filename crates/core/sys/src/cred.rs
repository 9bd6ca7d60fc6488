//! The credentials that a thread acts with.
//!
//! The kernel checks reserved blocks, quota limits and set-id bits against the thread that writes.
//! Work that another thread does for a submitter must use the submitter's credentials.

use crate::{
    Errno,
    confined::{self, Extra},
    inspect, sys, thread,
};

/// The credentials that the kernel checks when a file is written (credentials(7), capabilities(7)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    fsuid: u32,
    fsgid: u32,
    groups: Vec<u32>,
    effective: u64,
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// Capability sets in the layout of `capget` and `capset`: low words, then high words.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAP_VERSION_3: u32 = 0x2008_0522;

impl Credentials {
    /// Reads the credentials of the calling thread: four system calls, about half a microsecond.
    ///
    /// # Errors
    /// `ENOSYS`, `EPERM`: a seccomp filter refuses capget(2) or getgroups(2), or may kill for one
    /// of the four calls and /proc does not show the credentials.
    pub fn current() -> Result<Credentials, Errno> {
        if confined::forbids(Extra::Credentials) {
            return Credentials::shown().ok_or(Errno::PERM);
        }
        let caps = capabilities()?;
        Ok(Credentials {
            fsuid: set_fsuid(u32::MAX),
            fsgid: set_fsgid(u32::MAX),
            groups: groups()?,
            effective: joined(caps, |data| data.effective),
        })
    }

    /// Reads the credentials of the calling thread from /proc, in some 20 microseconds.
    fn shown() -> Option<Credentials> {
        Credentials::parse(&inspect::read_text(c"/proc/thread-self/status").ok()?)
    }

    fn parse(status: &str) -> Option<Credentials> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let last_id = |name| field(name)?.split_whitespace().nth(3)?.parse().ok();
        let groups = field("Groups:")?.split_whitespace().map(|group| group.parse().ok());
        Some(Credentials {
            fsuid: last_id("Uid:")?,
            fsgid: last_id("Gid:")?,
            groups: groups.collect::<Option<_>>()?,
            effective: u64::from_str_radix(field("CapEff:")?.trim(), 16).ok()?,
        })
    }

    /// Runs `work` with these credentials, on a thread that may have others, and restores the
    /// thread's own.
    ///
    /// `work` runs without capabilities that the process has given up. If the process may not
    /// change its identity any more, a thread whose own credentials permit no more than `self`
    /// keeps them for `work`. A thread that calls setuid(2) or one of its kin meanwhile waits until
    /// `work` is over.
    /// # Errors
    /// `EPERM`: this thread may not take on `self`, and its own credentials might permit more. The
    /// errors of [`Credentials::current`].
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, Errno> {
        // setuid(2) must find the thread's own credentials: glibc ends a process whose threads
        // disagree, and restoring would bring back credentials that the program gave up.
        thread::with_steady_identity(|| {
            let own = Credentials::current()?;
            if own == *self {
                return Ok(work());
            }
            if self.take().is_err() {
                own.restore();
                return if own.is_no_more_than(self) { Ok(work()) } else { Err(Errno::PERM) };
            }
            let done = work();
            own.restore();
            Ok(done)
        })
    }

    /// Returns `true` if `self` has no capability that `other` lacks, and is not root unless
    /// `other` is. Groups and other user ids do not count.
    fn is_no_more_than(&self, other: &Credentials) -> bool {
        self.effective & !other.effective == 0 && (self.fsuid != 0 || other.fsuid == 0)
    }

    /// The thread's real and saved identities stay, so that [`Credentials::restore`] can go back.
    fn take(&self) -> Result<(), Errno> {
        confined::check(Extra::Credentials)?;
        // The following calls need capabilities that may be permitted but not effective
        // (seteuid(2)).
        set_effective(u64::MAX)?;
        if groups()? != self.groups {
            set_groups(&self.groups)?;
        }
        set_fsgid(self.fsgid);
        set_fsuid(self.fsuid);
        if set_fsgid(u32::MAX) != self.fsgid || set_fsuid(u32::MAX) != self.fsuid {
            return Err(Errno::PERM);
        }
        // The capabilities come last, because a change of the fsuid changes some of them.
        set_effective(self.effective)
    }

    fn restore(&self) {
        let _ = self.take();
    }
}

/// Returns the fsuid before the call. If a filter refuses setfsuid(2), the thread still has the
/// fsuid that the kernel gave it with its effective user id.
fn set_fsuid(uid: u32) -> u32 {
    // SAFETY: no memory is involved; -1 only reads.
    let before = unsafe { sys!(libc::SYS_setfsuid, uid) };
    before.map_or_else(|_| effective_user(), |before| before as u32)
}

/// Like [`set_fsuid`], for the group.
fn set_fsgid(gid: u32) -> u32 {
    // SAFETY: no memory is involved; -1 only reads.
    let before = unsafe { sys!(libc::SYS_setfsgid, gid) };
    // SAFETY: takes nothing and cannot fail.
    before.map_or_else(|_| unsafe { libc::getegid() }, |before| before as u32)
}

fn groups() -> Result<Vec<u32>, Errno> {
    let mut few = [0u32; 32];
    // SAFETY: the array is a live local of the length given.
    match unsafe { sys!(libc::SYS_getgroups, few.len(), few.as_mut_ptr()) } {
        Ok(count) => Ok(few[..count].to_vec()),
        Err(Errno::INVAL) => {
            let mut many = vec![0u32; 65_536];
            // SAFETY: the vector is live and of the length given.
            let count = unsafe { sys!(libc::SYS_getgroups, many.len(), many.as_mut_ptr()) }?;
            many.truncate(count);
            Ok(many)
        }
        Err(errno) => Err(errno),
    }
}

fn set_groups(groups: &[u32]) -> Result<(), Errno> {
    // SAFETY: the slice is live and of the length given.
    unsafe { sys!(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }.map(drop)
}

fn capabilities() -> Result<[CapData; 2], Errno> {
    let mut header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    let header = core::ptr::from_mut(&mut header);
    // SAFETY: header and data are live locals of the layout of version 3.
    unsafe { sys!(libc::SYS_capget, header, data.as_mut_ptr()) }?;
    Ok(data)
}

fn joined(data: [CapData; 2], set: impl Fn(&CapData) -> u32) -> u64 {
    u64::from(set(&data[0])) | u64::from(set(&data[1])) << 32
}

/// Returns the effective user id of the calling thread.
pub fn effective_user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

fn set_effective(wanted: u64) -> Result<(), Errno> {
    let mut data = capabilities()?;
    let permitted = joined(data, |data| data.permitted);
    let effective = wanted & permitted;
    if joined(data, |data| data.effective) == effective {
        return Ok(());
    }
    data[0].effective = effective as u32;
    data[1].effective = (effective >> 32) as u32;
    set_capabilities(&data)
}

fn set_capabilities(data: &[CapData; 2]) -> Result<(), Errno> {
    let mut header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let header = core::ptr::from_mut(&mut header);
    // SAFETY: header and data are live locals of the layout of version 3.
    unsafe { sys!(libc::SYS_capset, header, data.as_ptr()) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOMEBODY: u32 = 65_534;

    fn as_root(test: impl FnOnce(Credentials) + Send) {
        // SAFETY: takes nothing, cannot fail.
        if unsafe { libc::geteuid() } == 0 {
            let test = move || test(Credentials::current().unwrap());
            std::thread::scope(|scope| scope.spawn(test).join().unwrap());
        } else {
            println!("skipped: rights: needs root");
        }
    }

    fn current() -> Credentials {
        Credentials::current().unwrap()
    }

    /// Changes the ids of this thread only, as the handler of the C library does in each thread.
    fn set_resuid(uids: [u32; 3]) {
        // SAFETY: no memory is involved.
        unsafe { sys!(libc::SYS_setresuid, uids[0], uids[1], uids[2]) }.unwrap();
    }

    fn somebody() -> Credentials {
        Credentials { fsuid: SOMEBODY, fsgid: SOMEBODY, groups: vec![SOMEBODY], effective: 0 }
    }

    #[test]
    fn proc_shows_what_the_kernel_says() {
        assert_eq!(Credentials::shown(), Credentials::current().ok());
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n\
                      CapEff:\t00000000000000ff\n";
        let (groups, effective) = (vec![9, 10], 0xff);
        let parsed = Credentials { fsuid: 4, fsgid: 8, groups, effective };
        assert_eq!(Credentials::parse(status), Some(parsed));
        assert_eq!(Credentials::parse("Uid:\t1\t2\t3\n"), None);
    }

    #[test]
    fn rights_are_taken_and_given_back() {
        as_root(|own| {
            let fewer = Credentials { effective: 0, ..own.clone() };
            for other in [fewer, somebody(), own.clone()] {
                assert_eq!(other.run(current), Ok(other.clone()));
                assert_eq!(current(), own);
            }
        });
    }

    #[test]
    fn rights_that_are_only_permitted_are_taken_and_given_back() {
        as_root(|root| {
            set_resuid([u32::MAX, SOMEBODY, u32::MAX]); // as seteuid(2) does
            let own = current();
            assert_eq!((own.fsuid, own.effective), (SOMEBODY, 0));
            assert_eq!(root.run(current), Ok(root.clone()));
            assert_eq!(current(), own);
        });
    }

    #[test]
    fn rights_that_were_given_up_are_not_had_and_nothing_fails_for_them() {
        as_root(|root| {
            set_resuid([SOMEBODY; 3]);
            let own = current();
            for other in [root, somebody()] {
                assert_eq!(other.run(current), Ok(own.clone()));
                assert_eq!(current(), own);
            }
        });
    }

    #[test]
    fn a_refused_setfsuid_does_not_make_root_of_a_user() {
        as_root(|root| {
            refuse(&[libc::SYS_setfsuid, libc::SYS_setfsgid]);
            set_resuid([u32::MAX, SOMEBODY, u32::MAX]);
            let own = current();
            assert_eq!((own.fsuid, own.fsgid), (SOMEBODY, root.fsgid));
            assert_eq!(Some(&own), Credentials::shown().as_ref());
            assert_eq!(root.run(current), Ok(own.clone()), "permits no more than root");
            assert_eq!(current(), own);
            set_resuid([u32::MAX, 0, u32::MAX]);
            assert_eq!(own.run(current), Err(Errno::PERM));
        });
    }

    /// Has the kernel refuse `calls` to this thread.
    fn refuse(calls: &[libc::c_long]) {
        const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
        let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
        let mut filter = vec![step(LOAD, 0, 0)];
        for call in calls {
            filter.extend([step(EQUAL, 1, *call as u32), step(RETURN, 0, refused)]);
        }
        filter.push(step(RETURN, 0, libc::SECCOMP_RET_ALLOW));
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        let mode = libc::SECCOMP_SET_MODE_FILTER;
        // SAFETY: the program is live and of the length given; the filter is this thread's alone.
        unsafe { sys!(libc::SYS_seccomp, mode, 0, &raw const program) }.unwrap();
    }

    #[test]
    fn rights_that_cannot_be_taken_are_not_replaced_by_more() {
        as_root(|own| {
            // All capabilities except CAP_SETGID and CAP_SETUID.
            const SETGID_SETUID: u64 = 3 << 6;
            let kept = own.effective & !SETGID_SETUID;
            set_permitted(kept);
            let own = Credentials { effective: kept, ..own };
            assert_eq!(somebody().run(current), Err(Errno::PERM));
            assert_eq!(current(), own);
        });
    }

    fn set_permitted(caps: u64) {
        let mut data = capabilities().unwrap();
        for (data, caps) in data.iter_mut().zip([caps as u32, (caps >> 32) as u32]) {
            (data.effective, data.permitted) = (caps, caps);
        }
        set_capabilities(&data).unwrap();
    }
}
