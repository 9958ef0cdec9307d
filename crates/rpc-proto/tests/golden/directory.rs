//! Golden cases of conversations with a metaserver: a server joins and reports, and a client asks
//! where a call should go. The records in the answers come from a real directory.

use super::cases::{Answer, Case, Request, case};
use farcall_directory::message::{
    Booked, Choose, Chosen, DataFound, DataListed, Datum, Find, FindData, Found, Function, Hold,
    Join, Leave, ListData, ListedDatum, Message, Need, Noted, Observe, Offer, Phase, QueuedCall,
    Rate, Report, TimeParts, Times, Transfer,
};
use farcall_directory::{Directory, Record, Settings, Viewer, digest};
use farcall_rpc_proto::{DIRECTORY, Hello, Kind, NAMES, TRACES};

const NAME: &str = "lapack/dgesv";
const SITE: &str = "192.0.2.9";

/// Named data behind a metaserver.
pub(crate) fn data() -> Case {
    let about = "A server tells a metaserver which named data it holds; a client asks who holds\n\
                 data of a name and where there is room, has a call placed that reads them, and\n\
                 lists what there is. Bit 18 of the features says that both sides know named\n\
                 data.";
    let (join, report) = (join(), report());
    let datum = atoms();
    let hold = Hold {
        server: join.server,
        anew: true,
        held: vec![datum.clone()],
        gone: Vec::new(),
    };
    let (user, sees_all) = ("bob", false);
    let viewer = Viewer { user, sees_all };
    let find = FindData {
        name: datum.name.clone(),
        owner: None,
        room: Some(8000),
    };
    let now = 1.7e9;
    let mut directory = Directory::new(Settings::default());
    directory.join(now, join.clone()).unwrap();
    directory.report(now, report).unwrap();
    directory.hold(now, hold.clone()).unwrap();
    let found: DataFound = directory.find_data(now, viewer, &find);
    let list = ListData { after: None };
    let listed = DataListed {
        data: vec![ListedDatum {
            datum: datum.clone(),
            holders: vec![join.address.clone()],
        }],
        next: None,
    };
    assert_eq!(directory.list_data(now, viewer, None), listed);
    let need = Need {
        number: datum.number(),
        bytes: datum.bytes,
    };
    let wanted = Choose {
        data: Some(vec![need]),
        ..wanted()
    };
    let (ask, answer) = (Request::Directory, Answer::Directory);
    let exchanges = vec![
        (
            ask(Kind::Hold, hold.to_bytes()),
            answer(Kind::Noted, Noted { lease_s: 10.0 }.to_bytes()),
        ),
        (
            ask(Kind::FindData, find.to_bytes()),
            answer(Kind::DataFound, found.to_bytes()),
        ),
        (
            ask(Kind::Choose, wanted.to_bytes()),
            answer(Kind::Chosen, chosen(&join).to_bytes()),
        ),
        (
            ask(Kind::ListData, list.to_bytes()),
            answer(Kind::DataListed, listed.to_bytes()),
        ),
    ];
    let mut hello = Hello::new("golden client");
    hello.features = DIRECTORY | NAMES;
    Case {
        hello,
        ..case("metaserver-data", about, exchanges)
    }
}

/// The placement of a call that belongs to a trace.
pub(crate) fn traced() -> Case {
    let about = "A client has a call placed that belongs to a trace. Bit 23 of the features says\n\
                 that both sides know traces.";
    let context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0b8902b7-01";
    let wanted = Choose {
        trace: context.parse().ok(),
        ..wanted()
    };
    let exchanges = vec![(
        Request::Directory(Kind::Choose, wanted.to_bytes()),
        Answer::Directory(Kind::Chosen, chosen(&join()).to_bytes()),
    )];
    let mut hello = Hello::new("golden client");
    hello.features = DIRECTORY | TRACES;
    Case {
        hello,
        ..case("metaserver-trace", about, exchanges)
    }
}

fn atoms() -> Datum {
    Datum {
        name: "runs/atoms".into(),
        owner: "alice".into(),
        written: 1_700_000_000_000,
        stamp: 7,
        number: 2,
        shared: true,
        element: "double".into(),
        shape: vec![1000, 3],
        bytes: 24_000,
    }
}

pub(crate) fn directory() -> Case {
    let about = "A server joins a metaserver and reports; a client says what became of a call,\n\
                 which nothing answers, finds a function and has a call placed; the server\n\
                 leaves. Bit 17 of the features says that there is a metaserver.";
    let (join, report) = (join(), report());
    let server = join.server;
    let noted = || Answer::Directory(Kind::Noted, Noted { lease_s: 10.0 }.to_bytes());
    let ask = Request::Directory;
    let records = known(&join, &report);
    let function = NAME.to_string();
    let found = Found { function, records };
    let find = Find {
        function: "dgesv".into(),
    };
    let exchanges = vec![
        (ask(Kind::Join, join.to_bytes()), noted()),
        (ask(Kind::Report, report.to_bytes()), noted()),
        (
            Request::ObserveAndFind(observed(server).to_bytes(), find.to_bytes()),
            Answer::Directory(Kind::Found, found.to_bytes()),
        ),
        (
            ask(Kind::Choose, wanted().to_bytes()),
            Answer::Directory(Kind::Chosen, chosen(&join).to_bytes()),
        ),
        (ask(Kind::Leave, Leave { server }.to_bytes()), noted()),
    ];
    let mut hello = Hello::new("golden client");
    hello.features = DIRECTORY;
    Case {
        hello,
        ..case("metaserver", about, exchanges)
    }
}

fn join() -> Join {
    Join {
        server: 0x1122_3344_5566_7788,
        address: "farcall://192.0.2.7:3717".into(),
        agent: "farcall 0.1.0".into(),
        pes: 8,
        memory: 1 << 34,
        functions: vec![Function {
            name: NAME.into(),
            title: "Solves a system of linear equations".into(),
            digest: digest("Define dgesv"),
            repeatable: true,
            library: None,
        }],
    }
}

fn report() -> Report {
    let rate = Rate {
        pes: 1,
        octave: 20,
        mean: -20.5,
        variance: 0.25,
        calls: 9,
    };
    let call = QueuedCall {
        phase: Phase::Running,
        pes: 2,
        seconds: 1.5,
        up: 0,
        down: 8000,
        reserved: Some(true),
    };
    let booked = Booked {
        pes: 4,
        from_s: 0.0,
        until_s: 60.0,
    };
    Report {
        server: join().server,
        accepts: true,
        memory: 1 << 33,
        calls: 1,
        queued: vec![call],
        learned: vec![Times {
            function: NAME.into(),
            rates: vec![rate],
        }],
        booked: Some(vec![booked]),
    }
}

/// What a directory tells of a server that has joined.
fn known(join: &Join, report: &Report) -> Vec<Record> {
    let mut directory = Directory::new(Settings::default());
    let now = 1.7e9;
    directory.join(now, join.clone()).unwrap();
    directory.report(now, report.clone()).unwrap();
    directory.observe(now, SITE, &observed(join.server));
    let (_, mut records) = directory.find(now, SITE, "dgesv").unwrap();
    for record in &mut records {
        if let Record::Path(path) = record {
            // Logarithms differ from machine to machine in their last bits.
            path.up.rates = vec![16e6];
            path.down.rates = vec![32e6];
        }
    }
    records
}

fn wanted() -> Choose {
    Choose {
        function: NAME.into(),
        digest: digest("Define dgesv"),
        work: 1e9,
        up: 8_008_000,
        down: 8_012_000,
        memory: 8_020_000,
        fewest: None,
        most: Some(4),
        exclude: vec![7],
        explain: false,
        data: None,
        trace: None,
    }
}

fn chosen(join: &Join) -> Chosen {
    let terms = TimeParts {
        up_s: 0.5,
        wait_s: 0.25,
        compute_s: 1.0,
        down_s: 0.75,
        pes: 4,
        factor: 1.5,
        learned: true,
        others_s: 0.125,
    };
    let offer = Offer {
        server: join.server,
        address: join.address.clone(),
        terms: Some(terms),
        refusal: None,
    };
    Chosen {
        placement: 9,
        offers: vec![offer],
    }
}

fn observed(server: u64) -> Observe {
    let transfer = |bytes, seconds| Some(Transfer { bytes, seconds });
    Observe {
        server,
        placement: 9,
        up: transfer(8_008_000, 0.5),
        down: transfer(8_012_000, 0.25),
        lost: false,
    }
}
