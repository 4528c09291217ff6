//! A writer or a replica as a process of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use headwater_s3_double::{ACCESS_KEY_ID, SECRET_ACCESS_KEY};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdout, Command};
use tokio::time::timeout;

use super::proxy::Proxy;
use super::{RealError, setup};

/// A process says where it listens within this time.
const START_MAX: Duration = Duration::from_secs(30);
/// A process that was asked to stop has ended by then.
const STOP_MAX: Duration = Duration::from_secs(40);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Writer,
    Replica,
}

/// A place for a process: its address for clients stays, whoever is in it.
pub(super) struct Child {
    pub(super) program: Program,
    pub(super) name: String,
    /// From clients to the process.
    pub(super) front: Proxy,
    /// From the process to the store.
    pub(super) back: Proxy,
    path: PathBuf,
    url: String,
    /// Counts processes in here: each second one has other settings.
    n_started: u64,
    running: Option<Running>,
}

struct Running {
    process: tokio::process::Child,
    /// Kept so that the process can go on writing.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Makes the place and starts a process in it. `url` is the store's, and
    /// `endpoint` the part of it that names the server.
    pub(super) async fn start(
        program: Program,
        n: usize,
        programs: &Path,
        url: &str,
        endpoint: &str,
    ) -> Result<Self, RealError> {
        let server = endpoint.trim_start_matches("http://").parse();
        let server = server.map_err(|_| RealError::Begin(format!("not a server: {endpoint}")))?;
        let back = Proxy::start(Some(server)).await.map_err(setup("a proxy"))?;
        let front = Proxy::start(None).await.map_err(setup("a proxy"))?;
        let url = url.replace(endpoint, &format!("http://{}", back.address()));
        let (file, kind) = match program {
            Program::Writer => ("headwater-writer", "writer"),
            Program::Replica => ("headwater-replica", "replica"),
        };
        let (path, name) = (programs.join(file), format!("{kind} {n}"));
        let running = None;
        let mut child = Self { program, name, front, back, path, url, n_started: 0, running };
        child.restart().await?;
        Ok(child)
    }

    /// Starts a process; the one before it is on its own from here on.
    async fn spawn(&mut self) -> Result<Option<Running>, RealError> {
        self.n_started += 1;
        let mut command = Command::new(&self.path);
        command.args(["--listen", "127.0.0.1:0", "--store", &self.url]);
        command.args(self.settings());
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY_ID);
        command.env("AWS_SECRET_ACCESS_KEY", SECRET_ACCESS_KEY);
        command.env("HEADWATER_LOG", "error");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.kill_on_drop(true);
        let what = format!("starting {}", self.path.display());
        let mut process = command.spawn().map_err(setup(what.clone()))?;
        let missing = || RealError::Begin(format!("{what}: it does not say where it listens"));
        let stdout = process.stdout.take().ok_or_else(missing)?;
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(START_MAX, lines.next_line()).await.map_err(|_| missing())?;
        let line = line.map_err(setup(what.clone()))?.ok_or_else(missing)?;
        let address = line.rsplit(' ').next().and_then(|it| it.parse().ok()).ok_or_else(missing)?;
        self.front.set_target(Some(address));
        Ok(self.running.replace(Running { process, _lines: lines }))
    }

    /// Settings under which maintenance happens all the time. They change with
    /// every start, as they do from one build to the next.
    fn settings(&self) -> Vec<String> {
        let is_odd = self.n_started % 2 == 1;
        let settings: &[(&str, u64, u64)] = match self.program {
            Program::Writer => &[
                ("--writer-fold-changes", 8, 40),
                ("--writer-compact-tail-versions", 600, 900),
                ("--writer-compact-keep-versions", 300, 400),
                ("--writer-batch-operations-max", 4_096, 3),
                ("--writer-inline-bytes-max", 4_096, 100),
                ("--writer-retain-versions", 100, 100),
                ("--writer-retain-age-ms", 0, 0),
                ("--writer-sweep-every-ms", 1_500, 2_500),
                ("--writer-sweep-grace-ms", 2_000, 5_000),
                ("--writer-operation-timeout-ms", 10_000, 4_000),
            ],
            Program::Replica => &[
                ("--replica-poll-ms", 100, 1_000),
                ("--replica-checks-in-flight-max", 3, 1),
                ("--replica-recent-versions-max", 1_024, 8),
            ],
        };
        let pick = |(flag, odd, even): &(&str, u64, u64)| {
            [(*flag).to_owned(), if is_odd { odd } else { even }.to_string()]
        };
        settings.iter().flat_map(pick).collect()
    }

    /// Starts a process where there is none.
    pub(super) async fn restart(&mut self) -> Result<(), RealError> {
        if self.running.is_none() {
            let _none = self.spawn().await?;
        }
        Ok(())
    }

    /// SIGKILL. Returns once the process is gone.
    pub(super) async fn kill(&mut self) {
        self.front.set_target(None);
        if let Some(mut running) = self.running.take() {
            let _gone = running.process.kill().await;
        }
    }

    /// A signal by its name, without waiting for what it does.
    pub(super) async fn signal(&self, signal: &str) {
        let id = self.running.as_ref().and_then(|it| it.process.id());
        if let Some(id) = id {
            send(id, signal).await;
        }
    }

    /// A newer process takes over: it is started, clients are sent to it, and
    /// the older one is asked to stop.
    pub(super) async fn upgrade(&mut self) -> Result<(), RealError> {
        if let Some(mut old) = self.spawn().await?
            && let Some(id) = old.process.id()
        {
            send(id, "TERM").await;
            if timeout(STOP_MAX, old.process.wait()).await.is_err() {
                return Err(RealError::Begin(format!("{} does not stop", self.name)));
            }
        }
        Ok(())
    }

    /// The end of it.
    pub(super) async fn stop(mut self) {
        self.signal("TERM").await;
        if let Some(running) = &mut self.running {
            let _late = timeout(STOP_MAX, running.process.wait()).await;
        }
        self.kill().await;
    }
}

/// By the command of that name: a signal takes `unsafe` code otherwise.
async fn send(id: u32, signal: &str) {
    let sent = Command::new("kill").args([format!("-{signal}"), id.to_string()]).status();
    // A process that is gone wants none.
    let _gone = sent.await;
}
