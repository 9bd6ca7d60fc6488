//! MariaDB stores its tables through nowait, and finds them again.
//!
//! The tests use the preload library only: MariaDB calls `io_submit` of libaio, but calls
//! `io_getevents` through `syscall()`.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_tests::cache;
use nowait_tests::for_each_subject;
use nowait_tests::program::{Output, Program, Running};
use nowait_tests::ready;
use nowait_tests::scratch::Scratch;
use nowait_tests::skip;
use nowait_tests::subject::{Backend, Library, Subject};

/// Small sizes, so that a table does not fit into the buffer pool and the server reads and writes
/// pages.
const SMALL: [&str; 3] = [
    "--innodb-buffer-pool-size=8M",
    "--innodb-log-file-size=8M",
    "--innodb-buffer-pool-chunk-size=2M",
];

/// Makes 40,000 rows of half a kilobyte, changes a tenth of them, deletes a hundredth, and makes
/// the server write the table's pages to its files.
const LOAD: &str = "
CREATE DATABASE nowait; USE nowait;
CREATE TABLE t (id INT PRIMARY KEY, a CHAR(64), b VARCHAR(512), KEY (a)) ENGINE=InnoDB;
INSERT INTO t SELECT seq, MD5(seq), REPEAT(MD5(seq + 1), 14) FROM seq_1_to_20000;
INSERT INTO t SELECT seq, MD5(seq), REPEAT(MD5(seq + 2), 14) FROM seq_20001_to_40000;
UPDATE t SET b = REVERSE(b) WHERE id % 10 = 3;
DELETE FROM t WHERE id % 100 = 7;
FLUSH TABLES t FOR EXPORT; UNLOCK TABLES;
";
/// One more transaction. Its changed pages may still be in the buffer pool when the test kills the
/// server.
const MORE: &str = "USE nowait;
INSERT INTO t SELECT seq + (SELECT MAX(id) FROM t), 'x', 'y' FROM seq_1_to_500;";
const CHECKSUM: &str = "CHECK TABLE nowait.t; CHECKSUM TABLE nowait.t EXTENDED;
SELECT COUNT(*), SUM(CRC32(b)) FROM nowait.t;";

for_each_subject!(tables_survive_a_restart, direct, [preload]);
for_each_subject!(a_killed_server_recovers_what_it_committed, killed, [preload]);

#[test]
fn buffered_tables_survive_a_restart() {
    if let Some(subject) = Subject::chosen(Library::Preload, Backend::Auto) {
        restart(subject, "fsync");
    }
}

fn direct(subject: Subject) {
    restart(subject, "O_DIRECT");
}

fn restart(subject: Subject, flush: &str) {
    let Some(data) = prepared() else { return };
    let mut server = Server::start(subject, data.path(), flush);
    server.query(LOAD);
    let before = server.query(CHECKSUM);
    assert!(before.contains("OK") && before.contains("39600"), "{before}");
    assert_uses_native_aio(subject, &server.stop());
    let mut server = Server::start(subject, data.path(), flush);
    assert_eq!(server.query(CHECKSUM), before, "after the restart");
    assert_uses_native_aio(subject, &server.stop());
}

fn killed(subject: Subject) {
    let Some(data) = prepared() else { return };
    let mut server = Server::start(subject, data.path(), "O_DIRECT");
    server.query(LOAD);
    for _ in 0..5 {
        server.query(MORE);
    }
    let before = server.query(CHECKSUM);
    drop(server); // SIGKILL
    let mut server = Server::start(subject, data.path(), "O_DIRECT");
    assert_eq!(server.query(CHECKSUM), before, "after recovery");
    assert_uses_native_aio(subject, &server.stop());
}

struct Server {
    running: Running,
    socket: PathBuf,
}

impl Server {
    fn start(subject: Subject, data: &Path, flush: &str) -> Self {
        let socket = data.join("socket");
        let mut running = subject
            .launch("mariadbd")
            .args(["--no-defaults", "--user=root", "--skip-networking", "--skip-log-bin"])
            .args(["--innodb-use-native-aio=1", "--innodb-linux-aio=aio"])
            .args(SMALL)
            .arg(format!("--innodb-flush-method={flush}"))
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--tmpdir={}", data.display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", data.join("pid").display()))
            .spawn();
        ready::wait_for_socket(&socket, &mut running);
        Self { running, socket }
    }

    fn query(&mut self, sql: &str) -> String {
        let client = Program::new("mariadb").args(["--no-defaults", "--user=root", "--batch"]);
        let client = client.arg(format!("--socket={}", self.socket.display()));
        let output = client.arg(format!("--execute={sql}")).run();
        if !output.status.success() {
            let server = self.running.stderr();
            panic!("{output}\n--- the server's own words\n{server}");
        }
        output.stdout
    }

    fn stop(self) -> Output {
        // SAFETY: plain numbers: our child, not waited for.
        unsafe { libc::kill(self.running.pid(), libc::SIGTERM) };
        let output = self.running.wait(Duration::from_mins(1));
        assert!(output.status.success(), "shutdown\n{output}");
        output
    }
}

fn assert_uses_native_aio(subject: Subject, output: &Output) {
    assert!(output.stderr.contains("Using Linux native AIO"), "{output}");
    subject.assert_served(output);
}

/// Returns a copy of a new data folder. `cache::folder` keeps the original.
fn prepared() -> Option<Scratch> {
    let needed = ["mariadbd", "mariadb", "mariadb-install-db"];
    skip::unless(skip::missing_program(&needed).and_then(|()| skip::missing_root()))?;
    let version = Program::new("mariadbd").arg("--version").succeed().stdout;
    let template: Result<PathBuf, Infallible> = cache::folder("mariadb-template", &version, |at| {
        install(at);
        Ok(())
    });
    let Ok(template) = template;
    let copy = Scratch::new("mariadb");
    let from = format!("{}/.", template.display());
    Program::new("cp").args(["-a", &from]).arg(copy.path()).succeed();
    Some(copy)
}

fn install(data: &Path) {
    Program::new("mariadb-install-db")
        .args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal"])
        .args(["--skip-test-db", "--skip-name-resolve"])
        .args(SMALL)
        .arg(format!("--datadir={}", data.display()))
        .succeed();
}
