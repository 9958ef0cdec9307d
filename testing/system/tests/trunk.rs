//! Trunks between network namespaces, with ordinary programs. Needs root and `/dev/net/tun`; prints
//! SKIPPED without them.

use farcall_lab::{Direction, Lab, Shape, TrunkProcess};
use farcall_system::trunk::{flow, key_file, lab, status, trunks};
use farcall_system::{BOUND, farcall, farcall_path, wait_until};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn ordinary_programs_work_and_the_end_is_clean() {
    let Some(lab) = lab(7, Some(Shape::FAST_ETHERNET)) else {
        return;
    };
    let mut trunks = trunks(&lab, &[]);
    for client in 1..4 {
        let address = lab.trunk_address(0).to_string();
        lab.output(
            client,
            "ping",
            &["-c", "3", "-i", "0.01", "-w", "5", &address],
        )
        .unwrap();
        // Fragments and the largest frames.
        lab.output(
            client,
            "ping",
            &["-c", "2", "-i", "0.01", "-w", "5", "-s", "8000", &address],
        )
        .unwrap();
    }
    flow(&lab, 2).stop().unwrap();
    let status = status(&lab, 0);
    let peer = &status["peers"][0];
    assert_eq!(status["policy"], "max-min");
    for field in ["state", "rate", "grant", "lost", "resent"] {
        assert!(!peer["links"][0][field].is_null(), "{field} in {status}");
    }
    let metrics = lab
        .output(0, farcall_path(), &["trunk", "status", "--prometheus"])
        .unwrap();
    assert!(metrics.contains("farcall_trunk_link_up{"), "{metrics}");
    let table = lab.output(0, farcall_path(), &["trunk", "status"]).unwrap();
    assert!(table.contains("granted"), "{table}");
    assert!(trunks[0].stop());
    assert!(lab.output(0, "ip", &["link", "show", "fc0"]).is_err());
    // The next trunk of this name can start at once. timeout(1) ends it.
    let next = "\"$0\" trunk down && timeout 1 \"$0\" trunk up --link link0; test $? = 124";
    lab.output(1, "sh", &["-c", next, farcall_path()]).unwrap();
    assert!(lab.output(1, "ip", &["link", "show", "fc0"]).is_err());
}

#[test]
fn peers_come_and_go_and_the_mtu_follows_the_smallest_link() {
    let Some(lab) = lab(1, Some(Shape::FAST_ETHERNET)) else {
        return;
    };
    lab.output(1, "ip", &["link", "set", "link1", "mtu", "1400"])
        .unwrap();
    let mut trunks = trunks(&lab, &[]);
    let mtu = |host| lab.output(host, "ip", &["link", "show", "fc0"]).unwrap();
    wait_until("the MTU of both", || {
        (0..2).all(|host| mtu(host).contains(" mtu 1388 "))
    });
    let peers = || status(&lab, 1)["peers"].as_array().map_or(0, Vec::len);
    let usable = || {
        status(&lab, 1)["peers"][0]["links"]
            .to_string()
            .matches("\"up\"")
            .count()
    };
    for gently in [true, false] {
        let server = trunks.remove(0);
        if gently {
            drop(server);
            wait_until("the goodbye", || peers() == 0);
        } else {
            let pid = rustix::process::Pid::from_raw(server.id().cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            drop(server);
        }
        trunks.insert(
            0,
            TrunkProcess::start(&lab, 0, Path::new(farcall_path()), &[]).unwrap(),
        );
        wait_until("the links", || peers() == 1 && usable() == 2);
        flow(&lab, 1).stop().unwrap();
    }
    let events = status(&lab, 1)["events"].to_string();
    assert!(
        events.contains("has ended") && events.contains("lost"),
        "{events}"
    );
}

#[test]
fn a_trunk_has_all_addresses_that_it_was_given() {
    let Some(lab) = lab(0, None) else {
        return;
    };
    let given = ["10.9.0.1/24", "10.9.0.2/24", "10.10.0.1/30", "10.11.0.1/32"];
    let given = [&given[..], &["fd09::1/64", "fd0a::1/48"]].concat();
    let options: Vec<&str> = given.iter().flat_map(|one| ["--address", one]).collect();
    let _trunk = TrunkProcess::start(&lab, 0, Path::new(farcall_path()), &options).unwrap();
    let shown = lab.output(0, "ip", &["addr", "show", "fc0"]).unwrap();
    for one in given {
        assert!(shown.contains(&format!(" {one} ")), "{one} in {shown}");
    }
    let own = format!(" {}/24 ", lab.trunk_address(0));
    assert!(shown.contains(&own), "{shown}");
    assert!(shown.contains(" brd 10.10.0.3 "), "{shown}");
}

#[test]
fn addresses_of_ipv6_come_back_with_the_mtu() {
    let Some(lab) = lab(0, None) else {
        return;
    };
    let ip = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        lab.output(0, "ip", &words).unwrap()
    };
    let address = ["--address", "fd09::1/64"];
    let start = || TrunkProcess::start(&lab, 0, Path::new(farcall_path()), &address);
    let trunk = start().unwrap();
    let has = |mtu: u16| {
        let shown = ip("addr show fc0");
        shown.contains(&format!(" mtu {mtu} ")) && shown.contains(" fd09::1/64 ") == (mtu >= 1280)
    };
    wait_until("the address", || has(1460));
    for mtu in [1000, 1500] {
        ip(&format!("link set link0 mtu {mtu}"));
        wait_until("the MTU and its addresses", || has(mtu - 40));
    }
    drop(trunk);
    ip("link set link0 mtu 1000");
    let Err(refused) = start() else {
        panic!("it has no IPv6");
    };
    let refused = refused.to_string();
    assert!(
        refused.contains("because that of link `link0` is small"),
        "{refused}"
    );
}

#[test]
fn an_interface_that_is_made_anew_or_changed_is_used_again() {
    let Some(lab) = lab(0, None) else {
        return;
    };
    let ip = |host, arguments: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        lab.output(host, "ip", &arguments).unwrap()
    };
    let join = || {
        let other = lab.host(1);
        ip(
            0,
            &format!("link add extra type veth peer name extra netns {other}"),
        );
        (0..2).for_each(|host| drop(ip(host, "link set extra up")));
    };
    join();
    let key = key_file();
    let key = key.path().to_str().unwrap();
    let _trunks = trunks(&lab, &["--link", "extra", "--key-file", key]);
    let usable = |host| {
        let links = status(&lab, host)["peers"][0]["links"].to_string();
        links.matches("\"up\"").count()
    };
    wait_until("both links", || usable(0) == 2 && usable(1) == 2);
    ip(0, "link del extra");
    wait_until("the loss", || usable(0) == 1 && usable(1) == 1);
    join();
    wait_until("the link made anew", || usable(0) == 2 && usable(1) == 2);
    (0..2).for_each(|host| drop(ip(host, "link set extra mtu 1300")));
    wait_until("the MTU", || {
        (0..2).all(|host| ip(host, "link show fc0").contains(" mtu 1244 "))
    });
}

#[test]
fn speeds_that_no_interface_tells_are_learned() {
    let Some(lab) = lab(1, Some(Shape::FAST_ETHERNET_UNTOLD)) else {
        return;
    };
    let _trunks = trunks(&lab, &[]);
    let told = status(&lab, 0)["links"][0]["line_rate"].as_f64().unwrap();
    assert!(told > 1e9, "{told}");
    let flow = flow(&lab, 1);
    wait_until("the rates of both links", || {
        let status = status(&lab, 0);
        let links = status["peers"][0]["links"].as_array().unwrap();
        let near = |rate: f64| (85e6..110e6).contains(&rate);
        links
            .iter()
            .all(|link| near(link["capacity"].as_f64().unwrap()))
    });
    flow.stop().unwrap();
}

/// Sends numbered datagrams from one host, and returns those that arrive at another.
fn datagrams(lab: &Lab, from: usize, to: usize, address: Ipv4Addr, count: u32) -> Vec<u32> {
    let own = lab.trunk_address(to);
    let group = address.is_multicast();
    let (send_port, port) = std::sync::mpsc::channel();
    let receiver = lab.spawn(to, move || {
        // A socket with an address of its own receives no multicast.
        let bound = if address == own {
            own
        } else {
            Ipv4Addr::UNSPECIFIED
        };
        let socket = UdpSocket::bind((bound, 0))?;
        if group {
            socket.join_multicast_v4(&address, &own)?;
        }
        socket.set_read_timeout(Some(Duration::from_secs(3)))?;
        send_port.send(socket.local_addr()?.port()).unwrap();
        let mut numbers = Vec::new();
        let mut buffer = [0; 4];
        while numbers.len() < count as usize && socket.recv(&mut buffer).is_ok() {
            numbers.push(u32::from_be_bytes(buffer));
        }
        Ok(numbers)
    });
    let port = port.recv_timeout(Duration::from_secs(5)).unwrap();
    let source = lab.trunk_address(from);
    let sender = lab.spawn(from, move || {
        let socket = UdpSocket::bind((source, 0))?;
        socket.set_broadcast(true)?;
        for number in 0..count {
            socket.send_to(&number.to_be_bytes(), SocketAddr::from((address, port)))?;
        }
        Ok(())
    });
    sender.unwrap().join().unwrap().unwrap();
    receiver.unwrap().join().unwrap().unwrap()
}

#[test]
fn datagrams_multicast_and_broadcast_pass_in_order() {
    let Some(lab) = lab(3, Some(Shape::FAST_ETHERNET)) else {
        return;
    };
    let _trunks = trunks(&lab, &[]);
    for host in 0..3 {
        let routes = ["route", "add", "224.0.0.0/4", "dev", "fc0"];
        lab.output(host, "ip", &routes).unwrap();
    }
    // The kernel itself can change the order while it resolves the neighbour's address.
    let address = lab.trunk_address(0).to_string();
    lab.output(2, "ping", &["-c", "1", "-w", "5", &address])
        .unwrap();
    let all: Vec<u32> = (0..200).collect();
    assert_eq!(datagrams(&lab, 2, 0, lab.trunk_address(0), 200), all);
    for client in [1, 2] {
        let group = Ipv4Addr::new(239, 7, 7, 7);
        assert_eq!(datagrams(&lab, 0, client, group, 200), all);
        assert_eq!(
            datagrams(&lab, 0, client, Ipv4Addr::new(10, 77, 0, 255), 200),
            all
        );
    }
}

#[test]
fn a_silent_failure_is_bridged_and_repaired() {
    let Some(lab) = lab(1, Some(Shape::FAST_ETHERNET)) else {
        return;
    };
    let _trunks = trunks(&lab, &[]);
    let flow = flow(&lab, 1);
    let state = |host| status(&lab, host)["peers"][0]["links"][1]["state"].clone();
    for direction in [Direction::In, Direction::Out, Direction::Both] {
        lab.fail(1, 1, direction).unwrap();
        wait_until("the failure", || state(0) != "up" && state(1) != "up");
        let failed = flow.now();
        let more = || flow.bytes(failed, flow.now()) > 1 << 20;
        wait_until("data over the other link", more);
        lab.repair(1, 1, direction).unwrap();
        wait_until("the repair", || state(0) == "up" && state(1) == "up");
    }
    assert!(flow.is_alive());
    flow.stop().unwrap();
    let events = status(&lab, 0)["events"].to_string();
    assert!(events.contains("down: "), "{events}");
}

/// Bytes that follow from their offset (SplitMix64), so that each one can be checked.
fn pattern(chunk: u64) -> Vec<u8> {
    let word = |index: u64| {
        let z = (chunk * 8192 + index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (z ^ z >> 31)
            .wrapping_mul(0x94d0_49bb_1331_11eb)
            .to_be_bytes()
    };
    (0..8192).flat_map(word).collect()
}

fn transfer(lab: &Lab, chunks: u64) {
    let (send_port, port) = std::sync::mpsc::channel();
    let address = lab.trunk_address(0);
    let receiver = lab.spawn(0, move || {
        let listener = TcpListener::bind((address, 0))?;
        send_port.send(listener.local_addr()?.port()).unwrap();
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut buffer = vec![0; 65_536];
        for chunk in 0..chunks {
            stream.read_exact(&mut buffer)?;
            assert!(buffer == pattern(chunk), "chunk {chunk} is damaged");
        }
        Ok(())
    });
    let port = port.recv_timeout(Duration::from_secs(5)).unwrap();
    let sender = lab.spawn(1, move || {
        let mut stream = TcpStream::connect((address, port))?;
        (0..chunks).try_for_each(|chunk| stream.write_all(&pattern(chunk)))
    });
    sender.unwrap().join().unwrap().unwrap();
    receiver.unwrap().join().unwrap().unwrap();
}

#[test]
fn bytes_arrive_unchanged() {
    let bad = "link1:loss=1%,duplicate=1%,reorder=1%,delay=0.5ms,seed=3";
    // At full speed, in datagrams and in Ethernet frames; then over bad links.
    let Some(fast) = lab(1, None) else { return };
    let trunks = trunks(&fast, &[]);
    transfer(&fast, 800);
    drop(trunks);
    let _trunks = self::trunks(&fast, &["--fault", bad]);
    transfer(&fast, 100);
    let Some(slow) = lab(1, Some(Shape::FAST_ETHERNET)) else {
        return;
    };
    let _trunks = self::trunks(&slow, &["--fault", bad]);
    transfer(&slow, 100);
}

#[test]
fn every_policy_and_a_key_carry_a_connection() {
    let key = key_file();
    for policy in ["traffic", "link-count", "round-robin"] {
        let Some(lab) = lab(1, None) else { break };
        let file = key.path().to_string_lossy();
        let _trunks = trunks(
            &lab,
            &["--policy", policy, "--hbspan", "0.2", "--key-file", &file],
        );
        flow(&lab, 1).stop().unwrap();
        assert!(!status(&lab, 1)["peers"][0]["links"][0]["weight"].is_null());
    }
}

#[test]
fn strangers_without_the_key_stay_out() {
    let Some(lab) = lab(1, None) else { return };
    let key = key_file();
    let options = ["--key-file", &key.path().to_string_lossy()];
    let _with = TrunkProcess::start(&lab, 0, Path::new(farcall_path()), &options).unwrap();
    let _without = TrunkProcess::start(&lab, 1, Path::new(farcall_path()), &[]).unwrap();
    wait_until("the refusal", || {
        status(&lab, 0)["dropped"]["unauthentic"].as_u64() > Some(3)
    });
    assert_eq!(status(&lab, 0)["peers"].as_array().map(Vec::len), Some(0));
}

#[test]
fn what_is_missing_is_told() {
    let run = |arguments: &[&str]| {
        let output = farcall().args(["trunk"]).args(arguments).output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let (code, text) = run(&["up", "--link", "no-such-link"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("no interface `no-such-link`"), "{text}");
    let (code, text) = run(&["status", "--name", "nobody0"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("trunk up"), "{text}");
    let (code, text) = run(&["up", "--link", "fc%d"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("is not a name of an interface"), "{text}");
    assert_eq!(run(&["up"]).0, Some(2));
    assert_eq!(run(&["up", "--link", "eth0=fast"]).0, Some(2));
    let Some(lab) = lab(1, None) else { return };
    // Without rights: root keeps access to files, and drops the capabilities that a trunk needs.
    let rights = "-net_admin,-net_raw";
    let mut plain = vec!["--inh-caps", rights, "--bounding-set", rights];
    plain.extend([farcall_path(), "trunk", "up", "--link", "link0"]);
    let refused = lab.output(0, "setpriv", &plain).unwrap_err().to_string();
    assert!(refused.contains("run as root, or grant it"), "{refused}");
    assert!(
        refused.contains("setcap cap_net_admin,cap_net_raw+ep"),
        "{refused}"
    );
    // Without the device, which a mount hides from this one command.
    let hidden = "mount -t tmpfs none /dev/net && exec \"$0\" trunk up --link link0";
    let refused = lab.output(0, "sh", &["-c", hidden, farcall_path()]);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("/dev/net/tun is missing"), "{refused}");
    assert!(refused.contains("modprobe tun"), "{refused}");
    // Somebody removes the virtual interface.
    let removed = "{ until \"$0\" trunk status; do sleep 0.05; done; ip link del fc0; } >/dev/null \
                   2>&1 & exec \"$0\" trunk up --link link0";
    let ended = lab.output(0, "sh", &["-c", removed, farcall_path()]);
    let ended = ended.unwrap_err().to_string();
    assert!(
        ended.contains("the interface `fc0` was removed: start"),
        "{ended}"
    );
}

/// The answer of a server on a host to a request for a page.
fn get(lab: &Lab, host: usize, address: SocketAddr, page: &'static str) -> String {
    let answer = lab.spawn(host, move || {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "GET {page} HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    });
    answer.unwrap().join().unwrap().unwrap()
}

#[test]
fn operators_see_metrics_a_live_view_and_a_log() {
    let Some(lab) = lab(1, None) else { return };
    let bound = lab.spawn(0, || TcpListener::bind("127.0.0.1:0")?.local_addr());
    let address = bound.unwrap().join().unwrap().unwrap();
    let log = std::env::temp_dir().join(format!("farcall-trunk-log-{}", std::process::id()));
    let mut command = lab.command(0, farcall_path());
    command.args(["trunk", "up", "--link", "link0", "--link", "link1"]);
    command.args(["--metrics", &address.to_string()]);
    let mut server = command
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let _client = TrunkProcess::start(&lab, 1, Path::new(farcall_path()), &[]).unwrap();
    let ask = || {
        lab.output(0, farcall_path(), &["trunk", "status", "--prometheus"])
            .unwrap_or_default()
    };
    let up = |link: &str| {
        ask().lines().any(|line| {
            let series = line.starts_with("farcall_trunk_link_up{trunk=\"fc0\"");
            series && line.contains(&format!("link=\"{link}\"")) && line.ends_with("} 1")
        })
    };
    wait_until("the links", || up("link0") && up("link1"));
    let page = get(&lab, 0, address, "/metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(
        page.contains("# TYPE farcall_trunk_link_failures counter"),
        "{page}"
    );
    assert!(get(&lab, 0, address, "/").starts_with("HTTP/1.1 404"));

    let mut view = lab.command(0, farcall_path());
    view.args(["trunk", "status", "--watch"])
        .stdout(std::process::Stdio::piped());
    let mut view = view.spawn().unwrap();
    lab.fail(1, 1, Direction::Both).unwrap();
    let mut shown = String::new();
    let mut screen = view.stdout.take().unwrap();
    // The live view is drawn again until it shows the failure.
    let end = Instant::now() + BOUND;
    while !(shown.contains("down") && shown.contains("link1 to")) {
        let mut bytes = [0; 4096];
        let got = screen.read(&mut bytes).unwrap();
        assert!(got > 0 && Instant::now() < end, "{shown}");
        shown += &String::from_utf8_lossy(&bytes[..got]);
    }
    view.kill().unwrap();
    view.wait().unwrap();
    lab.repair(1, 1, Direction::Both).unwrap();
    wait_until("the repair", || up("link1"));
    lab.output(0, farcall_path(), &["trunk", "down"]).unwrap();
    assert!(server.wait().unwrap().success());
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(log).unwrap();
    let down = text
        .find("link link1 to")
        .and_then(|at| text[at..].find("down: "));
    assert!(
        down.is_some() && text.matches("link link1 to").count() >= 3,
        "{text}"
    );
}
