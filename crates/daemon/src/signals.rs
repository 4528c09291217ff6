//! What the operating system asks for: stopping, and reading settings again.

use std::io;
use std::process;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Watches for SIGTERM and SIGINT.
///
/// The first signal cancels the token, and the process drains. The second one
/// ends the process at once: nothing is lost by that, it only makes callers ask
/// again.
#[derive(Debug)]
pub struct StopSignal {
    token: CancellationToken,
    _watcher: AbortOnDropHandle<()>,
}

/// Exit code after a second signal, as a shell reports SIGINT.
const EXIT_CODE_INTERRUPTED: i32 = 130;

impl StopSignal {
    /// Begins to watch; from here on the signals no longer end the process.
    ///
    /// # Errors
    ///
    /// When a handler cannot be installed.
    pub fn install() -> io::Result<Self> {
        let mut signals = Signals::install()?;
        let token = CancellationToken::new();
        let first = token.clone();
        let watcher = tokio::spawn(async move {
            let name = signals.next().await;
            tracing::info!(signal = name, "draining");
            first.cancel();
            let name = signals.next().await;
            tracing::warn!(signal = name, "stopping without drain");
            process::exit(EXIT_CODE_INTERRUPTED);
        });
        Ok(Self { token, _watcher: AbortOnDropHandle::new(watcher) })
    }

    /// Cancelled by the first signal.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }
}

/// Does something at every SIGHUP, until it is dropped.
#[derive(Debug)]
pub struct AtHangup {
    _watcher: AbortOnDropHandle<()>,
}

impl AtHangup {
    /// Begins to watch; from here on the signal no longer ends the process.
    ///
    /// # Errors
    ///
    /// When the handler cannot be installed.
    #[cfg(unix)]
    pub fn install(act: impl Fn() + Send + 'static) -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut hangups = signal(SignalKind::hangup())?;
        let watcher = tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                act();
            }
        });
        Ok(Self { _watcher: AbortOnDropHandle::new(watcher) })
    }

    /// There is no such signal here.
    ///
    /// # Errors
    ///
    /// None.
    #[cfg(not(unix))]
    pub fn install(_act: impl Fn() + Send + 'static) -> io::Result<Self> {
        Ok(Self { _watcher: AbortOnDropHandle::new(tokio::spawn(async {})) })
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn install() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn install() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> &'static str {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "ctrl-c",
            // Without a handler the system ends the process itself.
            Err(_) => std::future::pending().await,
        }
    }
}
