//! The subset of HTTP/1.1 that curl and Prometheus need.

use super::metrics;
use nowait_status::Status;

const QUESTION_BYTES_MAX: usize = 8192;

/// Returns `true` if a request is complete, or is too long to be valid.
pub(super) fn is_whole(question: &[u8]) -> bool {
    question.windows(4).any(|end| end == b"\r\n\r\n") || question.len() > QUESTION_BYTES_MAX
}

pub(super) fn answer(question: &[u8], status: impl Fn() -> Status) -> Vec<u8> {
    let text = String::from_utf8_lossy(question);
    let mut words = text.split_whitespace();
    let (verb, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (code, kind, body) = match (verb, path.split('?').next().unwrap_or_default()) {
        ("GET", "/metrics") => ("200 OK", "text/plain; version=0.0.4", metrics(&status())),
        ("GET", "/status" | "/") => {
            let json = serde_json::to_string(&status()).unwrap_or_default();
            ("200 OK", "application/json", json)
        }
        ("GET", _) => ("404 Not Found", "text/plain", "see /status and /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_in_json_or_refused() {
        let ask = |question: &str| {
            assert!(is_whole(question.as_bytes()), "{question}");
            String::from_utf8(answer(question.as_bytes(), Status::default)).unwrap()
        };
        assert!(ask("GET /status HTTP/1.1\r\n\r\n").contains("\"exports\":[]"));
        assert!(ask("GET /metrics?a HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        assert!(ask("GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("PUT /status HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert!(ask(&"x".repeat(QUESTION_BYTES_MAX + 1)).starts_with("HTTP/1.1 405"));
        assert!(!is_whole(b"GET /status HTTP/1.1\r\n"));
    }
}
