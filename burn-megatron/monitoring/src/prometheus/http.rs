//! What is understood of HTTP/1.1: a request line that is answered, after headers that are not read.

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The metrics; with `HEAD`, without a body.
    Metrics {
        /// Whether the body is wanted.
        has_body: bool,
    },
    /// A page that is not there.
    NotFound {
        /// Whether the body is wanted.
        has_body: bool,
    },
    /// A method that none has.
    OtherMethod,
    /// No HTTP.
    Garbage,
}

/// Returns whether the bytes hold a request's headers to their end.
pub(super) fn is_complete(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|end| end == b"\r\n\r\n") || bytes.windows(2).any(|end| end == b"\n\n")
}

/// Reads the request line.
pub(super) fn parse(bytes: &[u8]) -> Request {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let Ok(line) = str::from_utf8(line) else {
        return Request::Garbage;
    };
    let mut parts = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Request::Garbage;
    };
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_method || !version.starts_with("HTTP/1.") || target.is_empty() {
        return Request::Garbage;
    }
    let path = target.split('?').next().unwrap_or_default();
    let has_body = method == "GET";
    match (method, path) {
        ("GET" | "HEAD", "/metrics") => Request::Metrics { has_body },
        ("GET" | "HEAD", _) => Request::NotFound { has_body },
        _ => Request::OtherMethod,
    }
}

/// Returns a response that ends the connection.
pub(super) fn response(status: &str, content_type: &str, body: &str, has_body: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    if has_body {
        response.push_str(body);
    }
    response.into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn request_lines_are_understood() {
        let metrics = Request::Metrics { has_body: true };
        for (line, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", metrics),
            ("GET /metrics?name=x HTTP/1.0\n\n", metrics),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", Request::Metrics { has_body: false }),
            ("GET / HTTP/1.1\r\n\r\n", Request::NotFound { has_body: true }),
            ("HEAD /metricsx HTTP/1.1\r\n\r\n", Request::NotFound { has_body: false }),
            ("POST /metrics HTTP/1.1\r\n\r\n", Request::OtherMethod),
            ("GET /metrics HTTP/2\r\n\r\n", Request::Garbage),
            ("GET  /metrics HTTP/1.1\r\n\r\n", Request::Garbage),
            ("GET /metrics\r\n\r\n", Request::Garbage),
            ("get /metrics HTTP/1.1\r\n\r\n", Request::Garbage),
            ("\r\n\r\n", Request::Garbage),
        ] {
            assert_eq!(parse(line.as_bytes()), expected, "{line:?}");
            assert!(is_complete(line.as_bytes()));
            assert!(!is_complete(&line.as_bytes()[..line.len() - 1]), "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (parse(&bytes), is_complete(&bytes));
        }
    }
}
