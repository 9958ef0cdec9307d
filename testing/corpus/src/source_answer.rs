//! Any bytes from the connector that reads sources. There is no panic, and what is accepted is
//! bounded. The same bytes as an address of a client give a name of data.

use farcall_rpc_proto::check_name;
use farcall_server_proto::source::{
    Answer, MOST_MESSAGE, SourceFound, SourceRequest, answer, length,
};

/// The body of the target.
pub fn run(data: &[u8]) {
    if let Some((head, rest)) = data.split_first_chunk()
        && let Ok(length) = length(*head)
    {
        assert!(length <= MOST_MESSAGE);
        told(rest.get(..length).unwrap_or(rest));
    }
    told(data);
}

fn told(data: &[u8]) {
    match answer(data) {
        Ok(Answer::Found(SourceFound::Array { form, version })) => {
            assert!(form.bytes().is_ok());
            assert!(version.is_none_or(|version| version.len() <= 256));
        }
        Ok(Answer::Written(written)) => {
            assert_eq!(written.sha256.len(), 64);
            let version = written.version.unwrap_or_default();
            assert!(version.chars().count() <= 256 && !version.chars().any(char::is_control));
        }
        Ok(Answer::Found(SourceFound::Unchanged) | Answer::Done | Answer::Ready) => {}
        Err(failure) => {
            assert!(failure.message.chars().count() <= 2000);
            assert!(!failure.message.chars().any(char::is_control));
        }
    }
    // An address of a client, whose array gets a name.
    let wanted = SourceRequest {
        address: String::from_utf8_lossy(data).into_owned(),
        form: farcall_rpc_proto::ArrayForm {
            element: String::new(),
            shape: Vec::new(),
            column_major: false,
        },
        source: farcall_rpc_proto::SourceOptions::default(),
        version: None,
    };
    assert_eq!(check_name(&wanted.name()), Ok(()));
    if wanted.check().is_ok() {
        assert!(wanted.message().len() <= MOST_MESSAGE);
        assert!(wanted.message_to_write().len() <= MOST_MESSAGE);
    }
}
