//! Any texts as the messages of a proof, one a line. Each is accepted as a whole or refused, and no
//! guessed proof or signature is accepted.

use farcall_scram::{Client, First, Salted, Secret, Verifier};
use std::sync::LazyLock;

/// Derived once, because that takes a millisecond.
static SALTED: LazyLock<Salted> = LazyLock::new(|| Salted::new("secret", b"salt", 4096));
static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| Verifier::new("secret", b"salt"));

/// The body of the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let name = Secret::of_token("token").name;
    for line in text.lines() {
        if let Ok(verifier) = line.parse::<Verifier>() {
            assert_eq!(verifier.to_string().parse(), Ok(verifier));
        }
        if let Ok(first) = First::parse(line) {
            assert!(line.contains(first.name()));
            for binding in [None, Some(&[3; 32])] {
                let made = first.clone().challenge(VERIFIER.clone(), &[1; 18], binding);
                let Ok((exchange, challenge)) = made else {
                    continue;
                };
                assert!(challenge.len() <= 1024);
                for proof in text.lines() {
                    assert!(exchange.check(proof).is_err(), "nobody guesses a proof");
                }
            }
        }
        let (client, _) = Client::new(&name, &[2; 18], false);
        // The nonce is known here, so that challenges can be right.
        if let Ok((expected, proof)) = client.answer(line, None, |_, _| *SALTED) {
            assert!(proof.starts_with("c=biws,r="));
            for signature in text.lines() {
                assert!(
                    expected.check(signature).is_err(),
                    "nobody guesses a signature"
                );
            }
        }
    }
}
