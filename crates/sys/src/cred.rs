//! Whose rights a thread acts with.
//!
//! The kernel checks reserved blocks, quota limits and set-id bits against the thread that
//! writes. Work that another thread does for a submitter must act with the submitter's rights.

use crate::{Errno, sys};

/// What the kernel looks at when a file is written (credentials(7), capabilities(7)).
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

/// Sets as `capget` and `capset` know them: low words, then high words.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAP_VERSION_3: u32 = 0x2008_0522;

impl Credentials {
    /// Reads those of the calling thread: four system calls, about half a microsecond.
    ///
    /// # Errors
    /// `ENOSYS`, `EPERM`: a seccomp filter forbids one of the calls.
    pub fn current() -> Result<Credentials, Errno> {
        let caps = capabilities()?;
        Ok(Credentials {
            fsuid: set_fsuid(u32::MAX),
            fsgid: set_fsgid(u32::MAX),
            groups: groups()?,
            effective: joined(caps, |data| data.effective),
        })
    }

    /// Makes the calling thread act with `self`; `own` are the rights it has now.
    ///
    /// The thread's real and saved identities stay, so [`Credentials::restore`] can go back.
    /// # Errors
    /// `EPERM`: this thread may not take these rights on; it keeps its own.
    pub fn adopt(&self, own: &Credentials) -> Result<(), Errno> {
        let taken = self.take(own);
        if taken.is_err() {
            own.restore();
        }
        taken
    }

    fn take(&self, own: &Credentials) -> Result<(), Errno> {
        if self.groups != own.groups {
            set_groups(&self.groups)?;
        }
        set_fsgid(self.fsgid);
        set_fsuid(self.fsuid);
        if set_fsgid(u32::MAX) != self.fsgid || set_fsuid(u32::MAX) != self.fsuid {
            return Err(Errno::PERM);
        }
        set_effective(self.effective)
    }

    /// Goes back to `self`, the rights this thread had before it adopted others.
    pub fn restore(&self) {
        // First the capabilities, which the other calls need; last again, because a change of
        // fsuid moves some of them.
        let _ = set_effective(self.effective);
        let _ = set_groups(&self.groups);
        set_fsgid(self.fsgid);
        set_fsuid(self.fsuid);
        let _ = set_effective(self.effective);
    }
}

fn set_fsuid(uid: u32) -> u32 {
    // SAFETY: no memory is involved; -1 only reads.
    unsafe { sys!(libc::SYS_setfsuid, uid) }.unwrap_or(0) as u32
}

fn set_fsgid(gid: u32) -> u32 {
    // SAFETY: no memory is involved; -1 only reads.
    unsafe { sys!(libc::SYS_setfsgid, gid) }.unwrap_or(0) as u32
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

/// Sets the effective capabilities to the part of `wanted` that is permitted.
fn set_effective(wanted: u64) -> Result<(), Errno> {
    let mut data = capabilities()?;
    let permitted = joined(data, |data| data.permitted);
    let effective = wanted & permitted;
    if joined(data, |data| data.effective) == effective {
        return Ok(());
    }
    data[0].effective = effective as u32;
    data[1].effective = (effective >> 32) as u32;
    let mut header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let header = core::ptr::from_mut(&mut header);
    // SAFETY: header and data are live locals of the layout of version 3.
    unsafe { sys!(libc::SYS_capset, header, data.as_ptr()) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopted_rights_can_be_given_back() {
        std::thread::spawn(|| {
            let own = Credentials::current().unwrap();
            let mut other = own.clone();
            other.effective = 0;
            other.adopt(&own).unwrap();
            assert_eq!(Credentials::current().unwrap(), other);
            own.restore();
            assert_eq!(Credentials::current().unwrap(), own);
        })
        .join()
        .unwrap();
    }
}
