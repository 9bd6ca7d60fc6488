//! Real file systems on loop devices, removed when dropped, also after a failed test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::Program;
use crate::scratch::Scratch;
use crate::skip::{self, Skip};

/// Large enough for the smallest XFS; sparse, so it costs only what is written.
const IMAGE_BYTES: u64 = 512 << 20;

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Extents, journal; refuses `RWF_NOWAIT` writes.
    Ext4,
    /// `RWF_NOWAIT` writes mostly fail with `EAGAIN`.
    Xfs,
    /// Copy on write.
    Btrfs,
    /// In memory; no `RWF_NOWAIT` at all.
    Tmpfs,
}

/// A mounted file system of its own.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    image: Option<PathBuf>,
    // Dropped last: the folder can only be removed once nothing is mounted in it.
    _scratch: Scratch,
}

impl Kind {
    /// Returns the kind's name for mount(8).
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Tmpfs => "tmpfs",
        }
    }

    /// Returns the command that makes a file system of this kind; empty if it needs no device.
    fn mkfs(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["mkfs.ext4", "-q", "-F", "-E", "nodiscard"],
            Self::Xfs => &["mkfs.xfs", "-q", "-f", "-K"],
            Self::Btrfs => &["mkfs.btrfs", "-q", "-f", "-K"],
            Self::Tmpfs => &[],
        }
    }
}

impl Mount {
    /// Makes and mounts an empty file system.
    pub fn new(kind: Kind) -> Result<Self, Skip> {
        Self::made_by(kind, kind.mkfs(), IMAGE_BYTES)
    }

    /// Makes an ext4 of `bytes` with `percent` reserved for root.
    pub fn with_reserved_blocks(percent: u32, bytes: u64) -> Result<Self, Skip> {
        let percent = percent.to_string();
        // Without a journal the small image has room; the tests are about blocks.
        let mkfs = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", &percent];
        Self::made_by(Kind::Ext4, &mkfs, bytes)
    }

    /// Makes an ext4 that allocates blocks at the write, not at the writeback.
    pub fn without_delayed_allocation() -> Result<Self, Skip> {
        Self::made_with(Kind::Ext4, Kind::Ext4.mkfs(), IMAGE_BYTES, ",nodelalloc")
    }

    /// Makes an overlay of two folders on the disk of the temporary folder.
    pub fn overlay() -> Result<Self, Skip> {
        skip::missing_root()?;
        let scratch = Scratch::new("overlay");
        let [point, lower, upper, work] =
            ["mnt", "lower", "upper", "work"].map(|name| scratch.folder(name));
        let folder = |name: &str, path: &Path| format!("{name}={}", path.display());
        let options = [("lowerdir", lower), ("upperdir", upper), ("workdir", work)];
        let options = options.map(|(name, path)| folder(name, &path)).join(",");
        let mount = Program::new("mount").args(["-t", "overlay", "none", "-o", &options]);
        let output = mount.arg(&point).run();
        match output.status.success() {
            true => Ok(Self { point, image: None, _scratch: scratch }),
            false => Err(Skip(format!("cannot mount an overlay: {}", output.stderr.trim()))),
        }
    }

    /// Mounts a copy of an existing image.
    pub fn of_image(kind: &str, image: &Path, point: &Path) -> Result<Self, Skip> {
        let scratch = Scratch::new("image");
        let copy = scratch.file("image");
        std::fs::copy(image, &copy)
            .map_err(|error| Skip(format!("{}: {error}", image.display())))?;
        Self::attach(kind, Some(copy), point.to_owned(), scratch, "")
    }

    fn made_by(kind: Kind, mkfs: &[&str], bytes: u64) -> Result<Self, Skip> {
        Self::made_with(kind, mkfs, bytes, "")
    }

    /// Mounts with further options: empty, or beginning with a comma.
    fn made_with(kind: Kind, mkfs: &[&str], bytes: u64, more: &str) -> Result<Self, Skip> {
        let scratch = Scratch::new(kind.name());
        let point = scratch.folder("mnt");
        let Some((program, args)) = mkfs.split_first() else {
            return Self::attach(kind.name(), None, point, scratch, more);
        };
        skip::missing_program(&[program])?;
        let image = scratch.file("image");
        File::create(&image).and_then(|file| file.set_len(bytes)).expect("a sparse image");
        Program::new(program).args(args).arg(&image).succeed();
        Self::attach(kind.name(), Some(image), point, scratch, more)
    }

    fn attach(
        kind: &str,
        image: Option<PathBuf>,
        point: PathBuf,
        scratch: Scratch,
        more: &str,
    ) -> Result<Self, Skip> {
        skip::missing_root()?;
        let source = image.as_deref().unwrap_or(Path::new("none"));
        let options = if image.is_some() { "loop,noatime" } else { "size=512m" };
        let mount = Program::new("mount").args(["-t", kind, "-o", &format!("{options}{more}")]);
        let output = mount.arg(source).arg(&point).run();
        if !output.status.success() {
            return Err(Skip(format!("cannot mount {kind}: {}", output.stderr.trim())));
        }
        Ok(Self { point, image, _scratch: scratch })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Returns a path inside the file system; creates nothing.
    pub fn file(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    /// Makes a folder inside the file system.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::create_dir_all(&path).expect("a folder in the mounted file system");
        path
    }

    /// Returns the backing image; none for tmpfs.
    pub fn image(&self) -> Option<&Path> {
        self.image.as_deref()
    }

    /// Returns the loop device below the file system, from the mount table.
    pub fn device(&self) -> Option<String> {
        let table = std::fs::read_to_string("/proc/self/mounts").expect("the mount table");
        let mine = |line: &&str| line.split(' ').nth(1) == self.point.to_str();
        table.lines().find(mine)?.split(' ').next().map(str::to_owned)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Not `Program`: it panics, and a panic while unwinding aborts the other tests.
        let umount = |flags: &[&str]| {
            let output = Command::new("umount").args(flags).arg(&self.point).output();
            output.is_ok_and(|output| output.status.success())
        };
        // A killed program may still use it for a moment: a lazy unmount also frees the loop
        // device.
        let _ = umount(&[]) || umount(&["--lazy"]);
    }
}
