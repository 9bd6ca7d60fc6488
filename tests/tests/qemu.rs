//! QEMU's native AIO returns the same results and writes the same image with nowait and without.

use std::fs::File;
use std::path::PathBuf;
use std::sync::OnceLock;

use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::Subject;
use nowait_tests::{for_each_subject, qemu};

for_each_subject!(qemu_io_reads_the_patterns_it_wrote, patterns, [libaio, preload]);
for_each_subject!(qemu_img_bench_runs_to_its_end, bench, [libaio, preload]);

fn patterns(subject: Subject) {
    let Some(()) = skip::unless(skip::missing_program(&["qemu-io"])) else { return };
    let (text, bytes) = run(subject);
    let (expected_text, expected_bytes) = reference();
    assert!(!expected_text.contains("failed"), "{expected_text}");
    // Requests in flight together may end in any order.
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(sorted(&text), sorted(expected_text));
    assert!(&bytes == expected_bytes, "the images differ");
}

fn reference() -> &'static (String, Vec<u8>) {
    static REFERENCE: OnceLock<(String, Vec<u8>)> = OnceLock::new();
    REFERENCE.get_or_init(|| run(Subject::SYSTEM))
}

fn run(subject: Subject) -> (String, Vec<u8>) {
    let scratch = Scratch::new("qemu-io");
    let image = sparse_image(&scratch);
    let output = qemu::arguments(subject.launch("qemu-io"), &image).succeed();
    subject.assert_served(&output);
    let bytes = std::fs::read(&image).expect("the image");
    (qemu::without_times(&output.stdout), bytes)
}

fn bench(subject: Subject) {
    let Some(()) = skip::unless(skip::missing_program(&["qemu-img"])) else { return };
    let scratch = Scratch::new("qemu-img");
    let image = sparse_image(&scratch);
    let writes = ["-w", "--pattern=90", "-S", "4096"];
    let flushed = ["-w", "--flush-interval=64", "-s", "65536"];
    for extra in [&writes[..], &[], &flushed[..]] {
        let output = subject
            .launch("qemu-img")
            .args(["bench", "-f", "raw", "-t", "none", "-n", "-i", "native"])
            .args(["-c", "2000", "-d", "32"])
            .args(extra)
            .arg(&image)
            .succeed();
        assert!(output.stdout.contains("Run completed"), "{output}");
        subject.assert_served(&output);
    }
}

fn sparse_image(scratch: &Scratch) -> PathBuf {
    let image = scratch.file("image");
    let file = File::create(&image).expect("an image");
    file.set_len(qemu::IMAGE_BYTES).expect("its size");
    image
}
