//! Mounts real file systems, most of them on loop devices. A drop unmounts and removes them, also
//! after a failed test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::program::Program;
use crate::scratch::Scratch;
use crate::skip::{self, Skip};

/// Usual size of an image: large enough for the smallest XFS. The image is sparse, so that it takes
/// little space on the disk.
const IMAGE_BYTES: u64 = 512 << 20;

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs, with copy on write.
    Btrfs,
    /// tmpfs, in memory.
    Tmpfs,
}

/// A mounted file system. A drop unmounts it.
#[derive(Debug)]
pub struct Mount {
    point: PathBuf,
    image: Option<PathBuf>,
    // The drop of this field removes the mount's own folder, after `Mount::drop` has unmounted the
    // file system.
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

    /// Returns the command that makes a file system of this kind; empty if the kind needs no
    /// device.
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

    /// Makes and mounts an ext4 file system of `bytes` bytes, of which `percent` percent are
    /// reserved for root.
    pub fn with_reserved_blocks(percent: u32, bytes: u64) -> Result<Self, Skip> {
        let percent = percent.to_string();
        // A journal would fill much of the small image.
        let mkfs = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", &percent];
        Self::made_by(Kind::Ext4, &mkfs, bytes)
    }

    /// Makes and mounts an ext4 file system that allocates blocks at the write, not at the
    /// writeback.
    pub fn without_delayed_allocation() -> Result<Self, Skip> {
        Self::made_with(Kind::Ext4, Kind::Ext4.mkfs(), IMAGE_BYTES, ",nodelalloc")
    }

    /// Mounts an overlay of two new folders, which lie in the temporary folder.
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

    /// Mounts a copy of an existing image on `point`.
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

    /// Makes and mounts a file system. `more` holds further mount options: it is empty or begins
    /// with a comma.
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

    /// Returns the backing image; `None` for tmpfs and an overlay.
    pub fn image(&self) -> Option<&Path> {
        self.image.as_deref()
    }

    /// Returns the device that the mount table names for the mount point: a loop device, or the
    /// word `none` for tmpfs and overlay. `None`: nothing is mounted there.
    pub fn device(&self) -> Option<String> {
        let table = std::fs::read_to_string("/proc/self/mounts").expect("the mount table");
        let mine = |line: &&str| line.split(' ').nth(1) == self.point.to_str();
        table.lines().find(mine)?.split(' ').next().map(str::to_owned)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // `Program` panics on some errors; a panic while another one unwinds would abort the test
        // process, so this is a `Command`.
        let umount = |flags: &[&str]| {
            let output = Command::new("umount").args(flags).arg(&self.point).output();
            output.is_ok_and(|output| output.status.success())
        };
        // A killed program may still use the file system for a moment. After a lazy unmount the
        // kernel frees the loop device when the last user ends.
        let _ = umount(&[]) || umount(&["--lazy"]);
    }
}
