//! Virtual machines: a Debian kernel, and the host's programs on it.
//!
//! No system is installed in a guest. `make setup` unpacks a kernel; the first file system is an
//! archive of busybox, the tools of the file systems and three scripts (`tests/guest/`). QEMU
//! emulates the processor, because some hosts have no virtualization.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_tests::program::{Program, Running};
use nowait_tests::scratch::Scratch;
use nowait_tests::skip::{self, Skip};
use nowait_tests::subject;

const DEADLINE: Duration = Duration::from_mins(10);

/// Options of the guest's kernel. The emulated processor may wait for a processor of the host; the
/// kernel must not report such a delay as a broken timer or a stall.
const QUIET: &str = "console=ttyS0 panic=-1 quiet no_timer_check nowatchdog \
    rcupdate.rcu_cpu_stall_suppress=1";

/// One NUMA node, whose memory a vhost-user server can map, too.
const ONE_NODE: [&str; 6] = [
    "-m",
    "384",
    "-machine",
    "pc,accel=tcg,memory-backend=memory",
    "-object",
    "memory-backend-memfd,id=memory,size=384M,share=on",
];
/// Two NUMA nodes, each with the processor of its number. The guest has more than 512 MiB, so that
/// its kernel uses huge pages.
const TWO_NODES: [&str; 12] = [
    "-m",
    "640",
    "-machine",
    "pc,accel=tcg",
    "-object",
    "memory-backend-ram,id=first,size=320M",
    "-object",
    "memory-backend-ram,id=second,size=320M",
    "-numa",
    "node,nodeid=0,cpus=0,memdev=first",
    "-numa",
    "node,nodeid=1,cpus=1,memdev=second",
];

/// Modules that the guest needs, in the order of loading. Some may be built into the kernel.
const MODULES: [&str; 9] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "virtio_blk",
    "libcrc32c",
    "xfs",
    "ublk_drv",
];
const UBLK: &str = "ublk_drv";
const PROGRAMS: [&str; 4] = ["mkfs.ext4", "e2fsck", "mkfs.xfs", "xfs_repair"];
const SCRIPTS: [&str; 3] = ["init", "task.sh", "ublk.sh"];

#[derive(Debug)]
pub(crate) struct Parts {
    kernel: PathBuf,
    archive: PathBuf,
}

impl Parts {
    pub(crate) fn collect(scratch: &Scratch) -> Result<Parts, Skip> {
        let kernel = kernels().into_iter().find(|folder| folder.exists());
        Parts::of(scratch, &kernel.ok_or_else(|| lacking("no kernel"))?, &[])
    }

    pub(crate) fn with(scratch: &Scratch, program: &Path) -> Result<Parts, Skip> {
        let kernel = kernels().into_iter().find(|folder| folder.exists());
        Parts::of(scratch, &kernel.ok_or_else(|| lacking("no kernel"))?, &[program])
    }

    pub(crate) fn with_ublk(scratch: &Scratch) -> Result<Parts, Skip> {
        let has_ublk = |folder: &PathBuf| find(&folder.join("lib/modules"), UBLK).is_some();
        let kernel = kernels().into_iter().find(has_ublk);
        let kernel = kernel.ok_or_else(|| lacking("no kernel with ublk"))?;
        let programs = ["bin/nowait", "bin/nowait-serve"].map(subject::built);
        Parts::of(scratch, &kernel, &[&programs[0], &programs[1]])
    }

    fn of(scratch: &Scratch, folder: &Path, programs: &[&Path]) -> Result<Parts, Skip> {
        skip::missing_program(&["qemu-system-x86_64", "busybox", "mkfs.ext4", "mkfs.xfs"])?;
        let kernel = find(&folder.join("boot"), "vmlinuz-").ok_or_else(|| lacking("no kernel"))?;
        let root = scratch.folder("guest");
        for folder in ["bin", "sbin", "modules"] {
            scratch.folder(&format!("guest/{folder}"));
        }
        copy_modules(&folder.join("lib/modules"), &root.join("modules"))?;
        copy_programs(&root);
        programs.iter().for_each(|program| copy_program(program, &root));
        for script in SCRIPTS {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest").join(script);
            fs::copy(source, root.join(script)).expect("a script");
            fs::set_permissions(root.join(script), Permissions::from_mode(0o755)).expect("a mode");
        }
        let archive = scratch.file("initramfs");
        let pack = "cd \"$1\" && find . | busybox cpio -o -H newc >\"$2\" 2>/dev/null";
        Program::new("sh").args(["-c", pack, "pack"]).arg(&root).arg(&archive).succeed();
        Ok(Parts { kernel, archive })
    }
}

fn lacking(what: &str) -> Skip {
    Skip(format!("{what} for guests: see xtask/setup.sh"))
}

/// Returns the folders in which `make setup` unpacks kernels: the distribution's own, and one with
/// ublk if the first lacks it.
fn kernels() -> [PathBuf; 2] {
    let stamps = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.stamps");
    ["guest-kernel", "guest-kernel-ublk"].map(|name| stamps.join(name))
}

/// Copies the modules that exist as files. Other modules must be built into the kernel; only ublk's
/// may be missing.
fn copy_modules(from: &Path, to: &Path) -> Result<(), Skip> {
    // `find` may return another file whose name begins with these words.
    let builtin = find(from, "modules.builtin").ok_or_else(|| lacking("no modules"))?;
    let builtin = fs::read_to_string(builtin.with_file_name("modules.builtin"));
    let builtin = builtin.expect("a list of modules");
    let mut order = Vec::new();
    for module in MODULES {
        let name = format!("{module}.ko");
        let Some(file) = find(from, &name) else {
            if builtin.contains(&format!("/{name}\n")) || module == UBLK {
                continue;
            }
            return Err(lacking(&format!("no module {name}")));
        };
        let target = to.join(&name);
        order.push(name);
        match file.extension().is_some_and(|extension| extension == "xz") {
            true => {
                let unpack = "busybox xz -dc \"$1\" >\"$2\"";
                Program::new("sh").args(["-c", unpack, "sh"]).arg(file).arg(target).succeed();
            }
            false => drop(fs::copy(file, target).expect("a module")),
        }
    }
    fs::write(to.join("order"), order.join("\n")).expect("the order of the modules");
    Ok(())
}

fn copy_programs(root: &Path) {
    fs::copy(on_path("busybox"), root.join("bin/busybox")).expect("busybox");
    PROGRAMS.iter().for_each(|name| copy_program(&on_path(name), root));
}

fn on_path(name: &str) -> PathBuf {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let found = folders.map(|folder| Path::new(folder).join(name));
    found.into_iter().find(|path| path.exists()).expect("a program that was there")
}

fn copy_program(program: &Path, root: &Path) {
    let name = program.file_name().expect("a file");
    fs::copy(program, root.join("sbin").join(name)).expect("a program");
    let linked = Program::new("ldd").arg(program).succeed().stdout;
    for library in linked.split_whitespace().filter(|word| word.starts_with('/')) {
        let place = root.join(library.trim_start_matches('/'));
        fs::create_dir_all(place.parent().expect("a folder")).expect("a folder");
        fs::copy(library, place).expect("a library");
    }
}

fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut found = None;
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            found = found.or_else(|| find(&path, name));
        } else if entry.file_name().to_string_lossy().starts_with(name) {
            return Some(path);
        }
    }
    found
}

#[derive(Debug)]
pub(crate) enum Disk {
    /// By QEMU's NBD client: the address of an export, and the name of the export and the disk.
    Nbd(String, String),
    VhostUser(PathBuf),
    File(PathBuf),
}

#[derive(Debug)]
pub(crate) struct Guest {
    running: Running,
    console: BufReader<std::os::unix::net::UnixStream>,
    said: String,
}

impl Guest {
    /// Starts a guest that runs `task`, see `tests/guest/task.sh`.
    pub(crate) fn start(parts: &Parts, scratch: &Scratch, task: &str, disks: &[Disk]) -> Guest {
        Guest::on(&ONE_NODE, parts, scratch, task, disks)
    }

    pub(crate) fn with_two_nodes(
        parts: &Parts,
        scratch: &Scratch,
        task: &str,
        disks: &[Disk],
    ) -> Guest {
        Guest::on(&TWO_NODES, parts, scratch, task, disks)
    }

    fn on(memory: &[&str], parts: &Parts, scratch: &Scratch, task: &str, disks: &[Disk]) -> Guest {
        let socket = scratch.file("console");
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a socket for the console");
        let mut qemu = Program::new("qemu-system-x86_64")
            .args(memory)
            .args(["-smp", "2"])
            .args(["-nodefaults", "-display", "none", "-no-reboot"])
            // QEMU 7.2 emulates cmpxchg16b wrongly, and Linux 6.12 uses it to allocate memory.
            .args(["-cpu", "qemu64,-cx16"])
            .arg("-serial")
            .arg(format!("unix:{}", socket.display()))
            .arg("-kernel")
            .arg(&parts.kernel)
            .arg("-initrd")
            .arg(&parts.archive)
            .arg("-append")
            .arg(format!("{QUIET} {task}"));
        for (index, disk) in disks.iter().enumerate() {
            qemu = qemu.args(disk.arguments(index));
        }
        let running = qemu.spawn();
        let (console, _) = listener.accept().expect("QEMU opens the console");
        console.set_read_timeout(Some(DEADLINE)).expect("a limit");
        Guest { running, console: BufReader::new(console), said: String::new() }
    }

    pub(crate) fn wait_for(&mut self, line: &str) {
        while self.next_line().unwrap_or_else(|| panic!("no {line:?} in\n{}", self.said)) != line {}
    }

    fn next_line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.console.read_line(&mut line).expect("the guest is not silent");
        self.said.push_str(&line);
        (count > 0).then(|| line.trim_end().to_owned())
    }

    /// Waits for the guest's end. Returns its lines that begin with "guest: ", without these words.
    /// Panics if the task or the guest has failed.
    pub(crate) fn finish(mut self, task: &str) -> Vec<String> {
        // A guest whose task has failed may never end, if its disk waits for a server that is gone.
        let failed = format!("guest: {task}");
        while let Some(line) = self.next_line() {
            assert!(line != failed, "{}", self.said);
        }
        let output = self.running.wait(DEADLINE);
        assert!(output.status.success(), "{output}\n{}", self.said);
        let told = self.said.lines().map(str::trim_end);
        let told: Vec<String> =
            told.filter_map(|line| line.strip_prefix("guest: ")).map(str::to_owned).collect();
        assert!(told.contains(&format!("{task} is done")), "{output}\n{}", self.said);
        told
    }
}

impl Disk {
    fn arguments(&self, index: usize) -> Vec<String> {
        match self {
            Disk::Nbd(uri, name) => vec![
                "-drive".to_owned(),
                format!("file={uri},format=raw,if=none,id=disk{index},discard=unmap"),
                "-device".to_owned(),
                format!("virtio-blk-pci,drive=disk{index},serial={name}"),
            ],
            Disk::File(path) => vec![
                "-drive".to_owned(),
                format!("file={},format=raw,if=virtio,discard=unmap", path.display()),
            ],
            Disk::VhostUser(socket) => vec![
                "-chardev".to_owned(),
                format!("socket,id=disk{index},path={},reconnect=1", socket.display()),
                "-device".to_owned(),
                format!("vhost-user-blk-pci,chardev=disk{index},num-queues=2"),
            ],
        }
    }
}
