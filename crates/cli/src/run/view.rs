//! The output of a run: a live view on a terminal, plain lines elsewhere. Only the driver's log goes to stdout.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::Printer;
use crate::run::stages::Stage;

#[derive(Clone)]
pub(crate) struct View {
    inner: Arc<Inner>,
}

struct Inner {
    /// `None` without a terminal.
    live: Option<Live>,
    /// The last plain line, so that nothing is printed twice.
    said: Mutex<String>,
    told_stages: Mutex<BTreeMap<u64, u64>>,
}

struct Live {
    all: MultiProgress,
    state: ProgressBar,
    bars: Mutex<BTreeMap<u64, ProgressBar>>,
}

impl View {
    pub(crate) fn new() -> Self {
        let live = io::stderr().is_terminal().then(Live::new);
        View { inner: Arc::new(Inner { live, said: Mutex::default(), told_stages: Mutex::default() }) }
    }

    /// Whether stderr is a terminal.
    pub(crate) fn is_live(&self) -> bool {
        self.inner.live.is_some()
    }

    /// Shows the current state.
    pub(crate) fn state(&self, text: &str) {
        match &self.inner.live {
            Some(live) => live.state.set_message(text.to_owned()),
            None => {
                let mut said = self.inner.said.lock().unwrap_or_else(PoisonError::into_inner);
                if *said != text {
                    text.clone_into(&mut said);
                    Printer.talk(text);
                }
            }
        }
    }

    /// The same, but only in the live view.
    pub(crate) fn state_if_live(&self, text: &str) {
        if self.inner.live.is_some() {
            self.state(text);
        }
    }

    /// Prints a line that stays.
    pub(crate) fn line(&self, text: &str) {
        match &self.inner.live {
            Some(live) => live.all.suspend(|| Printer.talk(text)),
            None => Printer.talk(text),
        }
    }

    /// Prints part of the driver's log. False once stdout is closed.
    pub(crate) fn log(&self, bytes: &[u8]) -> bool {
        let write = || {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush()).is_ok()
        };
        match &self.inner.live {
            Some(live) => live.all.suspend(write),
            None => write(),
        }
    }

    /// Shows the progress of a download.
    pub(crate) fn download(&self, what: &str, done: u64, total: Option<u64>) {
        const MB: u64 = 1_000_000;
        let text = match total.filter(|t| *t > 0) {
            // Plain lines come in steps of 10 %.
            Some(total) if self.inner.live.is_none() => {
                format!("{what}: {} % of {} MB", (done * 10 / total) * 10, total / MB)
            }
            Some(total) => format!("{what}: {} of {} MB", done / MB, total / MB),
            None if done == 0 || self.inner.live.is_none() => what.to_owned(),
            None => format!("{what}: {} MB", done / MB),
        };
        self.state(&text);
    }

    /// Shows the stages that Spark reports.
    pub(crate) fn stages(&self, stages: &[Stage]) {
        match &self.inner.live {
            Some(live) => live.stages(stages),
            None => {
                let mut told = self.inner.told_stages.lock().unwrap_or_else(PoisonError::into_inner);
                for stage in stages.iter().filter(|s| s.is_over()) {
                    if told.insert(stage.id, stage.done).is_none() {
                        Printer.talk(stage.sentence());
                    }
                }
            }
        }
    }

    /// Clears the live view.
    pub(crate) fn finish(&self) {
        if let Some(live) = &self.inner.live {
            for bar in live.bars.lock().unwrap_or_else(PoisonError::into_inner).values() {
                bar.finish_and_clear();
            }
            live.state.finish_and_clear();
            let _ = live.all.clear();
        }
    }
}

impl Live {
    fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let state = all.add(ProgressBar::new_spinner());
        state.enable_steady_tick(Duration::from_millis(120));
        Live { all, state, bars: Mutex::default() }
    }

    fn stages(&self, stages: &[Stage]) {
        let mut bars = self.bars.lock().unwrap_or_else(PoisonError::into_inner);
        for stage in stages {
            if stage.is_over() {
                if let Some(bar) = bars.remove(&stage.id) {
                    bar.finish_and_clear();
                }
                continue;
            }
            let bar = bars.entry(stage.id).or_insert_with(|| {
                let style = ProgressStyle::with_template("  {msg:40!} {bar:30} {pos}/{len} tasks");
                let bar = self.all.add(ProgressBar::new(stage.tasks));
                if let Ok(style) = style {
                    bar.set_style(style);
                }
                bar
            });
            bar.set_length(stage.tasks);
            bar.set_position(stage.done);
            bar.set_message(format!("stage {} {}", stage.id, stage.name));
        }
    }
}
