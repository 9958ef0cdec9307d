//! Trunks between network namespaces under attack: forged frames on the wire, another host with the
//! same address, a second trunk on a link. Needs root and `/dev/net/tun`; prints SKIPPED without
//! them.

use farcall_lab::{Flow, Lab, Shape, TrunkProcess};
use farcall_system::trunk::{flow, key_file, lab, status, trunks};
use farcall_system::{farcall_path, wait_until, wait_until_ok};
use farcall_trunk_device::{Form, Interface, LinkDevice, PacketSocket, now};
use farcall_trunk_proto::{Kind, Mac, Shim, Transmit};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Waits until a flow has carried more bytes than what can be on its way.
fn assert_goes_on(flow: &Flow) {
    let from = flow.now();
    wait_until("more data", || flow.bytes(from, flow.now()) > 4 << 20);
    assert!(flow.is_alive());
}

/// The newest data frame that arrives on `link0` of a host, and its destination.
fn sniff(lab: &Lab, host: usize) -> (Shim, Mac) {
    let found = lab.spawn(host, || {
        let interface = Interface::open("link0").map_err(io::Error::other)?;
        let mut socket = PacketSocket::open(&interface, Form::Ethernet)?;
        let own = interface.address().map_err(io::Error::other)?;
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let mut newest = None;
            socket.receive(now(), &mut |frame| {
                let shim = Shim::decode(&frame.payload);
                newest = shim
                    .ok()
                    .filter(|shim| shim.kind != Kind::Control)
                    .or(newest);
            })?;
            match newest {
                Some(shim) => return Ok((shim, own)),
                None if Instant::now() > end => return Err(io::ErrorKind::TimedOut.into()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    });
    found.unwrap().join().unwrap().unwrap()
}

/// Sends frames from `link0` of a host, beside its trunk and from the same address.
fn send(lab: &Lab, host: usize, destination: Mac, headers: Vec<Shim>) {
    let sent = lab.spawn(host, move || {
        let interface = Interface::open("link0").map_err(io::Error::other)?;
        let mut socket = PacketSocket::open(&interface, Form::Ethernet)?;
        let frame = |header: &Shim| Transmit {
            link: 0,
            destination,
            header: header.encode(),
            body: vec![0; 60].into(),
        };
        let mut frames: Vec<Transmit> = headers.iter().map(frame).collect();
        let end = Instant::now() + Duration::from_secs(10);
        while !socket.send(now(), &mut frames)? {
            if Instant::now() > end {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    });
    sent.unwrap().join().unwrap().unwrap();
}

#[test]
fn forged_frames_from_a_links_address_end_no_connection() {
    let key = key_file();
    let path = key.path().to_string_lossy().into_owned();
    for options in [&[][..], &["--key-file", &path]] {
        let Some(lab) = lab(1, Some(Shape::FAST_ETHERNET)) else {
            return;
        };
        let _trunks = trunks(&lab, options);
        let flow = flow(&lab, 1);
        let peer = || status(&lab, 0)["peers"][0].clone();
        assert_eq!(peer()["encrypted"], !options.is_empty());
        let (genuine, destination) = sniff(&lab, 0);
        // Six frames with the next numbers and one far ahead.
        let forged = [1, 2, 3, 4, 5, 6, 500_000].map(|ahead: u32| Shim {
            number: genuine.number.wrapping_add(ahead),
            link_number: genuine.link_number.wrapping_add(ahead.min(7)),
            ..genuine
        });
        let before = status(&lab, 0)["dropped"]["unauthentic"].as_u64();
        send(&lab, 1, destination, forged.to_vec());
        match options.is_empty() {
            true => wait_until("the refusal", || peer()["refused"].as_u64() > Some(0)),
            false => wait_until("the refusal", || {
                status(&lab, 0)["dropped"]["unauthentic"].as_u64() >= before.map(|n| n + 7)
            }),
        }
        assert_goes_on(&flow);
        flow.stop().unwrap();
        let events = status(&lab, 0)["events"].to_string();
        let reported = events.contains("did not send the numbers");
        assert_eq!(reported, options.is_empty(), "{events}");
    }
}

#[test]
fn another_host_with_the_address_of_a_link_ends_no_peering() {
    // Host 2 takes the address of the link of host 1 while it runs its own trunk.
    let Some(lab) = lab(3, Some(Shape::FAST_ETHERNET)) else {
        return;
    };
    let farcall = Path::new(farcall_path());
    let _trunks = [0, 1].map(|host| TrunkProcess::start(&lab, host, farcall, &[]).unwrap());
    let links = || status(&lab, 0)["peers"][0]["links"].to_string();
    wait_until("the link", || links().contains("\"up\""));
    let flow = flow(&lab, 1);
    let address = lab
        .output(1, "cat", &["/sys/class/net/link0/address"])
        .unwrap();
    let set = ["link", "set", "link0", "address", address.trim()];
    lab.output(2, "ip", &set).unwrap();
    let other = TrunkProcess::start(&lab, 2, farcall, &[]).unwrap();
    wait_until_ok("the report of the conflict", || {
        let status = status(&lab, 0);
        let events = status["events"].to_string();
        let is_told = events.contains("address conflict on link link0");
        match is_told && !status["conflicts"].is_null() {
            true => Ok(()),
            false => Err(status),
        }
    });
    let table = lab.output(0, farcall_path(), &["trunk", "status"]).unwrap();
    assert!(table.contains("address conflict"), "{table}");
    drop(other);
    lab.output(2, "ip", &["link", "set", "link0", "down"])
        .unwrap();
    assert_goes_on(&flow);
    flow.stop().unwrap();
}

#[test]
fn a_second_trunk_on_a_link_is_refused() {
    let Some(lab) = lab(1, Some(Shape::FAST_ETHERNET)) else {
        return;
    };
    let trunks = trunks(&lab, &[]);
    let flow = flow(&lab, 1);
    let up = ["trunk", "up", "--name", "fc1", "--link", "link1"];
    let refused = lab.output(0, farcall_path(), &up).unwrap_err().to_string();
    assert!(
        refused.contains("link `link1` already belongs to the trunk `fc0`"),
        "{refused}"
    );
    // Under another name of the interface too.
    let set = [
        "link", "property", "add", "dev", "link1", "altname", "second",
    ];
    lab.output(0, "ip", &set).unwrap();
    let up = ["trunk", "up", "--name", "fc1", "--link", "second"];
    let refused = lab.output(0, farcall_path(), &up).unwrap_err().to_string();
    assert!(
        refused.contains("link `second` already belongs to"),
        "{refused}"
    );
    assert_goes_on(&flow);
    flow.stop().unwrap();
    // The link is free when its trunk has ended.
    drop(trunks);
    let mut again = lab.command(0, farcall_path());
    again.args(["trunk", "up", "--name", "fc1", "--link", "link1"]);
    again.stdout(std::process::Stdio::null());
    let mut again = again.spawn().unwrap();
    wait_until("the second trunk", || {
        let up = ["trunk", "status", "--name", "fc1"];
        lab.output(0, farcall_path(), &up).is_ok()
    });
    let down = ["trunk", "down", "--name", "fc1"];
    lab.output(0, farcall_path(), &down).unwrap();
    assert!(again.wait().unwrap().success());
}

#[test]
fn a_node_that_cannot_join_is_explained() {
    let Some(lab) = lab(1, Some(Shape::FAST_ETHERNET)) else {
        return;
    };
    let key = key_file();
    let options = ["--key-file", &key.path().to_string_lossy()];
    let farcall = Path::new(farcall_path());
    let _with = TrunkProcess::start(&lab, 0, farcall, &options).unwrap();
    let _without = TrunkProcess::start(&lab, 1, farcall, &[]).unwrap();
    for (host, reason) in [
        (0, "it has no key"),
        (1, "it has a key and this node has none"),
    ] {
        wait_until(reason, || {
            status(&lab, host)["events"].to_string().contains(reason)
        });
        assert_eq!(status(&lab, host)["peers"], serde_json::json!([]));
    }
}
