//! Makes an image on an object store, serves it, and runs qemu-io on it.

use crate::program::{Output, Program};
use crate::scratch::Scratch;
use crate::server::{Server, tool};
use crate::skip;
use crate::stores::{Kind, Store};
use std::time::Duration;

/// The size of the image.
pub const SIZE: &str = "64M";
/// Time limit of a client program.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Starts a store, makes the empty image `vm` on it, and returns the store and its endpoint.
/// `None`: this run does not test nowait, or a program is missing, which is recorded as a skip.
pub fn made(kind: Kind) -> Option<(Store, String)> {
    skip::unless(skip::missing_program(&["curl", "qemu-io", "nbdcopy"]))?;
    tool()?;
    let store = skip::unless(Store::start(kind))?;
    let endpoint = store.own_endpoint();
    let output = image(&endpoint, &["create", &kind.url("vm"), "--size", SIZE]);
    assert!(output.status.success(), "{output}");
    Some((store, endpoint))
}

/// Runs `nowait image`.
pub fn image(endpoint: &str, words: &[&str]) -> Output {
    let tool = Store::credentials(tool().expect("asked before")).arg("image");
    tool.args(words).args(["--endpoint", endpoint]).run()
}

/// Runs `nowait image`, which must succeed, and returns its output.
pub fn done(endpoint: &str, words: &[&str]) -> String {
    let output = image(endpoint, words);
    succeeded(&output);
    output.stdout
}

/// Demands that a program succeeded, and that its output does not contain `failed`, by which
/// qemu-io reports a command that failed.
pub fn succeeded(output: &Output) {
    assert!(output.status.success() && !output.stdout.contains("failed"), "{output}");
}

/// Serves the image `vm` of an S3 store.
pub fn serve(scratch: &Scratch, endpoint: &str) -> Server {
    serve_with(scratch, endpoint, &[])
}

/// Serves the image `vm` of an S3 store with further options.
pub fn serve_with(scratch: &Scratch, endpoint: &str, words: &[&str]) -> Server {
    serve_of(scratch, endpoint, "vm", words)
}

/// Serves an image of an S3 store, or a snapshot of it, as the export `vm`.
pub fn serve_of(scratch: &Scratch, endpoint: &str, image: &str, words: &[&str]) -> Server {
    serve_url(scratch, endpoint, &Store::url(image), words)
}

/// Serves the image at a URL, on any kind of store, as the export `vm`.
pub fn serve_url(scratch: &Scratch, endpoint: &str, url: &str, words: &[&str]) -> Server {
    let name = format!("vm={url}");
    let words = [&[&name, "--endpoint", endpoint], words].concat();
    let mut server = Server::start(scratch, &words).expect("asked before");
    // The server listens before it has taken over the image.
    server.wait_until_it_says("serving vm");
    server
}

/// Runs commands of qemu-io on the export at `uri`. The caller checks the output.
pub fn qemu_io(uri: &str, commands: &[String]) -> Output {
    qemu_io_with(&[], uri, commands)
}

/// Runs commands like [`qemu_io`], with further options of qemu-io.
pub fn qemu_io_with(options: &[&str], uri: &str, commands: &[String]) -> Output {
    let words = commands.iter().flat_map(|command| ["-c", command.as_str()]);
    let qemu_io = Program::new("qemu-io").args(["-f", "raw"]).args(options).args(words);
    qemu_io.arg(uri).deadline(PATIENCE).run()
}

/// Returns the pattern of a block, which is never 0, the pattern of an unwritten block.
pub fn pattern(block: usize) -> usize {
    block % 254 + 1
}

/// Reads the first `blocks` blocks of 4 KiB, and demands that each has its [`pattern`].
pub fn verified(uri: &str, blocks: usize) {
    let reads = (0..blocks).map(|at| format!("read -P {} {}k 4k", pattern(at), at * 4));
    succeeded(&qemu_io(uri, &reads.collect::<Vec<_>>()));
}
