//! What the driver will report for its first executors, forecast at submission: its address and the executors' JVM options.
//! With that, executors can start together with the driver.
//!
//! A program may still change its mind before it creates its SparkContext. So [`misfit`] compares the forecast with what the
//! driver reports, and executors that were started with another one are never let in.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::instance::{self, Profile};
use crate::names::{EXECUTOR_ID_PLACEHOLDER, env, key, port};
use crate::pod::settings::Settings;
use crate::submission::SparkConf;
use crate::version::Line;

/// The driver's endpoint that executors register with.
const ENDPOINT: &str = "CoarseGrainedScheduler";
const TLS: &str = "spark.ssl.rpc.enabled";
/// The address of the driver's pod, for information only; the entry point of Spark's images adds it.
const DRIVER_POD_IP: &str = "SPARK_DRIVER_POD_IP";
/// PySpark passes it to Python workers with every task.
const HASH_SEED: &str = "PYTHONHASHSEED";

/// Packages that Spark opens to itself in every JVM it starts, in all supported versions.
const OPENED: [&str; 15] = [
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
];
/// Spark's other options for every JVM, with the lines that have them.
const USUAL: [(&str, Line, Line); 9] = [
    ("-Djava.net.preferIPv6Addresses=false", Line::V3_5, Line::NEWEST),
    ("-XX:+IgnoreUnrecognizedVMOptions", Line::V3_5, Line::NEWEST),
    ("-Djdk.reflect.useDirectMethodHandle=false", Line::V3_5, Line::V4_1),
    ("--add-modules=jdk.incubator.vector", Line::V4_0, Line::NEWEST),
    ("-Dio.netty.tryReflectionSetAccessible=true", Line::V4_0, Line::NEWEST),
    ("-Dio.netty.allocator.type=pooled", Line::V4_1, Line::NEWEST),
    ("-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE", Line::V4_1, Line::NEWEST),
    ("--enable-native-access=ALL-UNNAMED", Line::V4_1, Line::NEWEST),
    ("--sun-misc-unsafe-memory-access=allow", Line::V4_2, Line::NEWEST),
];

/// The environment that the driver will report; `None` if it cannot be known yet.
///
/// `properties` is what the driver reads as its configuration.
pub(super) fn environment(conf: &Settings<'_>, properties: &SparkConf) -> Option<BTreeMap<String, String>> {
    // Executors would have to connect to an address that only the running driver has, or with passwords that only it has.
    let is_true = |key: &str| conf.get(key).is_some_and(|text| text.trim().eq_ignore_ascii_case("true"));
    if is_true(key::EXECUTOR_USES_DRIVER_POD_IP) || is_true(TLS) {
        return None;
    }
    let host = properties.get(key::DRIVER_HOST)?;
    let port = match properties.get(key::DRIVER_PORT) {
        Some(text) => text.trim().parse().ok().filter(|port| *port > 0)?,
        None => port::RPC.1,
    };
    let url = (env::DRIVER_URL.to_owned(), format!("spark://{ENDPOINT}@{host}:{port}"));
    let options = java_options(conf, properties)?;
    let numbered = options.into_iter().enumerate().map(|(n, word)| (format!("{}{n}", env::JAVA_OPT_PREFIX), word));
    Some(numbered.chain([url]).collect())
}

/// The words of the executors' command line before the class path.
fn java_options(conf: &Settings<'_>, properties: &SparkConf) -> Option<Vec<String>> {
    let line = conf.line();
    let usual = USUAL.iter().filter(|(_, from, to)| (*from..=*to).contains(&line)).map(|(word, ..)| (*word).to_owned());
    let opened = OPENED.iter().map(|package| format!("--add-opens={package}=ALL-UNNAMED"));
    let mut words: Vec<String> = usual.chain(opened).collect();
    for key in [key::EXECUTOR_DEFAULT_JAVA_OPTIONS, key::EXECUTOR_JAVA_OPTIONS] {
        let Some(text) = conf.get(key) else { continue };
        let id = properties.get(key::APP_ID)?;
        let text = text.replace("{{APP_ID}}", id).replace("{{EXECUTOR_ID}}", EXECUTOR_ID_PLACEHOLDER);
        words.extend(split(&text)?);
    }
    let settings = properties.iter().filter(|(key, _)| is_for_startup(key, line));
    words.extend(settings.map(|(key, value)| format!("-D{key}={value}")));
    Some(words)
}

/// Whether an executor needs a setting before it can ask its driver for the others; Spark's rule.
fn is_for_startup(key: &str, line: Line) -> bool {
    let is_port = key.starts_with("spark.port.") || (key.starts_with("spark.") && key.ends_with(".port"));
    (key.starts_with("spark.auth") && key != key::AUTH_SECRET)
        || key.starts_with("spark.rpc")
        || key.starts_with("spark.network")
        || (line >= Line::V4_0 && key.starts_with("spark.ssl") && !key.contains("Password"))
        || is_port
}

/// The words of a command line, by Spark's rules for quotes and backslashes; `None` if a quote is left open.
fn split(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, ' ' | '\t' | '\n' | '\r') => words.extend(word.take()),
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (Some(open), _) if letter == open => quote = None,
            // Within double quotes and outside of quotes a backslash takes the next letter as it is.
            (Some('"') | None, '\\') if letters.peek().is_some() => {
                word.get_or_insert_default().extend(letters.next());
            }
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// Why executors started for the profile `forecast` are not those that the driver reports; `None` if they are.
/// `driver_address` is the address of the driver's pod.
pub fn misfit(
    template: &Pod,
    container: &str,
    forecast: &Profile,
    reported: &Profile,
    driver_address: Option<&str>,
) -> Option<String> {
    let spark = |profile: &Profile| -> Option<Container> {
        let pod = instance::executor(template, container, EXECUTOR_ID_PLACEHOLDER, profile, "");
        pod.spec?.containers.into_iter().find(|each| each.name == container)
    };
    let (ours, theirs) = (spark(forecast)?, spark(reported)?);
    if ours.resources != theirs.resources {
        return Some("the executors' resources".to_owned());
    }
    let (ours, theirs) = (Environment::of(&ours), Environment::of(&theirs));
    if let Some(name) = ours.differs(&theirs) {
        return Some(format!("the executors' variable {name}"));
    }
    if let Some(word) = ours.options_differ(&theirs) {
        return Some(format!("the executors' Java option {word}"));
    }
    let same = |ours: &str, theirs: &str| {
        let (ours, theirs) = (address(ours), address(theirs));
        ours == theirs || (ours.1 == theirs.1 && driver_address.is_some_and(|address| theirs.0 == address))
    };
    (!same(&ours.url, &theirs.url)).then(|| "the driver's address".to_owned())
}

/// Host and port of a driver's address.
fn address(url: &str) -> (&str, &str) {
    let place = url.rsplit_once('@').map_or(url, |(_, place)| place);
    let (host, port) = place.rsplit_once(':').unwrap_or((place, ""));
    (host.trim_matches(['[', ']']), port)
}

/// An executor's environment, by what its parts are for.
struct Environment {
    url: String,
    options: Vec<String>,
    /// Without those that do not matter for an executor.
    others: BTreeMap<String, String>,
}

impl Environment {
    fn of(container: &Container) -> Self {
        let mut all = Environment { url: String::new(), options: Vec::new(), others: BTreeMap::new() };
        for variable in container.env.iter().flatten().filter(|variable| variable.value_from.is_none()) {
            let value = variable.value.clone().unwrap_or_default();
            match variable.name.as_str() {
                env::DRIVER_URL => all.url = value,
                DRIVER_POD_IP | HASH_SEED => {}
                name if name.starts_with(env::JAVA_OPT_PREFIX) => all.options.push(value),
                name => drop(all.others.insert(name.to_owned(), value)),
            }
        }
        // Their order follows from a hash table in the driver.
        all.options.sort_unstable();
        all
    }

    /// A variable that only one of the two has with this value.
    fn differs(&self, other: &Environment) -> Option<String> {
        let mut names = self.others.keys().chain(other.others.keys());
        names.find(|name| self.others.get(*name) != other.others.get(*name)).cloned()
    }

    /// An option that only one of the two has. What a forecast opens to Spark beyond what its driver asked for does no harm.
    fn options_differ(&self, reported: &Environment) -> Option<String> {
        let matters = |word: &&String| {
            !word.starts_with("--add-opens=") && !USUAL.iter().any(|(usual, ..)| word.as_str() == *usual)
        };
        let missing = reported.options.iter().find(|word| !self.options.contains(word));
        let surplus = self.options.iter().filter(matters).find(|word| !reported.options.contains(word));
        missing.or(surplus).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_split_as_spark_does() {
        let words = |text: &str| split(text).map(|words| words.join("|"));
        assert_eq!(words("-a  -b\t-c").as_deref(), Some("-a|-b|-c"));
        assert_eq!(words("-Dx=\"a b\" -Dy='c \"d\"'").as_deref(), Some("-Dx=a b|-Dy=c \"d\""));
        assert_eq!(words(r#"a\ b "c\"d" '\'"#).as_deref(), Some(r#"a b|c"d|\"#));
        assert_eq!(words("''").as_deref(), Some(""));
        assert_eq!(words(" ").as_deref(), Some(""));
        assert_eq!(words("-Dx=\"a"), None, "Spark would fail in the driver");
    }

    #[test]
    fn addresses_of_drivers_are_read_with_brackets_and_without() {
        assert_eq!(address("spark://CoarseGrainedScheduler@svc.ns.svc:7078"), ("svc.ns.svc", "7078"));
        assert_eq!(address("spark://CoarseGrainedScheduler@[fd00::1]:7078"), ("fd00::1", "7078"));
    }

    fn profile(env: &[(&str, &str)], memory: &str) -> Profile {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Profile { cpu: "1".to_owned(), memory: memory.to_owned(), env, ..Profile::default() }
    }

    #[test]
    fn what_makes_another_executor_is_a_misfit_and_nothing_else() {
        let template: Pod =
            serde_json::from_value(serde_json::json!({"spec": {"containers": [{"name": "spark", "env": [
                {"name": "MODE", "value": "fast"},
                {"name": "SPARK_EXECUTOR_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
            ]}]}}))
            .unwrap();
        let url = ("SPARK_DRIVER_URL", "spark://CoarseGrainedScheduler@d.svc:7078");
        let (a, b) = (("SPARK_JAVA_OPT_0", "-Da=1"), ("SPARK_JAVA_OPT_1", "-Db=2"));
        let forecast = profile(&[url, a, b], "1Gi");
        let with = |env: &[(&str, &str)], memory: &str| {
            misfit(&template, "spark", &forecast, &profile(env, memory), Some("10.0.0.7"))
        };
        assert_eq!(with(&[url, a, b], "1Gi"), None);
        let (other_a, other_b) = (("SPARK_JAVA_OPT_1", "-Da=1"), ("SPARK_JAVA_OPT_0", "-Db=2"));
        assert_eq!(with(&[url, other_a, other_b], "1Gi"), None, "the order is Spark's own");
        assert_eq!(with(&[url, a, b, (DRIVER_POD_IP, "10.0.0.7"), (HASH_SEED, "0"), ("MODE", "fast")], "1Gi"), None);
        let by_ip = |ip: &str| (env::DRIVER_URL, format!("spark://CoarseGrainedScheduler@{ip}:7078"));
        let (mine, other) = (by_ip("10.0.0.7"), by_ip("10.0.0.8"));
        assert_eq!(with(&[(mine.0, &mine.1), a, b], "1Gi"), None);
        assert_eq!(with(&[(other.0, &other.1), a, b], "1Gi").as_deref(), Some("the driver's address"));
        assert_eq!(with(&[url, a, b], "2Gi").as_deref(), Some("the executors' resources"));
        assert_eq!(with(&[url, a], "1Gi").as_deref(), Some("the executors' Java option -Db=2"));
        let more = ("SPARK_JAVA_OPT_2", "-Dc=3");
        assert_eq!(with(&[url, a, b, more], "1Gi").as_deref(), Some("the executors' Java option -Dc=3"));
        assert_eq!(with(&[url, a, b, ("MODE", "slow")], "1Gi").as_deref(), Some("the executors' variable MODE"));
        assert_eq!(with(&[url, a, b, ("NEW", "1")], "1Gi").as_deref(), Some("the executors' variable NEW"));
    }
}
