//! Any bytes as the beginning of a `.npy` file: a header or an error. A header that is read agrees
//! with itself, and bytes after it do not matter.

use farcall_npy::{Header, MOST_HEADER};

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok(header) = Header::read(data) else {
        return;
    };
    assert!(header.offset <= data.len().min(MOST_HEADER) as u64);
    let size = u64::from(header.element.size().expect("elements have a size"));
    let count = header.bytes / size;
    assert_eq!(count * size, header.bytes);
    assert!(header.shape.len() <= 32);
    if !header.shape.contains(&0) {
        assert_eq!(header.shape.iter().product::<u64>(), count);
    }
    // Bytes after the header do not matter.
    let again = Header::read(&data[..header.offset as usize]);
    assert_eq!(again, Ok(header));
}
