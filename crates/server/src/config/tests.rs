//! What configuration files mean, and which are refused. The commented file in `docs` states the
//! defaults.

use super::*;

#[test]
fn the_commented_file_states_the_defaults() {
    let text = include_str!("../../../../docs/farcall.toml");
    let mut config = Config::parse(text).unwrap();
    // The default depends on the machine, so the example file cannot state it.
    config.workers.memory = Workers::default().memory;
    let expected = Config {
        listen: config.listen.clone(),
        ..Config::default()
    };
    assert_eq!(config, expected);
}

#[test]
fn the_commented_source_is_one_with_the_defaults() {
    let text = include_str!("../../../../docs/farcall.toml");
    let (_, example) = text.split_once("# [sources.weather]").unwrap();
    let lines = example.lines().map(|line| line.trim_start_matches("# "));
    let settings: Vec<&str> = lines.filter(|line| line.contains(" = ")).collect();
    let text = format!("[sources.weather]\n{}", settings.join("\n"));
    let known = Config::parse(&text).unwrap().sources.remove("weather");
    let known = known.unwrap();
    let least = format!("[sources.weather]\naddress = \"{}\"", known.address);
    let least = Config::parse(&least).unwrap().sources.remove("weather");
    let least = least.unwrap();
    assert_eq!(known.max_bytes, least.max_bytes);
    assert_eq!(known.time_limit_s, least.time_limit_s);
    assert!(known.secrets().count() == 2 && least.networks.is_empty());
    assert!(Config::parse("[sources.weather]\naddres = \"\"").is_err());
}

#[test]
fn a_source_whose_credentials_are_missing_is_told_at_the_start() {
    let text = "[sources.weather]\naddress = \"https://a/\"\npassword_file = \"/nowhere/word\"";
    let known = Config::parse(text).unwrap().sources.remove("weather");
    let error = known.unwrap().check().unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/word: "), "{error}");
}

#[test]
fn unknown_names_are_errors() {
    assert!(Config::parse("lissten = []").is_err());
    assert!(Config::parse("[workers]\ncount = -1").is_err());
    assert!(Config::parse("[queue]\npolicy = \"sjf\"").is_ok());
    // Those of GridRPC clients can be in the same file.
    assert!(Config::parse("[client]\nserver = \"node7\"").is_ok());
    let error = Config::parse("[queue]\npolicy = \"lifo\"").unwrap_err();
    assert!(error.contains("fmpfs"), "{error}");
}

#[test]
fn a_mistake_is_told_with_its_line_and_what_can_be_there() {
    for (text, told) in [
        (
            "# limits\n[limits]\n  objects = -1 # none",
            "line 3, `objects = -1 # none`: invalid value: integer `-1`, expected a whole number \
             of 0 or more",
        ),
        (
            "listen = \"127.0.0.1:0\"",
            "line 1, `listen = \"127.0.0.1:0\"`: invalid type: string \"127.0.0.1:0\", expected a \
             list, such as [\"one\", \"two\"]",
        ),
        (
            "metrics = \"localhost:9717\"",
            "line 1, `metrics = \"localhost:9717\"`: expected an IP address and a port, such as \
             127.0.0.1:3717",
        ),
        (
            "[data]\npeers = [\"10.1.2.3\"]",
            "line 2, `peers = [\"10.1.2.3\"]`: expected a network, such as 10.1.0.0/16, or \
             10.1.2.3/32 for one host",
        ),
    ] {
        assert_eq!(Config::parse(text).unwrap_err(), told);
    }
    let error = Config::parse("[workers]\n\ncuont = 1").unwrap_err();
    let begin = "line 3, `cuont = 1`: unknown field `cuont`, expected one of `count`, ";
    assert!(error.starts_with(begin) && !error.contains('\n'), "{error}");
}

#[test]
fn lengths_of_time_are_not_negative_and_results_are_kept() {
    let read = |section: &str, name: &str, value: &str| {
        Config::parse(&format!("[{section}]\n{name} = {value}"))
    };
    for (section, name) in [
        ("limits", "idle_s"),
        ("limits", "callback_s"),
        ("limits", "stalled_s"),
        ("limits", "reserve_share"),
        ("queue", "patience_s"),
        ("workers", "time_limit_s"),
    ] {
        assert!(read(section, name, "0").is_ok(), "{name}");
        for value in ["-1", "-0.5", "nan"] {
            let error = read(section, name, value).unwrap_err();
            assert!(
                error.contains("write a number that is 0 or more"),
                "{error}"
            );
        }
    }
    for (section, name) in [
        ("limits", "greeting_s"),
        ("jobs", "keep_h"),
        ("jobs", "longest_h"),
        ("data", "keep_h"),
    ] {
        assert!(read(section, name, "0.5").is_ok(), "{name}");
        for value in ["0", "-1", "nan"] {
            let error = read(section, name, value).unwrap_err();
            assert!(
                error.contains("write a number that is more than 0"),
                "{error}"
            );
        }
    }
}

#[test]
fn values_that_make_no_sense_are_refused() {
    for (section, setting, says) in [
        ("limits", "connections = 0", "limits.connections"),
        ("limits", "reserve_share = 1.5", "limits.reserve_share"),
        ("jobs", "keep_h = 48\nlongest_h = 24", "jobs.keep_h"),
        ("jobs", "keep_h = 721", "jobs.longest_h"),
        (
            "access",
            "operators = [\"olga\", \"two words\"]",
            "access.operators",
        ),
        ("access", "operators = [\"uid:olga\"]", "`uid:olga`"),
        ("access", "operators = [\"anonymous\"]", "`anonymous`"),
        ("workers", "memory = 512", "workers.memory"),
        ("workers", "environment = [\"A=B\"]", "workers.environment"),
        (
            "sources.weather",
            "address = \"ftp://data.example.org/\"",
            "sources.weather.address",
        ),
        ("sources.weather", "address = \"data.example.org\"", "s3:"),
    ] {
        let error = Config::parse(&format!("[{section}]\n{setting}")).unwrap_err();
        assert!(error.contains(says), "{setting}: {error}");
    }
    for (section, setting) in [
        ("limits", "reserve_share = 1"),
        ("jobs", "longest_h = 24"),
        ("jobs", "keep_h = 24\nlongest_h = 24"),
        (
            "access",
            "operators = [\"uid:0\", \"olga@lab\", \"node-1.example.org\"]",
        ),
        ("sources.weather", "address = \"S3://data/\""),
        ("workers", "memory = 0"),
        ("workers", "memory = \"512 KB\""),
        ("workers", "memory = 64000000"),
    ] {
        Config::parse(&format!("[{section}]\n{setting}")).unwrap();
    }
}

#[test]
fn priorities_of_unknown_functions_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.idl");
    std::fs::write(
        &path,
        "Module m;\nLibrary \"libc.so.6\";\nDefine f(IN int n) Calls \"C\" abs(n);",
    )
    .unwrap();
    let catalog = crate::Catalog::load_with(&[path], &[]).unwrap();
    let config = Config::parse("[queue.priorities]\n\"m/f\" = 1\n\"f\" = 1\n\"m/g\" = -1").unwrap();
    assert_eq!(crate::unserved(&config, &catalog), ["f", "m/g"]);
}

#[test]
fn bytes_may_have_a_unit() {
    let memory = |value: &str| {
        let config = Config::parse(&format!("[limits]\nmemory = {value}"));
        config.map(|config| config.limits.memory)
    };
    for value in ["6000000", "6e6", "\"6MB\"", "\"6000 KB\""] {
        assert_eq!(memory(value).unwrap(), 6_000_000, "{value}");
    }
    for (value, text) in [
        ("-1", "`-1` is not a number of bytes"),
        ("0.5", "`0.5` is not a number of bytes"),
        ("\"6MB/s\"", "`6MB/s` is not a size: write 65536, 64KB"),
        ("\"10ms\"", "`10ms` is not a size"),
        ("true", "expected a number, or a text with a unit"),
    ] {
        let error = memory(value).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
}

/// Why a server with these settings does not start.
fn refusal(config: Config) -> String {
    let command = (PathBuf::from("/bin/false"), Vec::new());
    let started = crate::Server::bind(config, crate::Catalog::default(), command);
    started.map(drop).unwrap_err().to_string()
}

#[test]
fn no_secret_lies_where_users_read_or_functions_write() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    std::fs::create_dir_all(at("data/runs")).unwrap();
    std::fs::create_dir_all(at("state/arrays")).unwrap();
    std::fs::write(at("data/runs/tokens"), "").unwrap();
    std::os::unix::fs::symlink(at("data"), at("link")).unwrap();
    let with = |set: &dyn Fn(&mut Config)| {
        let mut config = Config {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            state: Some(at("state")),
            ..Config::default()
        };
        set(&mut config);
        config
    };
    for folder in ["data", "link", "data/runs"] {
        let config = with(&|config| {
            config.data.folder = Some(at(folder));
            config.access.tokens = Some(at("data/runs/tokens"));
        });
        let error = refusal(config);
        assert!(
            error.contains("data.folder") && error.contains("runs/tokens"),
            "{error}"
        );
    }
    for folder in ["state", "state/arrays", "."] {
        let config = with(&|config| config.workers.write = vec![at(folder)]);
        assert!(refusal(config.clone()).contains("workers.write"));
        let mut open = config;
        open.workers.sandbox = false;
        assert!(open.check_folders().is_ok());
    }
    let apart = with(&|config| {
        config.data.folder = Some(at("data"));
        config.workers.write = vec![at("data/runs")];
    });
    assert!(apart.check_folders().is_ok());
}

#[test]
fn folders_that_functions_cannot_reach_are_noticed() {
    let root = tempfile::tempdir().unwrap();
    let (here, none) = (root.path().to_path_buf(), root.path().join("none"));
    let mut config = Config::default();
    config.workers.read = vec![here.clone(), none.clone()];
    config.workers.write = vec![none.clone(), here];
    let none = none.as_path();
    assert_eq!(config.missing_folders(), [("read", none), ("write", none)]);
    config.workers.sandbox = false;
    assert!(config.missing_folders().is_empty());
}

#[test]
fn gpus_are_those_that_cuda_would_see() {
    let names = |wanted, visible, found| gpus(wanted, visible, found).unwrap().join(" ");
    assert_eq!(names(None, None, 0), "");
    assert_eq!(names(None, None, 2), "0 1");
    assert_eq!(names(Some(1), None, 2), "0");
    assert_eq!(
        names(Some(3), None, 0),
        "0 1 2",
        "the device files may be elsewhere"
    );
    assert_eq!(names(None, Some("2, GPU-8a"), 8), "2 GPU-8a");
    assert_eq!(names(Some(1), Some("2,3"), 8), "2");
    assert_eq!(names(None, Some(""), 8), "");
    assert_eq!(names(None, Some("-1"), 8), "");
    assert_eq!(names(None, Some("2,-1,3"), 8), "2");
    let error = gpus(Some(3), Some("2,3"), 8).unwrap_err().to_string();
    assert!(
        error.starts_with("3 GPUs are wanted, and there are 2"),
        "{error}"
    );
    assert!(gpus(Some(65), None, 65).is_err());
}

#[test]
fn processor_elements_follow_from_workers_and_threads() {
    let settings = |text: &str| {
        let config = Config::parse(text).unwrap();
        let settings = config.queue.settings(&config.workers);
        (settings.pes, settings.most_running)
    };
    let cores = std::thread::available_parallelism().unwrap().get() as u32;
    assert_eq!(settings(""), (cores, usize::MAX));
    assert_eq!(settings("[workers]\ncount = 3\nthreads = 2"), (6, 3));
    assert_eq!(settings("[queue]\npes = 5\n[workers]\ncount = 3"), (5, 3));
    let at_once = "[queue]\npolicy = \"at-once\"\npes = 4";
    assert_eq!(settings(at_once), (4, MOST_AT_ONCE));
}

#[test]
fn each_server_numbers_its_reservations_from_another_number_of_six_digits() {
    let drawn = || {
        let settings = Config::default().settings(false, 0).unwrap();
        settings.queue.first_booking
    };
    let drawn: Vec<u64> = (0..4).map(|_| drawn()).collect();
    let range = 100_000..1_000_000;
    assert!(drawn.iter().all(|first| range.contains(first)), "{drawn:?}");
    assert!(drawn.iter().any(|first| *first != drawn[0]), "{drawn:?}");
}
