//! `nowait serve` prints names with control characters as harmless text.

mod support;

use support::{nowait_serve, outcome};

const RED: &str = "\x1b[31mred\r\nnowait: all is well";

fn is_shown(text: &str) -> bool {
    text.lines().count() == 1 && !text.trim_end_matches('\n').contains(char::is_control)
}

fn serve(image: &str) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = nowait_serve(&["serve", image, "--nbd"]);
    command.arg(format!("unix:{}", folder.path().join("nbd").display()));
    outcome(&mut command)
}

#[test]
fn the_name_of_an_image_is_escaped_in_an_error() {
    let (code, _, err) = serve(&format!("/nope/{RED}"));
    assert_eq!(code, 1);
    assert!(is_shown(&err), "{err:?}");
    assert!(err.contains("\\u{1b}[31mred\\r\\nnowait: all is well"), "{err:?}");
}
