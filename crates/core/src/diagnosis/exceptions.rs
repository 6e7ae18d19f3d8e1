//! Exceptions in a log, as printed by the JVM and Python: chains of causes with their frames.
//!
//! [`find`] never fails: it skips anything that is not an exception, and bounds everything it keeps.

/// How many frames to keep per exception.
const MOST_FRAMES: usize = 200;
/// How many lines to keep per message.
const MOST_OF_A_MESSAGE: usize = 6;
/// How many links to keep per chain.
const MOST_LINKS: usize = 32;

/// How deeply JVM and Python exceptions may be nested.
const DEEPEST: usize = 4;

const TRACEBACK: &str = "Traceback (most recent call last):";
const DIRECT_CAUSE: &str = "The above exception was the direct cause of the following exception:";
const WHILE_HANDLING: &str = "During handling of the above exception, another exception occurred:";

/// An exception with all its causes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chain {
    /// From the outermost exception to the innermost cause.
    pub(super) links: Vec<Link>,
    pub(super) weight: Weight,
}

/// How closely an exception is related to the driver's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// It was logged and the program continued.
    Mentioned,
    Error,
    /// It kept the SparkContext from starting.
    NoContext,
    /// It ended the program.
    Fatal,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Link {
    /// With its package.
    pub(super) class: String,
    /// Its lines; the first may be empty.
    pub(super) message: Vec<String>,
    /// Innermost call first, in either language.
    pub(super) frames: Vec<Frame>,
    pub(super) python: bool,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// As printed.
    pub(super) line: String,
    /// The source line, if printed.
    pub(super) code: Option<String>,
    /// `boom.py:3`.
    pub(super) place: String,
    /// Class and method in Java; function in Python.
    pub(super) function: String,
    /// Part of neither Spark nor a library.
    pub(super) own: bool,
}

impl Link {
    /// The name without its package.
    pub(super) fn name(&self) -> &str {
        let name = self.class.rsplit('.').next().unwrap_or(&self.class);
        name.rsplit('$').next().filter(|last| !last.is_empty()).unwrap_or(name)
    }

    /// The first non-empty line of its message.
    pub(super) fn words(&self) -> &str {
        self.message.iter().map(|line| line.trim()).find(|line| !line.is_empty()).unwrap_or_default()
    }

    pub(super) fn own_frame(&self) -> Option<&Frame> {
        self.frames.iter().find(|frame| frame.own)
    }
}

impl Chain {
    pub(super) fn innermost(&self) -> Option<&Link> {
        self.links.last()
    }

    /// Any link whose class ends like this.
    pub(super) fn of(&self, class: &str) -> Option<&Link> {
        self.links.iter().rev().find(|link| link.name() == class)
    }

    /// Any message line that contains these words, innermost link first.
    pub(super) fn saying(&self, words: &str) -> Option<&str> {
        self.links
            .iter()
            .rev()
            .find_map(|link| link.message.iter().find(|line| line.contains(words)))
            .map(String::as_str)
    }

    /// Whether it contains a call of this class.
    pub(super) fn calls(&self, class: &str) -> bool {
        self.links.iter().any(|link| link.frames.iter().any(|frame| frame.function.contains(class)))
    }

    /// The call in the user's program that is nearest to the cause.
    pub(super) fn own_frame(&self) -> Option<&Frame> {
        self.links.iter().rev().find_map(Link::own_frame)
    }
}

/// All exceptions, in the order of the log.
pub(super) fn find(lines: &[String]) -> Vec<Chain> {
    let mut reader = Reader { lines, at: 0, depth: 0 };
    let mut found: Vec<Chain> = Vec::new();
    // The previous exception, if the next one names it as its cause.
    let mut before: Option<Chain> = None;
    while let Some(line) = reader.peek() {
        let is_traceback = line == TRACEBACK;
        if is_traceback || is_syntax_error(line) {
            let weight = reader.before().map_or(Weight::Fatal, traceback_weight);
            if is_traceback {
                reader.at += 1;
            }
            let Some(mut links) = reader.traceback() else { continue };
            if let Some(before) = before.take() {
                links.extend(before.links);
                links.truncate(MOST_LINKS);
            }
            let chain = Chain { links, weight };
            reader.skip_blank();
            if reader.peek().is_some_and(|line| line == DIRECT_CAUSE || line == WHILE_HANDLING) {
                reader.at += 1;
                reader.skip_blank();
                before = Some(chain);
            } else {
                found.push(chain);
            }
            continue;
        }
        if let Some(header) = Header::read(line) {
            let weight = header.weight.max(reader.before().map_or(Weight::Mentioned, logged_weight));
            let links = reader.java(header);
            if links.iter().any(|link| !link.frames.is_empty()) || weight == Weight::Fatal {
                found.push(Chain { links, weight });
            }
            continue;
        }
        reader.at += 1;
    }
    found.extend(before);
    found
}

/// How the log line before an exception rates it.
fn logged_weight(line: &str) -> Weight {
    if line.contains("Error initializing SparkContext") {
        Weight::NoContext
    } else if is_record(line) && (line.contains(" ERROR ") || line.contains("\"level\":\"ERROR\"")) {
        Weight::Error
    } else {
        Weight::Mentioned
    }
}

/// How the line before a traceback rates it.
fn traceback_weight(line: &str) -> Weight {
    if line.starts_with("Exception ignored in") || line.starts_with("Error in atexit") {
        Weight::Mentioned
    } else if line.starts_with("ERROR:") || line.starts_with("CRITICAL:") {
        // Python's logging prints caught exceptions like this.
        Weight::Error
    } else {
        Weight::Fatal
    }
}

/// Whether a line starts a log record: with a date, or in JSON.
pub(super) fn is_record(line: &str) -> bool {
    let digits = |text: &str| text.len() >= 2 && text.bytes().take(2).all(|byte| byte.is_ascii_digit());
    let date = |mark: char| line.split(mark).take(3).filter(|part| digits(part)).count() == 3;
    line.starts_with("{\"ts\"") || (digits(line) && (date('/') || date('-')))
}

/// A script with a syntax error fails without a traceback.
fn is_syntax_error(line: &str) -> bool {
    line.starts_with("  File \"") && python_frame(line).is_some()
}

/// The first line of a Java exception.
struct Header {
    link: Link,
    weight: Weight,
    cause: bool,
}

impl Header {
    fn read(line: &str) -> Option<Header> {
        let (rest, weight, cause) = if let Some(rest) = line.strip_prefix("Caused by: ") {
            (rest, Weight::Mentioned, true)
        } else if let Some(rest) = line.strip_prefix("Exception in thread \"") {
            let (thread, rest) = rest.split_once("\" ")?;
            (rest, if thread == "main" { Weight::Fatal } else { Weight::Error }, false)
        } else {
            (line.strip_prefix(": ").unwrap_or(line), Weight::Mentioned, false)
        };
        let (class, message) = match rest.split_once(':') {
            Some((class, message)) => (class, message.trim()),
            None => (rest, ""),
        };
        let named = ["Exception", "Error", "Throwable"].iter().any(|end| class.ends_with(end));
        let is_class = class.contains('.')
            && class.len() < 256
            && class.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '$'))
            && class.starts_with(|c: char| c.is_ascii_lowercase());
        if !is_class || !(named || cause) {
            return None;
        }
        let link = Link { class: class.to_owned(), message: vec![message.to_owned()], ..Link::default() };
        Some(Header { link, weight, cause })
    }
}

struct Reader<'a> {
    lines: &'a [String],
    at: usize,
    /// Tracebacks nested in exceptions nested in tracebacks.
    depth: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines.get(self.at).map(String::as_str)
    }

    fn before(&self) -> Option<&'a str> {
        self.at.checked_sub(1).and_then(|at| self.lines.get(at)).map(String::as_str)
    }

    fn skip_blank(&mut self) {
        while self.peek().is_some_and(|line| line.trim().is_empty()) {
            self.at += 1;
        }
    }

    /// Reads a Java exception and its causes, starting at the header.
    fn java(&mut self, header: Header) -> Vec<Link> {
        let mut links = Vec::new();
        let mut link = header.link;
        self.at += 1;
        self.worker_traceback(&mut link, &mut links);
        // Inside a suppressed exception, which is not a cause.
        let mut suppressed = false;
        while let Some(line) = self.peek() {
            let trimmed = line.trim_start();
            if let Some(header) = Header::read(line).filter(|header| header.cause) {
                push(&mut links, std::mem::replace(&mut link, header.link));
                suppressed = false;
                self.at += 1;
                self.worker_traceback(&mut link, &mut links);
                continue;
            }
            if is_record(line) || line == TRACEBACK || Header::read(line).is_some() {
                break;
            }
            if trimmed.starts_with("Suppressed: ") {
                suppressed = true;
            } else if let Some(frame) = java_frame(line) {
                if !suppressed && link.frames.len() < MOST_FRAMES {
                    link.frames.push(frame);
                }
            } else if trimmed.starts_with("... ") || line.trim().is_empty() || line == "Driver stacktrace:" {
                // Says nothing.
            } else if link.frames.is_empty() && !suppressed {
                if link.message.len() < MOST_OF_A_MESSAGE {
                    link.message.push(line.to_owned());
                }
            } else if !suppressed {
                break;
            }
            self.at += 1;
        }
        push(&mut links, link);
        // A failed task's own message is the cause, unless one is given.
        if links.len() == 1
            && let Some(task) = links.first().and_then(failed_task)
        {
            links.push(task);
        }
        // A Python worker's traceback is in the message of the exception that carries it.
        if let Some(at) = links.iter().position(|link| link.python)
            && at + 1 < links.len()
        {
            let worker = links.remove(at);
            links.push(worker);
        }
        links
    }

    /// Reads a Python worker's traceback, if the message ends in one.
    fn worker_traceback(&mut self, link: &mut Link, links: &mut Vec<Link>) {
        if !link.message.last().is_some_and(|line| line.ends_with(TRACEBACK)) {
            return;
        }
        if let Some(last) = link.message.last_mut() {
            last.truncate(last.len() - TRACEBACK.len());
        }
        if let Some(worker) = self.traceback() {
            links.retain(|link| !link.python);
            for link in worker {
                push(links, link);
            }
        }
    }

    /// Reads the rest of a Python traceback, its exception and causes, starting after the first line.
    fn traceback(&mut self) -> Option<Vec<Link>> {
        if self.depth >= DEEPEST {
            return None;
        }
        self.depth += 1;
        let links = self.traceback_here();
        self.depth -= 1;
        links
    }

    fn traceback_here(&mut self) -> Option<Vec<Link>> {
        let mut link = Link { python: true, ..Link::default() };
        loop {
            let line = self.peek()?;
            if let Some(frame) = python_frame(line) {
                link.frames.push(frame);
                if link.frames.len() > MOST_FRAMES {
                    link.frames.remove(0);
                }
            } else if line.starts_with("  ") {
                let marks = line.trim().chars().all(|c| matches!(c, '^' | '~'));
                if let Some(frame) = link.frames.last_mut().filter(|frame| frame.code.is_none() && !marks) {
                    frame.code = Some(line.trim().to_owned());
                }
            } else {
                break;
            }
            self.at += 1;
        }
        link.frames.reverse();
        let line = self.peek()?;
        let (class, message) = match line.split_once(':') {
            Some((class, message)) => (class, message.trim()),
            None => (line, ""),
        };
        let named = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_');
        if class.is_empty() || class.len() > 256 || !class.chars().all(named) || link.frames.is_empty() {
            return None;
        }
        self.at += 1;
        class.clone_into(&mut link.class);
        link.message.push(message.to_owned());
        let mut inner = Vec::new();
        while let Some(line) = self.peek() {
            if is_record(line) || line == DIRECT_CAUSE || line == WHILE_HANDLING {
                break;
            }
            if let Some(header) = Header::read(line).filter(|_| line.starts_with(": ")) {
                inner = self.java(header);
                break;
            }
            if line == TRACEBACK {
                // A Python worker's, in the message of the exception that the driver received.
                if link.name() == "PythonException" {
                    self.at += 1;
                    inner = self.traceback().unwrap_or_default();
                }
                break;
            }
            if line.trim().is_empty() && !link.words().is_empty() {
                break;
            }
            if link.message.len() < MOST_OF_A_MESSAGE {
                link.message.push(line.to_owned());
            } else if line.trim().is_empty() {
                break;
            }
            self.at += 1;
        }
        let mut links = vec![link];
        for link in inner {
            push(&mut links, link);
        }
        Some(links)
    }
}

fn push(links: &mut Vec<Link>, link: Link) {
    if links.len() < MOST_LINKS {
        links.push(link);
    }
}

/// `… most recent failure: Lost task 0.0 in stage 0.0 (TID 0) (host executor 1): java.lang.X: why`.
fn failed_task(link: &Link) -> Option<Link> {
    let (_, told) = link.words().split_once("most recent failure: ")?;
    let (_, told) = told.split_once("): ")?;
    let header = Header::read(told)?;
    Some(Link { frames: link.frames.clone(), ..header.link })
}

/// `at org.example.Boom.parse(Boom.java:41)`, with or without a module or class loader prefix.
fn java_frame(line: &str) -> Option<Frame> {
    let call = line.trim_start().strip_prefix("at ")?;
    let (function, place) = call.split_once('(')?;
    let place = place.split_once(')')?.0;
    let function = function.rsplit('/').next().unwrap_or(function);
    if !line.starts_with([' ', '\t']) || function.is_empty() || function.contains(' ') || !function.contains('.') {
        return None;
    }
    Some(Frame {
        line: format!("at {call}"),
        code: None,
        place: place.to_owned(),
        function: function.to_owned(),
        own: !LIBRARIES.iter().any(|library| function.starts_with(library)) || function.starts_with(EXAMPLES),
    })
}

const EXAMPLES: &str = "org.apache.spark.examples.";

/// Packages that are not part of a user's program.
const LIBRARIES: [&str; 33] = [
    "java.",
    "javax.",
    "jdk.",
    "sun.",
    "com.sun.",
    "jakarta.",
    "scala.",
    "kotlin.",
    "org.apache.",
    "org.sparkproject.",
    "py4j.",
    "net.razorvine.",
    "io.netty.",
    "io.fabric8.",
    "io.vertx.",
    "okhttp3.",
    "okio.",
    "com.fasterxml.",
    "com.esotericsoftware.",
    "com.google.",
    "com.amazonaws.",
    "software.amazon.",
    "com.azure.",
    "com.microsoft.azure.",
    "org.json4s.",
    "org.eclipse.jetty.",
    "org.glassfish.",
    "org.codehaus.",
    "org.slf4j.",
    "org.datanucleus.",
    "org.postgresql.",
    "com.mysql.",
    "io.delta.",
];

/// `File "/work/boom.py", line 3, in rate`.
fn python_frame(line: &str) -> Option<Frame> {
    let (file, rest) = line.trim_start().strip_prefix("File \"")?.split_once("\", line ")?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = rest.split_at(digits);
    if number.is_empty() || number.len() > 9 || !(rest.is_empty() || rest.starts_with(", in ")) {
        return None;
    }
    let name = file.rsplit('/').next().unwrap_or(file);
    let library =
        ["/site-packages/", "/dist-packages/", "/lib/python", "pyspark.zip/", "-src.zip/py4j/", "/pyspark/python/"];
    Some(Frame {
        line: line.trim().to_owned(),
        code: None,
        place: format!("{name}:{number}"),
        function: rest.strip_prefix(", in ").unwrap_or_default().to_owned(),
        own: !file.starts_with('<') && !library.iter().any(|part| file.contains(part)),
    })
}
