//! `pktgen run` that is steered over a socket and by scripts, on software NICs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PAIR: [&str; 2] = ["soft:a?wire=peer:b", "soft:b"];
const LIMIT: Duration = Duration::from_secs(60);

fn command(options: &[&str]) -> Command {
    command_of(PAIR, options)
}

fn command_of(ports: [&str; 2], options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
    command.arg("run").args(ports).args(["--warm-up", "0s", "--json", "--quiet"]).args(options);
    if !options.contains(&"--catch-up") {
        command.args(["--catch-up", "1s"]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A run with a socket in a folder of its own.
struct Steered {
    /// `None` once its end was waited for.
    child: Option<Child>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

/// A connection to it.
struct Client {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Steered {
    fn start(options: &[&str]) -> Self {
        Self::start_at(PAIR, options)
    }

    fn start_at(ports: [&str; 2], options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let child = command_of(ports, options).arg("--control").arg(&path).spawn().unwrap();
        Self { child: Some(child), path, _folder: folder }
    }

    fn child(&mut self) -> &mut Child {
        self.child.as_mut().unwrap()
    }

    /// Connects when there is a socket.
    fn connect(&mut self) -> Client {
        let begun = Instant::now();
        loop {
            match UnixStream::connect(&self.path) {
                Ok(stream) => return Client::new(stream),
                Err(error) => {
                    assert!(begun.elapsed() < LIMIT && self.child().try_wait().unwrap().is_none(), "{error}");
                    std::thread::yield_now();
                }
            }
        }
    }

    /// The report of the run, when it has ended.
    fn end(mut self) -> (Option<i32>, Value, String) {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        assert!(!self.path.exists(), "the socket is removed");
        let message = String::from_utf8(output.stderr).unwrap();
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{message}"));
        (output.status.code(), report, message)
    }
}

impl Drop for Steered {
    /// None outlives a test that fails.
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Client {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self { lines: BufReader::new(stream.try_clone().unwrap()), stream }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next line; `null` at the end.
    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        if line.is_empty() { Value::Null } else { serde_json::from_str(&line).unwrap() }
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.send(format!("{request}\n").as_bytes());
        self.line()
    }

    #[track_caller]
    fn done(&mut self, request: &Value) {
        assert_eq!(self.ask(request), json!({"ok": true}), "{request}");
    }

    #[track_caller]
    fn refused(&mut self, bytes: &[u8], words: &str) {
        self.send(bytes);
        let answer = self.line();
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(answer["ok"] == false && error.contains(words) && error.lines().count() == 1, "{answer}");
    }

    /// Figures, as soon as they are as they should be.
    fn figures(&mut self, is_so: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let answer = self.ask(&json!({"do": "get"}));
            let figures = &answer["figures"];
            for direction in figures["directions"].as_array().unwrap() {
                let [sent, received, under_way] = ["sent", "received", "under_way"].map(|name| count(direction, name));
                // Without tags nobody knows what is lost.
                let lost = direction["lost"].as_u64().unwrap_or(0);
                assert_eq!(sent, received + lost + under_way, "{direction}");
            }
            if is_so(figures) {
                return figures.clone();
            }
            assert!(begun.elapsed() < LIMIT, "{figures}");
        }
    }
}

#[track_caller]
fn count(of: &Value, name: &str) -> u64 {
    of[name].as_u64().unwrap_or_else(|| panic!("{name}: {of}"))
}

/// Of the first direction.
fn first<'a>(figures: &'a Value, name: &str) -> &'a Value {
    &figures["directions"][0][name]
}

fn sum(figures: &Value, name: &str) -> u64 {
    figures["directions"].as_array().unwrap().iter().map(|one| count(one, name)).sum()
}

#[test]
fn a_session_starts_sets_clears_stops_and_quits() {
    let mut run = Steered::start(&["--rate", "2k", "--stopped"]);
    let mut client = run.connect();
    assert_eq!(std::fs::metadata(&run.path).unwrap().permissions().mode() & 0o777, 0o600);
    // Nothing before the start.
    let figures = client.figures(|figures| figures["phase"] == "counted");
    assert_eq!((sum(&figures, "sent"), sum(&figures, "missed"), &figures["running"]), (0, 0, &json!(false)));
    assert_eq!(first(&figures, "intended_pps"), &json!(0.0));
    client.done(&json!({"do": "start"}));
    client.figures(|figures| count(&figures["directions"][0], "received") > 100);
    // One port, then both.
    client.done(&json!({"do": "set", "rate": 500, "port": "soft:b"}));
    let figures = client.figures(|_| true);
    assert_eq!([0, 1].map(|at| figures["directions"][at]["intended_pps"].as_f64()), [Some(2000.0), Some(500.0)]);
    client.done(&json!({"do": "set", "rate": "1.5k"}));
    let figures = client.figures(|_| true);
    assert_eq!([0, 1].map(|at| figures["directions"][at]["intended_pps"].as_f64()), [Some(1500.0); 2]);
    // What was sent before counts no more, nor does what of it was under way.
    client.done(&json!({"do": "stop"}));
    client.done(&json!({"do": "clear"}));
    let figures = client.figures(|_| true);
    assert_eq!(["sent", "received", "lost", "missed"].map(|name| sum(&figures, name)), [0; 4], "{figures}");
    assert_eq!(first(&figures, "latency_from_due_ns"), &Value::Null);
    client.done(&json!({"do": "start"}));
    client.figures(|figures| count(&figures["directions"][0], "received") > 50);
    client.done(&json!({"do": "stop"}));
    let still = client.figures(|figures| sum(figures, "under_way") == 0);
    // It stands still: no time makes more of it.
    let later = client.figures(|figures| figures["seconds"].as_f64() > Some(still["seconds"].as_f64().unwrap() + 0.2));
    assert_eq!(
        ["sent", "missed", "lost"].map(|name| sum(&later, name)),
        ["sent", "missed", "lost"].map(|name| sum(&still, name))
    );
    assert_eq!(later["running"], false);
    assert_eq!(&first(&later, "latency_from_due_ns")["count"], first(&later, "received"));
    assert_eq!(sum(&later, "unread"), 0);
    client.done(&json!({"do": "quit"}));
    assert_eq!([client.line(), client.line()], [json!({"event": "end"}), Value::Null]);
    let (code, report, message) = run.end();
    assert_eq!(code, Some(0), "{message}");
    for (direction, figures) in
        report["directions"].as_array().unwrap().iter().zip(later["directions"].as_array().unwrap())
    {
        for name in ["sent", "received", "lost", "missed"] {
            assert_eq!(direction[name], figures[name], "{name}: {direction}");
        }
        // The integral of what was asked, within a frame for each change.
        let asked = direction["intended_pps"].as_f64().unwrap() * direction["duration_s"].as_f64().unwrap();
        let due = u32::try_from(count(direction, "sent") + count(direction, "missed")).unwrap();
        assert!((asked - f64::from(due)).abs() <= 3.0, "{asked} for {due}: {direction}");
    }
}

/// The cable passes 100 frames, and then none.
#[test]
fn what_is_lost_of_frames_without_tags_is_not_known() {
    let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    bytes.extend([0, 0, 60, 60].map(u32::to_le_bytes).concat());
    bytes.extend([2; 60]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    let ports = ["soft:a?wire=peer:b&after=100&loss=100%", "soft:b"];
    let mut run = Steered::start_at(ports, &["--one-way", "--rate", "2k", "--pcap", file.path().to_str().unwrap()]);
    let mut client = run.connect();
    let figures = client.figures(|figures| count(&figures["directions"][0], "under_way") > 300);
    let direction = &figures["directions"][0];
    assert!(count(direction, "received") <= 100, "{direction}");
    for of in [direction, &direction["streams"][0]] {
        for name in ["lost", "loss_percent", "duplicate", "late", "reordered"] {
            assert!(of[name].is_null() && of.as_object().unwrap().contains_key(name), "{name}: {of}");
        }
    }
    client.done(&json!({"do": "quit"}));
    assert_eq!(run.end().0, Some(0));
}

/// All of them are one to those who steer.
#[test]
fn several_queue_pairs_are_steered_as_one() {
    let mut run = Steered::start(&["--rate", "3k", "--queues", "3", "--flows", "32", "--stopped"]);
    let mut client = run.connect();
    let figures = client.figures(|figures| figures["phase"] == "counted");
    assert_eq!((sum(&figures, "sent"), figures["directions"].as_array().unwrap().len()), (0, 2));
    client.done(&json!({"do": "start"}));
    let figures = client.figures(|figures| count(&figures["directions"][0], "received") > 300);
    assert_eq!(first(&figures, "intended_pps"), &json!(3000.0));
    client.done(&json!({"do": "set", "rate": "1.2k", "port": "soft:a"}));
    let figures = client.figures(|_| true);
    assert_eq!([0, 1].map(|at| figures["directions"][at]["intended_pps"].as_f64()), [Some(1200.0), Some(3000.0)]);
    client.done(&json!({"do": "clear"}));
    client.figures(|figures| count(&figures["directions"][1], "received") > 100);
    client.done(&json!({"do": "stop"}));
    let still = client.figures(|figures| sum(figures, "under_way") + sum(figures, "lost") == 0);
    client.done(&json!({"do": "clear"}));
    let figures = client.figures(|_| true);
    assert_eq!(["sent", "received", "lost", "missed"].map(|name| sum(&figures, name)), [0; 4], "{figures}");
    assert_eq!(first(&figures, "latency_from_due_ns"), &Value::Null);
    client.done(&json!({"do": "start"}));
    client.figures(|figures| count(&figures["directions"][0], "received") > 100);
    client.done(&json!({"do": "quit"}));
    let (code, report, message) = run.end();
    assert_eq!(code, Some(0), "{message}");
    assert!(sum(&still, "received") > 100);
    for direction in report["directions"].as_array().unwrap() {
        let [sent, received, reordered] = ["sent", "received", "reordered"].map(|name| count(direction, name));
        assert!(sent > 0 && sent == received && reordered == 0, "{direction}");
        assert_eq!(direction["latency_from_due_ns"]["count"], received, "{direction}");
    }
}

#[test]
fn a_sender_that_was_stopped_shows_as_late_or_as_missed() {
    const STOP: Duration = Duration::from_millis(50);
    const RATE: f64 = 10_000.0;
    for catch_up in ["1s", "1ms"] {
        let mut run = Steered::start(&["--one-way", "--rate", "10k", "--catch-up", catch_up]);
        let mut client = run.connect();
        client.figures(|figures| first(figures, "received").as_u64() > Some(100));
        let id = Pid::from_child(run.child());
        kill_process(id, Signal::STOP).unwrap();
        let begun = Instant::now();
        while !std::fs::read_to_string(format!("/proc/{}/stat", run.child().id())).unwrap().contains(") T ") {
            assert!(begun.elapsed() < LIMIT);
        }
        std::thread::sleep(STOP);
        kill_process(id, Signal::CONT).unwrap();
        let sent = first(&client.figures(|_| true), "sent").as_u64().unwrap();
        client.figures(|figures| first(figures, "sent").as_u64() > Some(sent + 100));
        client.done(&json!({"do": "quit"}));
        let (code, report, _) = run.end();
        let direction = &report["directions"][0];
        assert_eq!((code, count(direction, "lost")), (Some(0), 0), "{direction}");
        if catch_up == "1ms" {
            // All that was due in the stop, but for its last millisecond.
            assert!(count(direction, "missed") >= 480, "{direction}");
            continue;
        }
        // All that was due in it was late, by half of it on average; by the ring that is no time.
        let [due, ring] = ["due", "ring"].map(|from| {
            let latency = &direction[format!("latency_from_{from}_ns")];
            [latency["mean"].as_f64().unwrap() * latency["count"].as_f64().unwrap(), latency["max"].as_f64().unwrap()]
        });
        let least = STOP.as_secs_f64() * RATE * STOP.as_secs_f64() / 2.0 * 1e9;
        assert!(due[0] - ring[0] >= 0.9 * least && due[1] >= 0.98 * STOP.as_secs_f64() * 1e9, "{direction}");
    }
}

#[test]
fn tx_says_that_it_is_not_steered() {
    for option in [
        &["--control", "/tmp/x"][..],
        &["--script", "x"],
        &["--live"],
        &["--stopped"],
        &["--live", "--stopped", "--control", "/tmp/x", "--script", "x"],
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_pktgen")).args(["tx", "soft:a?wire=sink"]).args(option).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), message.lines().count()), (Some(2), 1), "{message}");
        assert!(message.starts_with("pktgen: tx: cannot be steered, as"), "{message}");
    }
}

#[test]
fn streams_are_set_by_their_names() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = "[[stream]]\nname = 'voice'\nrate = '500'\nframe = ['ethernet', 'ipv4', 'udp']\n\
         [[stream]]\nname = 'one'\nframe = ['ethernet', 'ipv4', 'udp']\n[[stream]]\nname = 'two'\nframe = ['ethernet', 'ipv4', 'udp']\n";
    file.write_all(text.as_bytes()).unwrap();
    let mut run =
        Steered::start(&["--one-way", "--rate", "1k", "--line", "10G", "--stream", file.path().to_str().unwrap()]);
    let mut client = run.connect();
    client.figures(|figures| figures["phase"] == "counted");
    client.done(&json!({"do": "set", "stream": "voice", "rate": "700"}));
    client.done(&json!({"do": "set", "rate": "3k"}));
    let figures = client.figures(|_| true);
    let streams = first(&figures, "streams").as_array().unwrap();
    let asked: Vec<_> =
        streams.iter().map(|one| (one["name"].as_str().unwrap(), one["intended_pps"].as_f64().unwrap())).collect();
    assert_eq!(asked, [("voice", 700.0), ("one", 1500.0), ("two", 1500.0)]);
    for (request, words) in [
        (json!({"do": "set", "stream": "one", "rate": 1}), "it takes turns with others"),
        (json!({"do": "set", "stream": "none", "rate": 1}), "there are voice, one, two"),
        (json!({"do": "set", "port": "soft:c", "rate": 1}), "there is none; those that send are soft:a"),
        (json!({"do": "set", "port": "soft:b", "rate": 1}), "it sends nothing; those that send are soft:a"),
        (json!({"do": "set", "rate": "20G:L1"}), "above the line"),
        (json!({"do": "set", "rate": "9999999999Mbit/s L1"}), "above the line"),
        (json!({"do": "set", "rate": "14.8809M"}), "all streams of soft:a together would be"),
        (json!({"do": "set", "rate": "fast"}), "rate: \"fast\" is no rate"),
    ] {
        client.refused(format!("{request}\n").as_bytes(), words);
    }
    client.done(&json!({"do": "quit"}));
    assert_eq!(run.end().0, Some(0));
}

#[test]
fn a_run_without_a_rate_takes_one() {
    let mut run = Steered::start(&["--one-way"]);
    let mut client = run.connect();
    client.figures(|figures| first(figures, "sent").as_u64() > Some(100));
    assert_eq!(first(&client.figures(|_| true), "intended_pps"), &Value::Null);
    client.done(&json!({"do": "set", "rate": 1000}));
    client.done(&json!({"do": "clear"}));
    let figures = client.figures(|figures| first(figures, "received").as_u64() > Some(100));
    assert_eq!(first(&figures, "intended_pps"), &json!(1000.0));
    // What that time has room for, the burst that a full ring had no room for before, and what a worker sends behind its last look at the
    // clock; far from the thousands that a port takes without a rate.
    let most = figures["seconds"].as_f64().unwrap() * 2000.0 + 100.0;
    assert!(first(&figures, "sent").as_f64().unwrap() <= most, "{figures}");
    client.done(&json!({"do": "quit"}));
    let (code, report, _) = run.end();
    let direction = &report["directions"][0];
    assert_eq!(code, Some(0));
    assert!((direction["intended_pps"].as_f64().unwrap() - 1000.0).abs() < 1e-3, "{direction}");
}

#[test]
fn nothing_that_clients_do_harms_a_run() {
    // Many streams make long lines, so that readers are soon known to be none.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all("[[stream]]\nframe = ['ethernet', 'ipv4', 'udp']\n".repeat(20).as_bytes()).unwrap();
    let mut run = Steered::start(&["--one-way", "--rate", "1k", "--stream", file.path().to_str().unwrap()]);
    let mut client = run.connect();
    client.figures(|figures| figures["phase"] == "counted");
    client.refused(&[&[b'x'; 1 << 20][..], b"\n"].concat(), "longer than 65536 bytes");
    client.refused(b"\xff\xfe\n", "not UTF-8");
    client.refused(b"{\"do\"\n", "EOF while parsing");
    client.refused(b"[]\n", "no object");
    client.refused(b"{\"do\":\"subscribe\",\"interval\":-1}\n", "interval");
    // Half closed: what has come is answered, a line without end too, and then it is over.
    let mut half = run.connect();
    half.send(b"{\"do\":\"start\"}\n{\"do\":\"get\"}");
    half.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(half.line(), json!({"ok": true}));
    assert_eq!(half.line()["ok"], true);
    assert_eq!(half.line(), Value::Null);
    // A browser's words steer nothing.
    let mut web = run.connect();
    web.send(b"POST / HTTP/1.1\r\nHost: x\r\n\r\n{\"do\":\"quit\"}\n");
    assert!(web.line()["error"].as_str().unwrap().contains("no web server"));
    assert_eq!(web.line(), Value::Null);
    // Who holds all places and says nothing locks nobody out, nor does it whoever has said something before; who has subscribed stays.
    let mut subscribed = run.connect();
    subscribed.done(&json!({"do": "subscribe", "interval": 3600}));
    let mut silent: Vec<_> = (0..256).map(|_| run.connect()).collect();
    run.connect().figures(|figures| count(figures, "clients") == 256);
    client.figures(|figures| count(figures, "clients") >= 254);
    subscribed.done(&json!({"do": "subscribe", "interval": 0}));
    assert_eq!(
        silent[0].line()["error"],
        "there are 256 clients already; this one was silent for longest; connect again"
    );
    assert_eq!(silent[0].line(), Value::Null);
    silent[255].done(&json!({"do": "start"}));
    drop((silent, subscribed));
    client.figures(|figures| count(figures, "clients") == 1);
    // Clients that go at once, and more than there may be; each end of a connection is a file.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let many: Vec<_> = (0..1000).map(|_| run.connect()).collect();
    let told = many.into_iter().map(|mut one| {
        // Who was refused is told so, whether it writes or not.
        let _ = one.stream.write_all(b"{\"do\":\"start\"}\n");
        one.line()
    });
    let (served, refused): (Vec<_>, Vec<_>) = told.partition(|line| *line == json!({"ok": true}));
    let is_told = |line: &Value| line["error"].as_str().is_some_and(|why| why.contains("there are 256 clients"));
    assert!((250..=256).contains(&served.len()) && refused.iter().all(is_told), "{} {refused:?}", served.len());
    // One that has gone without a word, though it had subscribed.
    let mut gone = run.connect();
    gone.send(b"{\"do\":\"subscribe\",\"interval\":3600}\n");
    gone.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(gone.line(), json!({"ok": true}));
    drop(gone);
    client.figures(|figures| count(figures, "clients") == 1);
    // Subscribers that read nothing are dropped, and counted.
    let mut deaf: Vec<_> = (0..3).map(|_| run.connect()).collect();
    deaf.iter_mut().for_each(|one| one.send(b"{\"do\":\"subscribe\",\"interval\":0.01}\n"));
    let figures = client.figures(|figures| count(figures, "dropped_clients") == 3);
    assert!(count(&figures, "clients") >= 1);
    let before = first(&figures, "received").as_u64();
    let figures = client.figures(|figures| first(figures, "received").as_u64() > before);
    assert_eq!(first(&figures, "lost"), &json!(0));
    client.done(&json!({"do": "quit"}));
    let (code, _, message) = run.end();
    assert_eq!(code, Some(0));
    assert!(
        message.contains("clients were dropped, as they did not read") && !message.contains("panicked"),
        "{message}"
    );
}

#[test]
fn a_subscriber_is_told_until_the_end() {
    let mut run = Steered::start(&["--one-way", "--rate", "1k"]);
    let mut client = run.connect();
    client.done(&json!({"do": "subscribe", "interval": 0.05}));
    let mut last = 0.0;
    for _ in 0..5 {
        let line = client.line();
        assert_eq!(line["event"], "figures", "{line}");
        let seconds = line["figures"]["seconds"].as_f64().unwrap();
        assert!(seconds >= last);
        last = seconds;
    }
    run.connect().done(&json!({"do": "quit"}));
    while client.line() != json!({"event": "end"}) {}
    assert_eq!(run.end().0, Some(0));
}

#[test]
fn the_error_of_the_clock_is_told_as_in_the_report_and_refined() {
    let mut run = Steered::start(&["--one-way", "--rate", "1k"]);
    let mut client = run.connect();
    let ppm = |figures: &Value| figures["clock"]["error_ppm"].as_f64().unwrap();
    let first = client.figures(|_| true);
    assert!(ppm(&first) > 0.0 && first["clock"]["error_ns"].as_f64() > Some(0.0), "{first}");
    client.figures(|figures| ppm(figures) < ppm(&first));
    client.done(&json!({"do": "subscribe", "interval": 0.01}));
    assert!(ppm(&client.line()["figures"]) > 0.0);
    run.connect().done(&json!({"do": "quit"}));
    let (code, report, _) = run.end();
    let names = |clock: &Value| clock.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!((code, names(&report["clock"])), (Some(0), names(&first["clock"])));
}

#[test]
fn rates_of_a_run_that_quits_early_are_over_the_time_it_took() {
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), "{\"sleep\":0.5}\n").unwrap();
    let options = ["--one-way", "--rate", "1k", "--duration", "600s", "--script", script.path().to_str().unwrap()];
    let output = command(&options).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let direction = &report["directions"][0];
    let [intended, offered] = ["intended_pps", "offered_pps"].map(|name| direction[name].as_f64().unwrap());
    let [sent, missed] = ["sent", "missed"].map(|name| direction[name].as_f64().unwrap());
    // However long this machine took: each frame that was due was offered or missed.
    assert!(sent > 0.0 && intended == 1000.0, "{report}");
    let due = offered * (1.0 + missed / sent);
    assert!((due / intended - 1.0).abs() < 0.02, "{report}");
}

#[test]
fn an_abandoned_socket_is_replaced_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    // Its file stays.
    drop(UnixListener::bind(&path).unwrap());
    let mut child = command(&["--control", path.to_str().unwrap()]).spawn().unwrap();
    let begun = Instant::now();
    let stream = loop {
        match UnixStream::connect(&path) {
            Ok(stream) => break stream,
            Err(_) => assert!(begun.elapsed() < LIMIT && child.try_wait().unwrap().is_none()),
        }
    };
    let other = command(&["--control", path.to_str().unwrap()]).output().unwrap();
    let message = String::from_utf8(other.stderr).unwrap();
    assert_eq!(other.status.code(), Some(1), "{message}");
    assert!(message.contains("a program listens there") && message.lines().count() == 1, "{message}");
    let mut client = Client::new(stream);
    client.figures(|figures| figures["phase"] == "counted");
    client.done(&json!({"do": "quit"}));
    assert!(child.wait().unwrap().success() && !path.exists());
}

/// A run that listens at an address of this host.
struct OnLoopback {
    child: Child,
    said: BufReader<ChildStdout>,
    address: String,
}

impl OnLoopback {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
        command.arg("run").args(PAIR).args(["--warm-up", "0s", "--rate", "1k", "--control", "127.0.0.1:0"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut run = Self { child, said, address: String::new() };
        while run.address.is_empty() {
            let mut line = String::new();
            assert!(run.said.read_line(&mut line).unwrap() > 0);
            run.address = line.trim().strip_prefix("control: listens at ").unwrap_or_default().to_owned();
        }
        run
    }

    /// Ends it by a connection once frames count, which is to be well.
    fn quit(mut self, mut stream: &TcpStream) {
        let mut answers = BufReader::new(stream);
        let mut answer = String::new();
        while !answer.contains("\"phase\":\"counted\"") {
            stream.write_all(b"{\"do\":\"get\"}\n").unwrap();
            answer.clear();
            assert!(answers.read_line(&mut answer).unwrap() > 0);
        }
        stream.write_all(b"{\"do\":\"quit\"}\n").unwrap();
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success() && rest.contains("LOST"), "{rest}");
    }
}

impl Drop for OnLoopback {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn loopback_is_listened_at_where_it_is_asked_for() {
    let run = OnLoopback::start();
    let stream = TcpStream::connect(&run.address).unwrap();
    run.quit(&stream);
}

/// Whoever finds no place has asked for something all the same.
#[test]
fn a_thousand_clients_on_loopback_are_served_or_told_why_not() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let run = OnLoopback::start();
    let connect = |_| {
        let mut stream = TcpStream::connect(&run.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        // Who was turned away by now cannot.
        let _ = stream.write_all(b"{\"do\":\"subscribe\",\"interval\":3600}\n");
        stream
    };
    let clients: Vec<_> = (0..1000).map(connect).collect();
    let told = clients.iter().map(|stream| {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        (stream, serde_json::from_str::<Value>(&line).unwrap())
    });
    let (served, refused): (Vec<_>, Vec<_>) = told.partition(|(_, line)| *line == json!({"ok": true}));
    let is_told = |line: &Value| line["error"].as_str().is_some_and(|why| why.contains("there are 256 clients"));
    assert!(served.len() == 256 && refused.iter().all(|(_, line)| is_told(line)), "{} {refused:?}", served.len());
    run.quit(served[0].0);
}

#[test]
fn figures_that_find_no_room_are_an_error() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    // Which nobody waits for then.
    file.write_all(b"{\"do\":\"get\"}\n{\"sleep\":86400}\n").unwrap();
    let script = ["--script", file.path().to_str().unwrap()];
    for options in [&["--json", "--count", "10"][..], &["--count", "10"], &script, &[&script[..], &["--json"]].concat()]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
        command.arg("run").args(PAIR).args(["--warm-up", "0s", "--rate", "1k", "--quiet"]).args(options);
        let output = command.stdin(Stdio::null()).stdout(full).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), message.lines().count()), (Some(1), 1), "{options:?}: {message}");
        let words = "pktgen: standard output: cannot write what was asked for: No space left on device";
        assert!(message.starts_with(words), "{options:?}: {message}");
    }
}

fn script(text: &str, options: &[&str]) -> Output {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    command(options).arg("--script").arg(file.path()).output().unwrap()
}

#[test]
fn a_script_does_its_lines_and_judges() {
    let text = "# Begin slowly.\n{\"do\": \"set\", \"rate\": \"500\"}\n{\"sleep\": 0.2}\n{\"do\": \"clear\"}\n{\"sleep\": 0.3}\n\
         {\"do\": \"get\"}\n{\"expect\": {\"loss\": 0, \"rate\": 100, \"latency_p99\": \"1s\"}}\n";
    // What is later than a tenth of a second is missed, so that no pause of this machine makes it late.
    let output = script(text, &["--rate", "2k", "--catch-up", "100ms"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{message}");
    // Whatever is printed is an object a line, and the last of them the report.
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["figures"]["directions"][0]["intended_pps"]), (2, &json!(500.0)));
    assert!((lines[1]["directions"][0]["intended_pps"].as_f64().unwrap() - 500.0).abs() < 1.0, "{}", lines[1]);

    // Who ends a run before its count wants less.
    let output = script("{\"sleep\": 0.1}\n", &["--rate", "1k", "--count", "1000000"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &*message), (Some(0), ""));

    // Nothing is sent, which shows nothing.
    let output = script("{\"expect\": {\"loss\": 100, \"rate\": 100}}\n", &["--rate", "1k", "--stopped"]);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), message.lines().count()), (Some(3), 1), "{message}");
    for words in [":1: soft:a > soft:b: no frame has come or is lost", ":1: soft:b > soft:a: no frame was due"] {
        assert!(message.contains(words), "{words}: {message}");
    }

    let options = ["--rate", "1k", "--stopped", "--expect-loss", "100", "--expect-rate", "100"];
    let output = script("{\"sleep\": 0.1}\n", &options);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), message.lines().count()), (Some(3), 1), "{message}");
    for port in ["a > soft:b", "b > soft:a"] {
        for option in ["sent, so none shows what --expect-loss", "due, so none shows what --expect-rate"] {
            assert!(message.contains(&format!("soft:{port}: no frame was {option} asks for")), "{option}: {message}");
        }
    }

    // All but the first frame, a probe, is lost, however few are sent in that time; and no latency is a nanosecond.
    let mut command = Command::new(env!("CARGO_BIN_EXE_pktgen"));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"{\"sleep\": 0.1}\n\n{\"expect\": {\"loss\": 1}}\n{\"expect\": {\"latency_p99\": \"1ns\"}}\n")
        .unwrap();
    let ports = ["soft:a?wire=peer:b&after=1&loss=100%", "soft:b"];
    let options = ["--one-way", "--rate", "2k", "--catch-up", "1s", "--warm-up", "0s", "--json", "--quiet", "--script"];
    let output = command.arg("run").args(ports).args(options).arg(file.path()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{message}");
    let name = file.path().display();
    for words in [
        format!("{name}:3: soft:a > soft:b: "),
        format!("{name}:4: soft:a > soft:b: p99 latency"),
        "1 % are allowed".to_owned(),
    ] {
        assert!(message.contains(&words) && message.lines().count() == 1, "{words}: {message}");
    }
}

#[test]
fn what_is_wrong_with_a_script_or_an_address_is_one_line() {
    for (text, code, words) in [
        // Only what a run is to end before has an end of its own.
        ("", 2, "there is nothing in it"),
        ("{\"do\":\"get\"}\n{\"do\":\"jump\"}\n", 2, ":2: unknown variant `jump`"),
        ("{\"do\":\"subscribe\"}", 2, ":1: a script has nobody to tell"),
        ("{\"expect\":{\"latency_p99\":\"soon\"}}", 2, ":1: latency_p99: write a time"),
        ("{\"sleep\":0}\n{\"do\":\"set\",\"rate\":\"0\"}\n", 1, ":2: rate: a rate of nothing"),
        ("{\"sleep\":0}\n{\"sleep\":86400}\n{\"do\":\"stop\"}\n", 1, ":3: the run was over before this line"),
    ] {
        let end: &[&str] = if text.contains("86400") { &["--duration", "300ms"] } else { &[] };
        let output = script(text, &[&["--rate", "1k"], end].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}: {message}");
        assert!(message.contains(words) && message.lines().count() == 1, "{text}: {message}");
    }
    // An expectation that was not met before is named too.
    let output = script(
        "{\"sleep\":0.1}\n{\"expect\":{\"latency_p99\":\"1ns\"}}\n{\"do\":\"set\",\"rate\":\"0\"}\n",
        &["--rate", "1k"],
    );
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), message.lines().count()), (Some(1), 1), "{message}");
    assert!(message.contains(":2: soft:a > soft:b: p99 latency") && message.contains(":3: rate: "), "{message}");
    // Why no frame counts is said, and nothing of the script.
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"{\"sleep\": 1}").unwrap();
    let mut command_of_deaf = Command::new(env!("CARGO_BIN_EXE_pktgen"));
    let ports = ["run", "soft:a?wire=sink", "soft:b?wire=sink", "--quiet", "--script"];
    let output = command_of_deaf.args(ports).arg(file.path()).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && message.contains("none arrives at soft:b"), "{message}");
    for (options, code, words) in [
        (&["--control", "192.0.2.1:9000"][..], 2, "only loopback addresses"),
        (&["--control", "/nowhere/at/all.sock"], 1, "--control /nowhere/at/all.sock: "),
        (&["--script", "/nowhere"], 1, "--script /nowhere: cannot be read"),
        (&["--live"], 2, "--live"),
        (&["--stopped"], 2, "--stopped: nobody could start it"),
    ] {
        let output = command(options).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{options:?}: {message}");
        assert!(message.contains(words) && message.lines().count() == 1, "{options:?}: {message}");
    }
}

#[test]
fn the_example_client_steers_a_run() {
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/steer.py");
    if Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip::test!("python3 is not installed");
    }
    let mut run = Steered::start(&["--rate", "1k", "--one-way"]);
    let _waits = run.connect();
    let steps = ["get", "set rate=2k", "clear", "get", "wait received=100", "stop", "quit"];
    let output = Command::new("python3").arg(client).arg(&run.path).args(steps).output().unwrap();
    let [said, message] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{said}{message}");
    assert!(said.contains("soft:a > soft:b: ") && said.contains("2,000 pps asked"), "{said}");
    assert_eq!(run.end().0, Some(0));
}
