//! What people see of a lab coming up: one line per step, with how long it took; the step under way moves on a terminal
//! and is named once elsewhere. Colours only on a terminal that has them.
//!
//! What cannot be written does not stop a lab from being taken down; it is remembered for [`Screen::end`]. A reader that
//! went away is not a fault.

use daemon::{Environment as _, SystemEnvironment};
use std::io::{ErrorKind, IsTerminal as _, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type Out = Arc<Mutex<Box<dyn Write + Send>>>;

/// What turns while a step is under way.
const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Where lines go.
pub(crate) struct Screen {
    out: Out,
    colours: bool,
    /// Whether lines can be written over.
    moves: bool,
    width: Option<usize>,
    quiet: bool,
    last: Instant,
    begun: Instant,
    turning: Option<Turning>,
    fault: Option<std::io::Error>,
}

/// The line of a step under way.
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
    /// Standard output.
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

    /// Anywhere.
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

    /// Whether steps are shown from now on.
    pub(crate) fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Whether colours are shown.
    #[must_use]
    pub(crate) fn colours(&self) -> bool {
        self.colours
    }

    /// How many characters a line can have, where lines have an end.
    #[must_use]
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// Seconds since the beginning.
    #[must_use]
    pub(crate) fn seconds(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// A heading.
    pub(crate) fn heading(&mut self, text: &str) {
        if !self.quiet {
            let line =
                if self.colours { format!("\n\x1b[1m{text}\x1b[0m\n") } else { format!("\n== {text}\n") };
            self.print(&line);
        }
    }

    /// A step that begins, such as "starting the datastore". It ends with the next line of any kind.
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
                // A terminal that went away is noticed by the lines that count.
                let _ = put(&out, &format!("\r  {frame} {text} ...\x1b[K"));
                if stopped.recv_timeout(Duration::from_millis(100)) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            let _ = put(&out, "\r\x1b[K");
        });
        self.turning = Some(Turning { stop, thread });
    }

    /// A step that is done.
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

    /// A step that failed.
    pub(crate) fn failed(&mut self, text: &str) {
        let sign = if self.colours { "\x1b[31m✕\x1b[0m" } else { "✕" };
        self.print(&format!("  {sign} {text}\n"));
    }

    /// A remark.
    pub(crate) fn say(&mut self, text: &str) {
        if !self.quiet {
            self.print(&format!("  {text}\n"));
        }
    }

    /// Text as it is, moved to the right.
    pub(crate) fn indented(&mut self, text: &str) {
        for line in text.lines() {
            self.print(&if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") });
        }
    }

    /// Text as it is.
    pub(crate) fn print(&mut self, text: &str) {
        self.settle();
        if let Err(error) = put(&self.out, text) {
            self.fault.get_or_insert(error);
        }
    }

    /// Whether what is printed still goes anywhere.
    #[must_use]
    pub(crate) fn is_read(&self) -> bool {
        self.fault.is_none()
    }

    /// Nothing moves any more.
    pub(crate) fn settle(&mut self) {
        if let Some(Turning { stop, thread }) = self.turning.take() {
            drop(stop);
            let _ = thread.join();
        }
    }

    /// Everything was written.
    ///
    /// # Errors
    /// What could not be written first.
    pub(crate) fn end(&mut self) -> std::io::Result<()> {
        self.settle();
        match self.fault.take() {
            // A reader that went away has seen enough.
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
    fn on_a_terminal_the_line_of_a_step_is_written_over() {
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
    fn nothing_moves_when_nothing_is_to_be_shown() {
        let page = Page::default();
        let mut screen = Screen::new(Box::new(page.clone()), false);
        screen.set_quiet(true);
        screen.begin("starting");
        screen.done("started");
        assert_eq!(page.text(), "");
    }

    #[test]
    fn what_cannot_be_written_is_not_forgotten() {
        let mut screen = Screen::new(Box::new(Full), false);
        screen.print("text");
        assert_eq!(screen.end().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        assert!(screen.end().is_ok(), "it is reported once");
    }
}
