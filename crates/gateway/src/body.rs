//! The body of a request: it is read within the bounds of the gateway, or passed over. And that of
//! an answer, which leaves piece by piece. What the bytes mean is for others.

use crate::failure::Failure;
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use futures_util::StreamExt;
use futures_util::stream::unfold;
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// Longest time until a request has its body.
pub(crate) const SENDING: Duration = Duration::from_secs(60);
/// Longest time for which the body of a refused request is read.
const PASSING: Duration = Duration::from_secs(10);
/// Most bytes of the body of a refused request that are read.
const MOST_PASSED: usize = 256_000_000;
/// Bytes of a piece of an answer.
const PIECE: usize = 64 << 10;

/// Reads a body of at most so many bytes.
///
/// # Errors
/// It is larger, or ends early, or does not come in time.
pub(crate) async fn receive(
    most: u64,
    headers: &HeaderMap,
    mut body: BodyDataStream,
) -> Result<Vec<u8>, Failure> {
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let whole = match length {
        Some(length) if length > most => Ok(None),
        _ => timeout(SENDING, read(most, &mut body)).await,
    };
    match whole {
        Ok(Some(read)) => read,
        Ok(None) => {
            pass_over(headers, &mut body).await;
            let text = format!(
                "the request is larger than {most} bytes, which this gateway allows; use a client \
                 of Farcall"
            );
            Err(Failure::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "TooLarge",
                text,
            ))
        }
        Err(_) => {
            let seconds = SENDING.as_secs();
            let text = format!("the body did not arrive within {seconds} s");
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "Stalled", text))
        }
    }
}

/// All bytes; `None` if there are more than `most`.
async fn read(most: u64, body: &mut BodyDataStream) -> Option<Result<Vec<u8>, Failure>> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.next().await {
        match piece {
            Ok(piece) if (bytes.len() + piece.len()) as u64 > most => return None,
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(error) => {
                let text = format!("the body ended early: {error}");
                return Some(Err(Failure::bad(text)));
            }
        }
    }
    Some(Ok(bytes))
}

/// Reads the rest of the body of a refused request, and keeps nothing of it. Many programs read no
/// answer before they have sent all, and would see a broken connection instead. One that waits for
/// leave to send gets the answer at once.
pub(crate) async fn pass_over(headers: &HeaderMap, body: &mut BodyDataStream) {
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let mut left = MOST_PASSED;
    let read = async {
        while left > 0
            && let Some(Ok(piece)) = body.next().await
        {
            left = left.saturating_sub(piece.len());
        }
    };
    let _ = timeout(PASSING, read).await;
}

/// The body of an answer. It drops `kept` when its last piece has left, or when nobody reads it any
/// more.
pub(crate) fn in_pieces(bytes: Vec<u8>, kept: impl Send + 'static) -> Body {
    let pieces = unfold((Bytes::from(bytes), kept), async |(mut left, kept)| {
        let piece = left.split_to(left.len().min(PIECE));
        (!piece.is_empty()).then(|| (io::Result::Ok(piece), (left, kept)))
    });
    Body::from_stream(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use futures_util::stream::iter;
    use std::future::Future;
    use std::sync::Arc;

    fn run<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(future)
    }

    fn sent(pieces: usize) -> BodyDataStream {
        let pieces = (0..pieces).map(|_| io::Result::Ok("12345"));
        Body::from_stream(iter(pieces)).into_data_stream()
    }

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_body_is_read_within_its_bound() {
        let none = HeaderMap::new();
        let read = |pieces, headers: &HeaderMap| run(receive(10, headers, sent(pieces)));
        assert_eq!(read(2, &none).unwrap(), b"1234512345");
        assert_eq!(read(0, &none).unwrap(), b"");
        let announced = headers(header::CONTENT_LENGTH, "11");
        for (pieces, headers) in [(3, &none), (0, &announced)] {
            let error = format!("{:?}", read(pieces, headers).unwrap_err());
            assert!(error.contains("larger than 10 bytes"), "{error}");
        }
        let broken = [Ok("1"), Err(io::Error::other("gone"))];
        let broken = Body::from_stream(iter(broken)).into_data_stream();
        let error = format!("{:?}", run(receive(10, &none, broken)).unwrap_err());
        assert!(error.contains("the body ended early: gone"), "{error}");
    }

    #[test]
    fn what_is_kept_for_an_answer_goes_with_its_last_piece() {
        let kept = Arc::new(());
        let bytes = vec![b'x'; PIECE + 1];
        let mut body = in_pieces(bytes.clone(), Arc::clone(&kept)).into_data_stream();
        for (length, holders) in [(Some(PIECE), 2), (Some(1), 2), (None, 1)] {
            let piece = run(body.next()).map(|piece| piece.unwrap().len());
            assert_eq!((piece, Arc::strong_count(&kept)), (length, holders));
        }
        drop(in_pieces(bytes, Arc::clone(&kept)));
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    #[test]
    fn a_refused_body_is_read_to_its_end_unless_its_sender_waits() {
        let waits = headers(header::EXPECT, "100-continue");
        for (headers, left) in [(HeaderMap::new(), 0), (waits, 3)] {
            let mut body = sent(3);
            run(pass_over(&headers, &mut body));
            assert_eq!(run(body.count()), left);
        }
    }
}
