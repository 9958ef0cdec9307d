//! Tests with the example of RFC 7677, and with exchanges that must fail. A wrong secret, a replay,
//! a relay and a server without the verifier are all found out.

use crate::{Binding, Client, Exchange, Expected, First, Salted, ScramError, Verifier, decode};
use alloc::string::{String, ToString};

const SALT: &[u8] = b"some salt";

fn derive(secret: &str) -> impl FnOnce(&[u8], u32) -> Salted {
    move |salt, iterations| Salted::new(secret, salt, iterations)
}

#[test]
fn the_example_of_rfc_7677_is_reproduced() {
    let (client, first) = Client::with_nonce("user", "rOprNGfwEbeRWgbNEkqO".into(), false);
    assert_eq!(first, "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
    let first = First::parse(&first).unwrap();
    assert_eq!(first.name(), "user");
    let salt = decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let verifier = Verifier::new("pencil", &salt);
    let nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let (exchange, challenge) = first.challenge_with(verifier, nonce, None).unwrap();
    assert_eq!(
        challenge,
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    );
    let (expected, proof) = client.answer(&challenge, None, derive("pencil")).unwrap();
    assert_eq!(
        proof,
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
         p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    );
    let signature = exchange.check(&proof).unwrap();
    assert_eq!(signature, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    assert_eq!(expected.check(&signature), Ok(()));
}

/// An exchange up to the proof.
fn exchange(
    (client, server): (&str, &str),
    bindings: [Option<&Binding>; 2],
    nonce: u8,
) -> Result<(Exchange, Expected, String), ScramError> {
    let (asks, first) = Client::new("a", &[nonce; 16], bindings[0].is_some());
    let verifier = Verifier::new(server, SALT);
    let first = First::parse(&first)?;
    let (exchange, challenge) = first.challenge(verifier, &[nonce; 16], bindings[1])?;
    let (expected, proof) = asks.answer(&challenge, bindings[0], derive(client))?;
    Ok((exchange, expected, proof))
}

#[test]
fn a_wrong_secret_a_replay_and_a_relay_fail() {
    let (server, expected, proof) = exchange(("x", "x"), [None; 2], 1).unwrap();
    let signature = server.check(&proof).unwrap();
    assert_eq!(expected.check(&signature), Ok(()));

    let (wrong, _, guess) = exchange(("y", "x"), [None; 2], 1).unwrap();
    assert_eq!(wrong.check(&guess), Err(ScramError::WrongSecret));

    let (next, others, _) = exchange(("x", "x"), [None; 2], 2).unwrap();
    assert_eq!(next.check(&proof), Err(ScramError::Replayed));
    assert_eq!(others.check(&signature), Err(ScramError::WrongServer));

    let [one, two] = [[1; 32], [2; 32]];
    let (bound, _, proof) = exchange(("x", "x"), [Some(&one); 2], 1).unwrap();
    assert!(bound.check(&proof).is_ok());
    let (relayed, _, proof) = exchange(("x", "x"), [Some(&one), Some(&two)], 1).unwrap();
    assert_eq!(relayed.check(&proof), Err(ScramError::Relayed));
    for ends in [[Some(&one), None], [None, Some(&one)]] {
        let failed = exchange(("x", "x"), ends, 1).map(drop);
        assert_eq!(failed, Err(ScramError::Relayed));
    }
}

#[test]
fn a_server_without_the_verifier_is_found_out() {
    let (client, first) = Client::new("a", &[1; 16], false);
    let verifier = Verifier::new("guess", SALT);
    let first = First::parse(&first).unwrap();
    let (_, challenge) = first.challenge(verifier, &[1; 16], None).unwrap();
    let (expected, _) = client.answer(&challenge, None, derive("x")).unwrap();
    let forged = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
    assert_eq!(expected.check(forged), Err(ScramError::WrongServer));
    assert_eq!(expected.check(""), Err(ScramError::Malformed));
    assert_eq!(expected.check("e=unknown-user"), Err(ScramError::Malformed));
    for bad in ["i=1", "i=4095", "i=100001", "i=x", "i=-1", ""] {
        let (start, _) = challenge.rsplit_once("i=").unwrap();
        let cheap = start.to_string() + bad;
        assert!(client.answer(&cheap, None, derive("x")).is_err(), "{bad}");
    }
}

#[test]
fn a_verifier_is_read_as_it_is_written() {
    let verifier = Verifier::new("secret", SALT);
    let text = verifier.to_string();
    assert_eq!(text.parse(), Ok(verifier));
    for bad in [
        "",
        "SCRAM-SHA-256",
        "SCRAM-SHA-256$4096:$:",
        &text[..text.len() - 1],
    ] {
        assert!(bad.parse::<Verifier>().is_err(), "{bad}");
    }
    assert!(text.replace("4096", "1").parse::<Verifier>().is_err());
}

#[test]
fn malformed_messages_are_refused() {
    let long = String::from("n,,n=a,r=") + &"x".repeat(2000);
    for bad in [
        "",
        "n,,",
        "y,,n=a,r=b",
        "n,,n=,r=b",
        "n,,n=a",
        "n,a=b,n=a,r=b",
        "n,,n=a,r=b,x=y",
    ] {
        assert_eq!(First::parse(bad), Err(ScramError::Malformed), "{bad}");
    }
    assert_eq!(First::parse(&long), Err(ScramError::Malformed));
    let (server, _, proof) = exchange(("x", "x"), [None; 2], 1).unwrap();
    for end in 0..proof.len() {
        assert!(server.check(&proof[..end]).is_err());
    }
}
