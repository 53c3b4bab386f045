//! Workloads in Lua: the store receives the script's operations, every output has its transactions,
//! and its errors end only the run.

use crate::common::{Ran, folder, serval, workload, write};
use std::path::Path;

/// Returns the operations that a store received, one per line.
fn asked(ran: &Ran) -> Vec<String> {
    let verbs = ["READ ", "SCAN ", "UPDATE ", "INSERT ", "DELETE "];
    // Before the run Serval checks whether the store was loaded.
    let asked = ran.stdout.rsplit("***\n").next().unwrap();
    let lines = asked.lines().filter(|line| verbs.iter().any(|verb| line.starts_with(verb)));
    lines.map(str::to_owned).collect()
}

/// Runs a script on the store that prints operations.
fn run(place: &Path, script: &str, more: &str) -> Ran {
    write(place, "test.lua", script);
    serval(place, &format!("run basic -p workload=test.lua -p seed=5 {more}"))
}

/// Returns the operations of a valid script.
fn operations(script: &str, more: &str) -> Vec<String> {
    let place = folder();
    asked(&run(place.path(), script, &format!("-p recordcount=100 -p operationcount=100 {more}")).expect(0))
}

/// Returns the messages for an invalid script, which ends with exit status 2.
fn refused(script: &str, more: &str) -> String {
    let place = folder();
    run(place.path(), script, &format!("-p recordcount=100 -p operationcount=100 {more}")).expect(2).stderr
}

#[test]
fn a_scripted_workload_c_equals_the_core_workload() {
    // The core draws the next operation even if there is only one.
    let script = "operations = { 'read' }\nlocal choose\nfunction start() choose = CHOOSER end\n\
                  function step() random() read(choose()) end";
    let place = folder();
    for (distribution, chooser) in [
        ("zipfian", "keys()"),
        ("zipfian", "zipfian()"),
        ("uniform", "uniform()"),
        ("latest", "latest()"),
        ("hotspot", "hotspot()"),
        ("exponential", "exponential()"),
        ("exactzipfian", "exactzipfian()"),
        ("sequential", "sequential()"),
    ] {
        let sets = format!("-p requestdistribution={distribution} -p readallfields=false");
        let core = format!(
            "run basic -P {} -p seed=5 -p operationcount=100 -p recordcount=100 {sets}",
            workload("workloadc")
        );
        let core = asked(&serval(place.path(), &core).expect(0));
        assert_eq!(core.len(), 100);
        assert_eq!(operations(&script.replace("CHOOSER", chooser), &sets), core, "{distribution}");
    }
}

#[test]
fn equal_seeds_give_equal_operations() {
    let script = "operations = { 'read', 'scan', 'update', 'insert', 'delete' }\n\
                  local which, choose, short\n\
                  function start() which = discrete(1, 1, 1, 1, 1) choose = uniform() short = text(3, 9) end\n\
                  function step()\n local kind, at = which(), choose()\n\
                  if kind == 1 then read(at, 'field1', 'field2')\n elseif kind == 2 then scan(at, random(7))\n\
                  elseif kind == 3 then update(at, 'a', short, 'b', random(-5, 5))\n elseif kind == 4 then insert()\n\
                  else delete(at) end\n end";
    let once = operations(script, "");
    assert_eq!(once, operations(script, ""));
    assert_ne!(once, operations(script, "-p seed=6"));
    for verb in ["READ", "SCAN", "UPDATE", "INSERT", "DELETE"] {
        assert!(once.iter().any(|line| line.starts_with(verb)), "{verb}: {once:?}");
    }
    // Inserts continue after the last record.
    let inserted = operations(
        &script.replace("insert()", "insert(key(next_record(), 'x'), 'a', 1)"),
        "-p insertorder=ordered -p zeropadding=4",
    );
    let inserted: Vec<&String> = inserted.iter().filter(|line| line.starts_with("INSERT")).collect();
    for (index, line) in inserted.iter().enumerate() {
        assert!(line.contains(&format!(" x{:04} ", 100 + index)), "{line}");
    }
}

const TRANSFER: &str = "operations = { 'read', 'update' }\ntransactions = { 'TX-MOVE' }\n\
    properties = { { name = 'move.share', default = 0.5, min = 0, max = 1, meaning = 'Share of moves.' } }\n\
    local function move(op, fail)\n op.read(1)\n op.read(2)\n op.update(1, 'a', 1)\n if fail then return false end\n\
    op.update(2, 'a', 2)\n end\n\
    local turn = 0\n\
    function step()\n turn = turn + 1\n if turn % 4 == 0 then return read(3) end\n\
    transaction('TX-MOVE', move, turn % 4 == 1)\n end";

#[test]
fn every_output_has_a_line_for_a_transaction() {
    let place = folder();
    write(place.path(), "test.lua", TRANSFER);
    let words = "run noop -p workload=test.lua -p recordcount=10 -p operationcount=400 -p failures.allowed=1";
    // Three of four units are transactions, one of which fails.
    let text = serval(place.path(), words).expect(0);
    assert_eq!(text.value("[TX-MOVE], Operations,"), 200.0);
    assert_eq!(text.value("[TX-MOVE], Return=OK,"), 200.0);
    assert_eq!(text.value("[TX-MOVE], Return=ERROR,"), 100.0);
    assert_eq!(text.value("[TX-MOVE-FAILED], Operations,"), 100.0);
    assert_eq!(text.value("[READ], Operations,"), 700.0);
    assert_eq!(text.value("[UPDATE], Operations,"), 500.0);
    for part in ["AverageLatency(us)", "MinLatency(us)", "MaxLatency(us)", "99thPercentileLatency(us)"] {
        text.value(&format!("[TX-MOVE], {part},"));
    }
    let paced =
        serval(place.path(), &format!("{words} -target 20000 -threads 2 -p measurement.interval=both"))
            .expect(0);
    assert_eq!(paced.value("[Intended-TX-MOVE], Operations,"), 200.0);
    let json = serval(place.path(), &format!("{words} -p exporter=json --result out")).expect(0);
    let document: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let metrics = document["metrics"].as_array().unwrap();
    let line = metrics.iter().find(|metric| metric["name"] == "TX-MOVE").unwrap();
    assert_eq!((&line["statuses"]["OK"], &line["statuses"]["ERROR"]), (&200.into(), &100.into()));
    assert_eq!(document["overall"]["operations"], 400);
    assert_eq!(document["overall"]["failed"], 100);
    assert_eq!(document["run"]["workload"], "test.lua");
    let series = std::fs::read_to_string(place.path().join("out/series.csv")).unwrap();
    assert!(series.contains("TX-MOVE"), "{series}");
    let log = std::fs::read_to_string(place.path().join("out/histograms.hlog")).unwrap();
    assert!(log.contains("TX-MOVE"), "{log}");
    let html = std::fs::read_to_string(place.path().join("out/report.html")).unwrap();
    assert!(html.contains("TX-MOVE"));
}

#[test]
fn a_transaction_lasts_from_its_first_start_to_its_last_end() {
    let place = folder();
    let script = "operations = { 'insert' }\ntransactions = { 'TX-MOVE' }\n\
        local function move(op) for i = 1, 4 do op.insert() end end\n\
        function step() transaction('TX-MOVE', move) end";
    write(place.path(), "test.lua", script);
    // Four operations of 5 ms each, at more than twice the achievable rate.
    let words = "-p workload=test.lua -p recordcount=10 -p operationcount=20 -p basicdb.verbose=false \
                 -p basicdb.simulatedelay=5 -p basicdb.randomizedelay=false";
    let ran = serval(place.path(), &format!("run basic {words} -target 125 -p exporter=json")).expect(0);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let time = |name: &str, times: &str, of: &str| {
        let metrics = document["metrics"].as_array().unwrap();
        let line = metrics.iter().find(|metric| metric["name"] == name).unwrap();
        line["ok"][times][of].as_u64().unwrap()
    };
    assert!(time("INSERT", "service", "min_ns") >= 5_000_000, "{}", ran.stdout);
    assert!(time("TX-MOVE", "service", "min_ns") >= 20_000_000);
    // The last unit was due 152 ms after the first, and started 380 ms after it.
    assert!(time("TX-MOVE", "response", "max_ns") >= 20 * 20_000_000 - 19 * 8_000_000);
}

#[test]
fn a_script_reads_the_records_of_a_reply() {
    let place = folder();
    // Each round adds one to the stored value, and stops when it differs from the
    // expected value.
    let script = "operations = { 'read', 'update', 'scan' }\nfields = { 'n' }\n\
        function load(number) insert(number, 'n', 7) end\n\
        local before = 7\n\
        local function add(op)\n\
        if not op.read(0) then error('status ' .. status()) end\n\
        if tonumber(field('n')) ~= before or count() ~= 1 or field('m') ~= nil then error('read ' .. field('n')) end\n\
        before = before + 1\n op.update(0, 'n', before)\n\
        op.scan(0, 2, 'n')\n if count() < 1 or not field('n', 1) then error('scan ' .. count()) end\n\
        if not op.read('nobody') and status() ~= 'NOT_FOUND' then error(status()) end\n return true\n end\n\
        function step() sequence(add) end";
    write(place.path(), "test.lua", script);
    let sets = "-p workload=test.lua -p recordcount=20 -p operationcount=50";
    serval(place.path(), &format!("load sqlite {sets}")).expect(0);
    let ran = serval(place.path(), &format!("run sqlite {sets}")).expect(0);
    // Reads of missing records fail as operations; their units succeed.
    assert_eq!(ran.value("[READ], Return=NOT_FOUND,"), 50.0, "{}", ran.stderr);
    assert_eq!(ran.value("[UPDATE], Return=OK,"), 50.0);
    let wrong = serval(place.path(), &format!("run sqlite {sets}")).expect(2);
    assert!(wrong.stderr.contains("test.lua:7: ") && wrong.stderr.contains("read 57"), "{}", wrong.stderr);
}

#[test]
fn the_core_workload_verifies_integrity() {
    let place = folder();
    let script = "operations = { 'read' }\nlocal choose\nfunction start() choose = keys() end\n\
        local function check(op, key) op.read(key) verify(key) end\n\
        function step() sequence(check, choose()) end";
    write(place.path(), "test.lua", script);
    let sets = "-p workload=test.lua -p recordcount=20 -p operationcount=50 -p dataintegrity=true";
    serval(place.path(), &format!("load sqlite {sets}")).expect(0);
    let ran = serval(place.path(), &format!("run sqlite {sets}")).expect(0);
    assert_eq!(ran.value("[VERIFY], Return=OK,"), 50.0);
    serval(place.path(), &format!("run sqlite {sets} -p fieldlength=50")).expect(1);
}

#[test]
fn faults_are_reported_with_their_place_before_the_run() {
    for (script, words) in [
        ("operations = { 'read' }\nfunction step() read(1) + end", "test.lua:2:25: "),
        (
            "operations = { 'read' }\nfunction start() zipfiann() end\nfunction step() read(1) end",
            "test.lua:2:18: ",
        ),
        ("operations = { 'read' }\n\nlocal x = nothing.y\nfunction step() read(1) end", "test.lua:3:11: "),
        (
            "operations = { 'read' }\nfunction start()\n  uniform(9, 1)\nend\nfunction step() read(1) end",
            "test.lua:3: uniform",
        ),
        (
            "operations = { 'read' }\nlocal all = keys()\nfunction step() read(1) end",
            "test.lua:2: keys can be called in start(), step() and load() only",
        ),
        (
            "operations = { 'read' }\nfunction start() property('nothing') end\nfunction step() read(1) end",
            "no property 'nothing'",
        ),
        ("function step() read(1) end", "names no operations"),
        ("operations = { 'reed' }\nfunction step() read(1) end", "no operation 'reed'"),
        ("operations = { 'read' }", "defines no function step()"),
        (
            "operations = { 'read' }\ntransactions = { 'READ' }\nfunction step() read(1) end",
            "'READ' is a name that Serval uses in results",
        ),
        (
            "operations = { 'read' }\nproperties = { { name = 'fieldcount', default = 1, meaning = 'x' } }\n\
             function step() read(1) end",
            "'fieldcount' is a property of Serval's",
        ),
        (
            "operations = { 'read' }\nwhile true do end\nfunction step() read(1) end",
            "test.lua:2: took more than 10000000",
        ),
        ("operations = { 'read' }\nlocal t = io.open('x')\nfunction step() read(1) end", "test.lua:2:11: "),
    ] {
        let message = refused(script, "");
        assert!(message.contains(words) && !message.contains("panicked"), "{script}\n{message}");
        assert!(!message.contains("Starting test."), "before the run: {message}");
    }
    let place = folder();
    let ran = serval(place.path(), "run noop -p workload=nowhere.lua -p fieldcount=x -p operationcount=9")
        .expect(2);
    assert!(ran.stderr.contains("nowhere.lua: the script cannot be read"), "{}", ran.stderr);
    assert!(ran.stderr.contains("fieldcount=x"), "all faults at once: {}", ran.stderr);
}

#[test]
fn faults_in_a_run_end_it_with_their_place() {
    let step = |body: &str| {
        format!("operations = {{ 'read' }}\nlocal n = 0\nfunction step()\n  n = n + 1\n  {body}\nend")
    };
    for (body, words) in [
        (
            "if n == 50 then missing() end read(n)",
            "test.lua:5:19: attempt to call a nil value (global 'missing')",
        ),
        ("if n < 50 then read(n) end", "asks for no operation"),
        ("read(n) read(n)", "test.lua:5: a second operation"),
        ("update(n)", "test.lua:5: asks for a update, which 'operations' does not name"),
        ("read(-1)", "this is a number below 0"),
        ("setmetatable({}, { __gc = random })", "test.lua:5:3: "),
        ("read({})", "test.lua:5: a key is a record's number"),
        ("sequence(function(op) op.read(n) if n == 9 then error('enough') end end)", "test.lua:5: enough"),
        ("sequence(function(op) end)", "a sequence asks for no operation"),
        ("transaction('TX', function(op) op.read(n) end)", "'transactions' does not name 'TX'"),
        ("local t = {} while true do t[#t + 1] = {} end", "more memory"),
    ] {
        let message = refused(&step(body), "-threads 2 -p script.budget=0");
        assert!(message.contains(words) && !message.contains("panicked"), "{body}\n{message}");
    }
    let place = folder();
    let half = step("if n == 50 then error('enough', 0) end read(n)");
    let ran = run(place.path(), &half, "-p recordcount=10 -p operationcount=100").expect(2);
    assert_eq!(ran.value("[READ], Operations,"), 49.0, "the measurements are reported");
}

#[test]
fn an_endless_loop_in_a_script_is_ended() {
    let looping = |body: &str| format!("operations = {{ 'read' }}\nfunction step()\n  {body}\nend");
    for body in ["while true do end", "sequence(function(op) op.read(1) while true do end end)"] {
        let message = refused(&looping(body), "-p script.budget=5000");
        assert!(
            message.contains("test.lua:3: took more than 5000 instructions (script.budget)"),
            "{message}"
        );
    }
    // A budget applies to an operation, not to the run; 0 means no limit.
    let busy = looping("for i = 1, 1000 do end read(1)");
    assert_eq!(operations(&busy, "-p script.budget=5000").len(), 100);
    let busy = looping("for i = 1, 100000 do end read(1)");
    assert!(refused(&busy, "-p script.budget=5000").contains("script.budget"));
    assert_eq!(operations(&busy, "-p script.budget=0").len(), 100);
}

#[test]
fn a_scripts_properties_are_known_checked_and_explained() {
    let place = folder();
    write(place.path(), "test.lua", TRANSFER);
    let run = |more: &str| {
        serval(
            place.path(),
            &format!(
                "run noop -p workload=test.lua -p recordcount=10 -p operationcount=4 -p failures.allowed=1 {more}"
            ),
        )
    };
    assert!(!run("-p move.share=0.25").expect(0).stderr.contains("unknown property"));
    assert!(run("-p move.share=2").expect(2).stderr.contains("move.share=2: must be a number from 0 to 1"));
    let slip = run("-p move.shre=0.1").expect(2).stderr;
    assert!(slip.contains("unknown property 'move.shre': did you mean 'move.share'?"), "{slip}");
    let text = serval(place.path(), "workloads test.lua").expect(0).stdout;
    for words in ["move.share", "Share of moves.", "default 0.5", "TX-MOVE", "READ, UPDATE", "script.budget"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let json = serval(place.path(), "workloads test.lua --json").expect(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["properties"][0]["name"], "move.share");
    serval(place.path(), "workloads nowhere.lua").expect(2);
}

#[test]
fn a_store_without_the_operations_is_refused_before_the_run() {
    let place = folder();
    write(place.path(), "test.lua", "operations = { 'scan' }\nfunction step() scan(1) end");
    let sets = "-p workload=test.lua -p recordcount=10 -p operationcount=10";
    serval(place.path(), &format!("run noop {sets}")).expect(0);
    let url = "-p db.url=jdbc:mysql://127.0.0.1:1/a;jdbc:mysql://127.0.0.1:2/b";
    let ran = serval(place.path(), &format!("run jdbc {sets} {url}"));
    assert_ne!(ran.status, 0);
}

#[test]
fn the_ready_made_scripts_load_and_run() {
    let place = folder();
    for name in ["workloadc", "sessions", "transfer"] {
        let file = workload(&format!("scripts/{name}.lua"));
        let sets = format!("-p workload={file} -p recordcount=2000 -p sqlite.path={name}.db -threads 2");
        serval(place.path(), &format!("load sqlite {sets}")).expect(0);
        let ran = serval(place.path(), &format!("run sqlite {sets} -p operationcount=2000")).expect(0);
        let count = |metric: &str| ran.value(&format!("[{metric}], Operations,"));
        match name {
            "transfer" => {
                let moves = count("TX-TRANSFER");
                assert!((800.0..1200.0).contains(&moves), "{moves}");
                assert_eq!(count("UPDATE"), 2.0 * moves);
            }
            "sessions" => {
                assert!(count("INSERT") > 50.0 && count("DELETE") > 40.0 && count("UPDATE") > 300.0)
            }
            _ => assert_eq!(count("READ"), 2000.0),
        }
    }
    let bench = format!(
        "bench {} --store memory --operations 500 --warm-up 0 --out out",
        workload("scripts/transfer.lua")
    );
    let ran = serval(place.path(), &bench).expect(0);
    assert!(
        ran.stdout.contains("TX-TRANSFER") && ran.stdout.contains("of transfer.lua on"),
        "{}",
        ran.stdout
    );
}

#[test]
fn the_duration_of_a_stopped_script_is_its_actual_run() {
    let script = "operations = { 'read' }\nlocal n = 0\nfunction step() n = n + 1 if n > 30 then stop() return end \
                  read('k') end";
    let place = folder();
    for (number, more) in ["", "-p maxexecutiontime=3600", "-p target=100000"].into_iter().enumerate() {
        let more = format!("-p operationcount=1000 {more} --result r{number}");
        run(place.path(), script, &more).expect(0);
        let text = std::fs::read_to_string(place.path().join(format!("r{number}/result.json"))).unwrap();
        let result: serde_json::Value = serde_json::from_str(&text).unwrap();
        let overall = &result["overall"];
        assert_eq!(
            (&overall["ended_by"], &overall["operations"]),
            (&"stopped".into(), &30.into()),
            "{overall}"
        );
        assert!(overall["duration_s"].as_f64().unwrap() < 600.0, "{overall}");
    }
}

#[test]
fn the_result_of_a_sequence_overrides_those_of_its_operations() {
    let place = folder();
    serval(place.path(), "load sqlite -p recordcount=1").expect(0);
    for (says, failed) in [("true", 0), ("false", 20), ("nil", 20)] {
        let script = format!(
            "operations = {{ 'read' }} transactions = {{ 'T' }} check = false\n\
             function step() transaction('T', function(op) op.read('nobody') return {says} end) end"
        );
        write(place.path(), "test.lua", &script);
        let words =
            format!("run sqlite -p workload=test.lua -p operationcount=20 -p recordcount=1 --result {says}");
        serval(place.path(), &words);
        let text = std::fs::read_to_string(place.path().join(format!("{says}/result.json"))).unwrap();
        let result: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(result["overall"]["failed"], failed, "{says}: {}", result["overall"]);
    }
}
