//! The progress output of a lab: one line per step, with its duration. On a terminal the current step is animated;
//! elsewhere it is printed once. Colours are used only on terminals that support them.
//!
//! A failed write does not stop a lab from being removed; it is remembered for [`Screen::end`]. A reader that went away
//! is not an error.

use daemon::{Environment as _, SystemEnvironment};
use std::io::{ErrorKind, IsTerminal as _, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type Out = Arc<Mutex<Box<dyn Write + Send>>>;

/// The animation of the current step.
const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// The output for users.
pub(crate) struct Screen {
    out: Out,
    colours: bool,
    /// Whether lines can be overwritten.
    moves: bool,
    width: Option<usize>,
    quiet: bool,
    last: Instant,
    begun: Instant,
    turning: Option<Turning>,
    fault: Option<std::io::Error>,
}

/// The animated line of the current step.
struct Turning {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").field("colours", &self.colours).finish_non_exhaustive()
    }
}

impl Screen {
    /// A screen on standard output.
    #[must_use]
    pub(crate) fn stdout() -> Self {
        let is_dumb = SystemEnvironment.variable("TERM").is_none_or(|value| value == "dumb");
        let terminal = std::io::stdout().is_terminal() && !is_dumb;
        let mut screen = Self::new(
            Box::new(std::io::stdout()),
            terminal && SystemEnvironment.filled("NO_COLOR").is_none(),
        );
        screen.moves = terminal;
        screen.width = rustix::termios::tcgetwinsize(std::io::stdout())
            .ok()
            .map(|size| usize::from(size.ws_col))
            .filter(|columns| *columns > 0);
        screen
    }

    /// A screen on any output.
    #[must_use]
    pub(crate) fn new(out: Box<dyn Write + Send>, colours: bool) -> Self {
        Self {
            out: Arc::new(Mutex::new(out)),
            colours,
            moves: false,
            width: None,
            quiet: false,
            last: Instant::now(),
            begun: Instant::now(),
            turning: None,
            fault: None,
        }
    }

    /// Sets whether steps are hidden from now on.
    pub(crate) fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Whether colours are used.
    #[must_use]
    pub(crate) fn colours(&self) -> bool {
        self.colours
    }

    /// The width of a line in characters, if it is limited.
    #[must_use]
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Seconds since the start.
    #[must_use]
    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// Prints a heading.
    pub(crate) fn heading(&mut self, text: &str) {
        if !self.quiet {
            let line =
                if self.colours { format!("\n\x1b[1m{text}\x1b[0m\n") } else { format!("\n== {text}\n") };
            self.print(&line);
        }
    }

    /// Begins a step, such as "starting the datastore". It ends with the next line of any kind.
    pub(crate) fn begin(&mut self, text: &str) {
        self.settle();
        if self.quiet {
            return;
        }
        if !self.moves {
            self.print(&format!("    {text} ...\n"));
            return;
        }
        let (stop, stopped) = channel::<()>();
        let (out, text) = (Arc::clone(&self.out), text.to_owned());
        let thread = std::thread::spawn(move || {
            for frame in FRAMES.iter().cycle() {
                // A terminal that went away is noticed by the lines that matter.
                let _ = put(&out, &format!("\r  {frame} {text} ...\x1b[K"));
                if stopped.recv_timeout(Duration::from_millis(100)) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            let _ = put(&out, "\r\x1b[K");
        });
        self.turning = Some(Turning { stop, thread });
    }

    /// Reports a completed step.
    pub(crate) fn done(&mut self, text: &str) {
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        if self.quiet {
            self.settle();
        } else {
            let sign = if self.colours { "\x1b[32m✓\x1b[0m" } else { "✓" };
            self.print(&format!("  {sign} {text} ({seconds:.1} s)\n"));
        }
    }

    /// Reports a failed step.
    pub(crate) fn failed(&mut self, text: &str) {
        let sign = if self.colours { "\x1b[31m✕\x1b[0m" } else { "✕" };
        self.print(&format!("  {sign} {text}\n"));
    }

    /// Prints a remark.
    pub(crate) fn say(&mut self, text: &str) {
        if !self.quiet {
            self.print(&format!("  {text}\n"));
        }
    }

    /// Prints text unchanged, but indented.
    pub(crate) fn indented(&mut self, text: &str) {
        for line in text.lines() {
            self.print(&if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") });
        }
    }

    /// Prints text unchanged.
    pub(crate) fn print(&mut self, text: &str) {
        self.settle();
        if let Err(error) = put(&self.out, text) {
            self.fault.get_or_insert(error);
        }
    }

    /// Whether the output still has a reader.
    #[must_use]
    pub(crate) fn is_read(&self) -> bool {
        self.fault.is_none()
    }

    /// Stops the animation.
    pub(crate) fn settle(&mut self) {
        if let Some(Turning { stop, thread }) = self.turning.take() {
            drop(stop);
            let _ = thread.join();
        }
    }

    /// Checks that everything was written.
    ///
    /// # Errors
    /// The first write error.
    pub(crate) fn end(&mut self) -> std::io::Result<()> {
        self.settle();
        match self.fault.take() {
            // The reader went away: it has seen enough.
            Some(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.settle();
    }
}

fn put(out: &Out, text: &str) -> std::io::Result<()> {
    let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::Screen;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_step_is_named_when_it_begins() {
        let page = Page::default();
        let mut screen = Screen::new(Box::new(page.clone()), false);
        screen.begin("starting the datastore");
        assert_eq!(page.text(), "    starting the datastore ...\n");
        screen.done("it serves");
        assert!(page.text().contains("✓ it serves ("), "{}", page.text());
    }

    #[test]
    fn on_a_terminal_the_line_of_a_step_is_overwritten() {
        let page = Page::default();
        let mut screen = Screen::new(Box::new(page.clone()), false);
        screen.moves = true;
        screen.begin("starting the datastore");
        screen.done("it serves");
        let text = page.text();
        let (moving, rest) = text.rsplit_once("\r\x1b[K").unwrap();
        assert!(moving.contains("starting the datastore ...\x1b[K"), "{text:?}");
        assert!(rest.starts_with("  ✓ it serves"), "{text:?}");
        assert!(!moving.contains('\n'), "{text:?}");
    }

    #[test]
    fn a_quiet_screen_has_no_animation() {
        let page = Page::default();
        let mut screen = Screen::new(Box::new(page.clone()), false);
        screen.set_quiet(true);
        screen.begin("starting");
        screen.done("started");
        assert_eq!(page.text(), "");
    }

    #[test]
    fn write_errors_are_reported_once() {
        let mut screen = Screen::new(Box::new(Full), false);
        screen.print("text");
        assert_eq!(screen.end().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        assert!(screen.end().is_ok(), "it is reported once");
    }
}
