//! `nowait image` and `nowait serve` with key files on a store in a folder, and without settings
//! that other stores need.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::{nowait_serve, outcome};
use tempfile::TempDir;

const SECRET: &[u8] = b"a secret";

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir_in("/var/tmp").unwrap())
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn url(&self, image: &str) -> String {
        format!("file://{}/{image}", self.file("store"))
    }

    fn key(&self, name: &str, content: &[u8]) -> String {
        let path = self.file(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

fn image(words: &[&str]) -> String {
    let (code, out, err) = outcome(nowait_serve(&["image"]).args(words));
    assert_eq!((code, err.as_str()), (0, ""), "{words:?}");
    out
}

fn refused(words: &[&str]) -> String {
    refused_with(words, &[])
}

fn refused_with(words: &[&str], variables: &[(&str, &str)]) -> String {
    let mut program = nowait_serve(words);
    let (code, out, err) = outcome(program.env("NO_COLOR", "1").envs(variables.iter().copied()));
    assert_eq!((code, out.as_str(), err.lines().count()), (1, "", 1), "{words:?}: {err}");
    err
}

fn has_secret(path: &Path) -> bool {
    if path.is_dir() {
        return fs::read_dir(path).unwrap().any(|entry| has_secret(&entry.unwrap().path()));
    }
    fs::read(path).unwrap().windows(SECRET.len()).any(|it| it == SECRET)
}

#[test]
fn an_encrypted_image_is_made_filled_checked_and_copied() {
    let place = Place::new();
    let store = place.file("store");
    fs::create_dir(&store).unwrap();
    let key = place.key("vm.key", &[7; 32]);
    let digits = place.key("digits", format!("{}\n", "07".repeat(32)).as_bytes());
    let (source, back, url) = (place.file("source"), place.file("back"), place.url("vm"));
    fs::write(&source, SECRET.repeat(100_000 / 8 * 8)).unwrap();
    image(&["import", &url, &source, "--key-file", &key]);
    assert!(!has_secret(Path::new(&store)));
    let info: serde_json::Value = serde_json::from_str(&image(&["info", &url, "--json"])).unwrap();
    assert_eq!(info["is_encrypted"], true);
    assert!(image(&["info", &url]).contains("encrypted   with a key file"));
    image(&["snapshot", &format!("{url}@monday")]);
    image(&["clone", &format!("{url}@monday"), &place.url("clone")]);
    for of in [&url, &place.url("clone")] {
        assert!(image(&["check", of]).contains("all of it is there, by its checksums"));
        assert!(image(&["check", of, "--key-file", &digits]).contains("can be read"));
    }
    image(&["import", &url, &source, "--resume", "--key-file", &key]);
    image(&["export", &place.url("clone"), &back, "--key-file", &digits]);
    let [there, copied] = [source, back].map(|path| fs::read(path).unwrap());
    assert!(copied[..there.len()] == there);
    let made = image(&["create", &place.url("new"), "--size", "1M", "--key-file", &key]);
    assert!(made.ends_with(": 1 MiB, encrypted\n"), "{made}");
    assert!(!image(&["create", &place.url("plain"), "--size", "1M"]).contains("encrypted"));
    assert!(!image(&["info", &place.url("plain")]).contains("encrypted"));
}

#[test]
fn a_key_file_that_does_not_fit_is_reported_in_one_line() {
    let place = Place::new();
    fs::create_dir(place.file("store")).unwrap();
    let (key, wrong) = (place.key("vm.key", &[7; 32]), place.key("wrong", &[8; 32]));
    let (url, plain, disk) = (place.url("vm"), place.url("plain"), place.file("disk"));
    image(&["create", &url, "--size", "1M", "--key-file", &key]);
    image(&["create", &plain, "--size", "1M"]);
    fs::write(&disk, [0; 4096]).unwrap();
    let head = place.file("store/vm/head");
    let before = fs::read(&head).unwrap();
    let nbd = format!("unix:{}", place.file("socket"));
    let serve =
        |image: &str, words: &[&str]| refused(&[&["serve", image, "--nbd", &nbd], words].concat());
    let said = serve(&url, &["--key-file", &wrong]);
    assert!(
        said.contains("the image is encrypted with another key: give that one with --key-file"),
        "{said}"
    );
    let said = serve(&format!("{url},key-file={wrong}"), &["--key-file", &key]);
    assert!(
        said.contains("the image is encrypted with another key: give that one with --key-file"),
        "{said}"
    );
    let said = serve(&url, &["--read-only"]);
    assert!(said.contains("the image is encrypted: give --key-file"), "{said}");
    let said = serve(&plain, &["--key-file", &key]);
    assert!(said.contains("the image is not encrypted: leave out --key-file"), "{said}");
    let said = serve(&disk, &["--key-file", &key]);
    assert!(said.contains("--key-file works with object stores only"), "{said}");
    assert!(fs::read(&head).unwrap() == before, "the image was not taken over");
    let said = refused(&["image", "check", &url, "--key-file", &wrong]);
    assert!(
        said.contains("the image is encrypted with another key: give that one with --key-file"),
        "{said}"
    );
    let said = refused(&["image", "export", &url, &place.file("back")]);
    assert!(said.contains("the image is encrypted: give --key-file"), "{said}");
    let short = place.key("short", b"secret");
    let said = refused(&["image", "create", &place.url("b"), "--size", "1M", "--key-file", &short]);
    assert!(said.contains("expected exactly 32 random bytes"), "{said}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    for words in [
        &["image", "create", &place.url("b"), "--size", "1M", "--key-file", &key][..],
        &["serve", &url, "--nbd", &nbd, "--key-file", &key],
    ] {
        let said = refused(words);
        assert!(said.contains("mode 644 lets others read the key: chmod 600"), "{said}");
    }
    assert!(!Path::new(&place.file("store/b")).exists());
}

#[test]
fn missing_settings_for_google_or_azure_are_named_in_one_line() {
    let list = |url| ["image", "ls", url];
    let said = refused(&list("az://disks"));
    assert!(said.contains("set AZURE_STORAGE_ACCOUNT_NAME"), "{said}");
    let account = ("AZURE_STORAGE_ACCOUNT_NAME", "disks");
    let said = refused_with(&list("az://disks"), &[account, ("AZURE_STORAGE_ACCOUNT_KEY", "%")]);
    assert!(said.contains("Invalid Access Key"), "{said}");
    let emulator = ("AZURE_STORAGE_USE_EMULATOR", "1");
    let elsewhere = [&list("az://disks")[..], &["--endpoint", "http://127.0.0.1:1"]].concat();
    let said = refused_with(&elsewhere, &[emulator]);
    assert!(said.contains("AZURITE_BLOB_STORAGE_URL"), "{said}");
    for variable in ["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"] {
        let said = refused_with(&list("gs://disks"), &[(variable, "/nowhere/key.json")]);
        assert!(said.contains("/nowhere/key.json"), "{said}");
    }
}
