//! Imports of files and exports of NBD servers into images on a store, and exports of the images to
//! them.

#[path = "../../device/tests/support/mod.rs"]
mod support;

use nowait::Nowait;
use nowait_image_store::transfer::{Copied, Transfer, export, import};
use nowait_image_store::{ImageKey, Request, StoreOptions, StoreUrl, StoredImage, View};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

fn transfer(url: &str, other: &Path) -> Transfer {
    let url = url.parse().unwrap();
    Transfer { url, store: StoreOptions::default(), other: other.to_owned(), resume: false }
}

fn again(transfer: &Transfer) -> Transfer {
    Transfer { resume: true, ..transfer.clone() }
}

fn imported(transfer: &Transfer) -> Result<Copied, String> {
    let engine = Nowait::new().unwrap();
    import(&engine, transfer, 4096, &mut |_, _| ()).map_err(|error| error.to_string())
}

fn exported(transfer: &Transfer) -> Result<Copied, String> {
    let engine = Nowait::new().unwrap();
    export(&engine, transfer, &mut |_, _| ()).map_err(|error| error.to_string())
}

fn sparse(path: &Path, size: u64, places: &[u64]) -> File {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for at in places {
        let data: Vec<u8> = (0..10_000).map(|index| (index % 251) as u8 + 1).collect();
        file.write_all_at(&data, *at).unwrap();
    }
    file
}

fn same(one: &Path, other: &Path) -> bool {
    let (one, other) = (File::open(one).unwrap(), File::open(other).unwrap());
    let size = one.metadata().unwrap().len();
    let (mut left, mut right) = (vec![0; MIB as usize], vec![0; MIB as usize]);
    size == other.metadata().unwrap().len()
        && (0..size).step_by(MIB as usize).all(|at| {
            let len = (size - at).min(MIB) as usize;
            one.read_exact_at(&mut left[..len], at).unwrap();
            other.read_exact_at(&mut right[..len], at).unwrap();
            left[..len] == right[..len]
        })
}

fn part(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find(|path| path.extension().is_some_and(|it| it == "part"))
}

fn write(image: &StoredImage, offset: u64, data: Vec<u8>) {
    image.call(Request::Write { offset, data, durable: true }).unwrap();
}

#[test]
fn a_file_is_imported_and_exported_with_its_holes() {
    let folder = tempfile::tempdir().unwrap();
    let (source, back) = (folder.path().join("a"), folder.path().join("b"));
    // The data lies at the beginning, across the edge of a piece, not at the edges of blocks, and
    // at an end that lies inside a block.
    let size = 40 * MIB + 1000;
    sparse(&source, size, &[0, 3 * MIB - 5000, 20 * MIB + 77, size - 10_000]);
    let copied = imported(&transfer("memory://both/vm", &source)).unwrap();
    assert_eq!(copied.size_bytes, 40 * MIB + 4096);
    assert!((40_000..60_000).contains(&copied.written_bytes), "{copied:?}");
    let out = exported(&transfer("memory://both/vm", &back)).unwrap();
    assert_eq!(out, copied);
    OpenOptions::new().write(true).open(&source).unwrap().set_len(copied.size_bytes).unwrap();
    assert!(same(&source, &back));
    assert!(fs::metadata(&back).unwrap().blocks() * 512 < 2 * MIB, "holes stay holes");
    assert!(part(folder.path()).is_none());
    let there = exported(&transfer("memory://both/vm", &back)).unwrap_err();
    assert!(there.contains("the file exists"), "{there}");
    let there = imported(&transfer("memory://both/vm", &source)).unwrap_err();
    assert!(there.contains("the image exists"), "{there}");
}

#[test]
fn an_import_resumes_with_the_blocks_that_the_image_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let (source, back) = (folder.path().join("a"), folder.path().join("b"));
    sparse(&source, 8 * MIB, &[0, 4 * MIB]);
    let url: StoreUrl = "memory://rest/vm".parse().unwrap();
    let half = StoredImage::create(&url, &StoreOptions::default(), 8 * MIB, 4096).unwrap();
    let mut data = vec![0; 8192];
    File::open(&source).unwrap().read_exact_at(&mut data, 0).unwrap();
    write(&half, 0, data);
    drop(half);
    let wanted = transfer("memory://rest/vm", &source);
    let copied = imported(&again(&wanted)).unwrap();
    assert_eq!(copied.written_bytes, 4096 + 3 * 4096, "what was there is not written again");
    exported(&transfer("memory://rest/vm", &back)).unwrap();
    assert!(same(&source, &back));
    sparse(&source, 9 * MIB, &[]);
    let other = imported(&again(&wanted)).unwrap_err();
    assert!(other.contains("the image was not imported from that file"), "{other}");
}

#[test]
fn an_export_resumes_behind_the_durable_part_unless_the_image_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (source, back) = (folder.path().join("a"), folder.path().join("b"));
    sparse(&source, 900 * MIB, &[0, 300 * MIB, 600 * MIB, 800 * MIB]);
    imported(&transfer("memory://out/vm", &source)).unwrap();
    let wanted = transfer("memory://out/vm", &back);
    let nothing = exported(&again(&wanted)).unwrap_err();
    assert!(nothing.contains("no interrupted export of this state"), "{nothing}");
    // Make the file that an export leaves if it is interrupted when it has reached 700 MiB.
    let url: StoreUrl = "memory://out/vm".parse().unwrap();
    let state = View::open(&url, &StoreOptions::default()).unwrap().state();
    let left = folder.path().join(format!("b.{state}.part"));
    fs::copy(&source, &left).unwrap();
    let file = OpenOptions::new().write(true).open(&left).unwrap();
    file.set_len(700 * MIB).unwrap();
    file.write_all_at(&[7; 5000], 600 * MIB).unwrap();
    let twice = exported(&wanted).unwrap_err();
    assert!(twice.contains("add --resume"), "{twice}");
    let copied = exported(&again(&wanted)).unwrap();
    assert_eq!(copied.written_bytes, 3 * 3 * 4096, "all but the first run");
    assert!(same(&source, &back) && part(folder.path()).is_none());
    // After a write to the image, an export does not resume the file of the earlier state.
    fs::rename(&back, &left).unwrap();
    let image = StoredImage::open(&url, &StoreOptions::default()).unwrap();
    write(&image, 0, vec![3; 4096]);
    let nothing = exported(&again(&wanted)).unwrap_err();
    assert!(nothing.contains("no interrupted export of this state"), "{nothing}");
}

#[test]
fn a_write_to_the_image_during_an_export_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (source, back) = (folder.path().join("a"), folder.path().join("b"));
    sparse(&source, 2 * MIB, &[0]);
    imported(&transfer("memory://moving/vm", &source)).unwrap();
    let url: StoreUrl = "memory://moving/vm".parse().unwrap();
    let serving = StoredImage::open(&url, &StoreOptions::default()).unwrap();
    let engine = Nowait::new().unwrap();
    let copied = export(&engine, &transfer("memory://moving/vm", &back), &mut |_, _| {
        write(&serving, MIB, vec![1; 4096]);
    });
    let error = copied.unwrap_err().to_string();
    assert!(error.contains("written to during the copy") && !back.exists(), "{error}");
    assert!(part(folder.path()).is_some());
}

#[test]
fn an_encrypted_image_is_filled_and_copied_with_its_key_only() {
    let folder = tempfile::tempdir().unwrap();
    let (source, back) = (folder.path().join("a"), folder.path().join("b"));
    sparse(&source, 2 * MIB, &[0, MIB]);
    let with = |byte: u8, other: &Path| {
        let store = StoreOptions {
            key: (byte > 0).then(|| ImageKey::new([byte; 32])),
            ..StoreOptions::default()
        };
        Transfer { store, ..transfer("memory://locked/vm", other) }
    };
    let copied = imported(&with(1, &source)).unwrap();
    for (byte, why) in [(2, "with another key"), (0, "give --key-file")] {
        let said = exported(&with(byte, &back)).unwrap_err();
        assert!(said.contains(why), "{said}");
        let said = imported(&again(&with(byte, &source))).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
    let none = Copied { written_bytes: 0, ..copied };
    assert_eq!(imported(&again(&with(1, &source))).unwrap(), none, "all is there");
    assert_eq!(exported(&with(1, &back)).unwrap(), copied);
    assert!(same(&source, &back));
}

#[test]
fn no_request_exceeds_the_limit_of_the_server() {
    let limits = ["blocksize-minimum=512", "blocksize-preferred=4096", "blocksize-maximum=524288"];
    let policy = [&limits[..], &["blocksize-error-policy=error"]].concat();
    let Some(server) = support::nbdkit("blocksize-policy", &policy) else { return };
    let (file, half) = (server.file(), support::SIZE / 2);
    let data: Vec<u8> = (0..half + 4096).map(|at| (at % 251) as u8 + 1).collect();
    file.write_all_at(&data, 0).unwrap();
    let before = server.contents();
    let address = format!("nbd+unix:///vm?socket={}", server.socket().display());
    let transfer = transfer("memory://limits/vm", Path::new(&address));
    assert_eq!(imported(&transfer).unwrap().written_bytes, half + 4096);
    // Fill the file, so that the export has to zero it. The export writes zeroes where the server
    // refuses a request to zero.
    file.write_all_at(&vec![0xff; support::SIZE as usize], 0).unwrap();
    assert_eq!(exported(&transfer).unwrap().written_bytes, half + 4096);
    assert!(server.contents() == before);
}

fn reads(log: &str) -> usize {
    log.lines().filter(|line| line.contains(" Read ") && line.contains("offset=")).count()
}

#[test]
fn an_import_does_not_read_the_holes_of_a_server() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let logged = format!("logfile={}", log.path().display());
    let words = ["-f", "-e", "vm", "--filter=log", "file", "{image}", &logged];
    let Some(server) = support::Server::start("nbdkit", &words, 64 * MIB) else { return };
    for at in [0, 40 * MIB + 5000] {
        server.file().write_all_at(&[1; 5000], at).unwrap();
    }
    let address = format!("nbd+unix:///vm?socket={}", server.socket().display());
    let copied = imported(&transfer("memory://holes/vm", Path::new(&address))).unwrap();
    assert_eq!(copied.size_bytes, 64 * MIB);
    assert!((10_000..30_000).contains(&copied.written_bytes), "{copied:?}");
    let log = fs::read_to_string(log.path()).unwrap();
    assert!((2..=4).contains(&reads(&log)), "{log}");
}
