//! `../schedule/instants.txt` was made by the Go module; see `../schedule/main.go`. Properties hold beyond it.

use firesteel_core::schedule::{Schedule, Zones};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

const TABLE: &str = include_str!("../../schedule/instants.txt");

#[test]
fn a_day_that_never_was_is_passed_over() {
    // Where robfig/cron searches for ever.
    let schedule = Schedule::parse("0 0 * * 0", Some("Pacific/Apia"), &Zones::bundled()).unwrap();
    let next = schedule.next("2011-12-28T12:00:00Z".parse().unwrap()).unwrap();
    assert_eq!(next.to_zoned(schedule.zone().clone()).to_string(), "2012-01-01T00:00:00+14:00[Pacific/Apia]");
}

#[test]
fn instants_are_those_of_robfig_cron() {
    let zones = Zones::bundled();
    let (mut zone, mut start) = ("", Timestamp::UNIX_EPOCH);
    let (mut count, mut errors, mut differ) = (0, 0, Vec::new());
    for line in TABLE.lines() {
        if let Some(name) = line.strip_prefix("zone ") {
            zone = name;
        } else if let Some(time) = line.strip_prefix("start ") {
            start = time.parse().unwrap();
        } else {
            let end = line.rfind('"').unwrap();
            let schedule: String = serde_json::from_str(&line[..=end]).unwrap();
            let expected: Vec<&str> = line[end + 1..].split_whitespace().collect();
            let found = instants(&schedule, zone, start, expected.len(), &zones);
            count += 1;
            errors += usize::from(found == ["error"]);
            if found != expected {
                differ.push(format!("{schedule:?} in {zone:?} from {start}: {found:?} instead of {expected:?}"));
            }
        }
    }
    assert!(
        differ.is_empty(),
        "{} of {count} lines differ:\n{}",
        differ.len(),
        differ[..differ.len().min(20)].join("\n")
    );
    assert!(count > 5000 && errors > 50, "{count} lines, {errors} errors: the table is not whole");
}

fn instants(schedule: &str, zone: &str, start: Timestamp, count: usize, zones: &Zones) -> Vec<String> {
    let Ok(schedule) = Schedule::parse(schedule, Some(zone), zones) else { return vec!["error".to_owned()] };
    let (mut at, mut found) = (start, Vec::new());
    for _ in 0..count {
        let Some(next) = schedule.next(at) else {
            found.push("never".to_owned());
            break;
        };
        found.push((next.as_second() - start.as_second()).to_string());
        at = next;
    }
    found
}

/// A field: its text, and the values that it matches.
#[derive(Debug, Clone)]
struct Field {
    text: String,
    values: Vec<i8>,
    star: bool,
}

fn field(min: i8, max: i8) -> impl Strategy<Value = Field> {
    let star = Just(Field { text: "*".to_owned(), values: (min..=max).collect(), star: true });
    let list = proptest::collection::vec((min..=max, min..=max, 1..=max), 1..4).prop_map(move |parts| {
        let mut field = Field { text: String::new(), values: Vec::new(), star: false };
        let mut texts = Vec::new();
        for (a, b, step) in parts {
            let (low, high) = (a.min(b), a.max(b));
            texts.push(format!("{low}-{high}/{step}"));
            field.values.extend((low..=high).step_by(usize::try_from(step).unwrap()));
        }
        field.text = texts.join(",");
        field
    });
    prop_oneof![star, list]
}

/// Zones whose clock changes are not at midnight, where robfig/cron loses the day.
const PLAIN: &[&str] = &[
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Chatham",
    "America/St_Johns",
    "Antarctica/Troll",
];
const HARD: &[&str] =
    &["Asia/Beirut", "Africa/Cairo", "America/Havana", "America/Sao_Paulo", "Pacific/Apia", "Atlantic/Azores"];

fn schedule(zone: &str, fields: &[Field; 5]) -> Schedule {
    let text: Vec<&str> = fields.iter().map(|field| field.text.as_str()).collect();
    Schedule::parse(&text.join(" "), Some(zone), &Zones::bundled()).unwrap()
}

fn fields() -> impl Strategy<Value = [Field; 5]> {
    (field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)).prop_map(<[Field; 5]>::from)
}

fn instant() -> impl Strategy<Value = Timestamp> {
    // 2012 to 2065.
    (1_325_376_000_i64..3_000_000_000, 0..1_000_000_000_i32).prop_map(|(s, n)| Timestamp::new(s, n).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_next_instant_is_later_and_matches_every_field(
        fields in fields(), zone in proptest::sample::select(PLAIN), at in instant()
    ) {
        let schedule = schedule(zone, &fields);
        let Some(next) = schedule.next(at) else { return Ok(()) };
        prop_assert!(next > at);
        prop_assert_eq!(next.subsec_nanosecond(), 0);
        let shown = next.to_zoned(schedule.zone().clone());
        let [minutes, hours, days, months, weekdays] = &fields;
        prop_assert_eq!(shown.second(), 0);
        prop_assert!(minutes.values.contains(&shown.minute()), "{}", shown);
        prop_assert!(hours.values.contains(&shown.hour()), "{}", shown);
        prop_assert!(months.values.contains(&shown.month()), "{}", shown);
        let day = days.values.contains(&shown.day());
        let weekday = weekdays.values.contains(&shown.weekday().to_sunday_zero_offset());
        let matches = if days.star || weekdays.star { day && weekday } else { day || weekday };
        prop_assert!(matches, "{}", shown);
    }

    #[test]
    fn a_later_start_never_gives_an_earlier_instant(
        fields in fields(), zone in proptest::sample::select(PLAIN), at in instant(), seconds in 0..40_000_000_i64
    ) {
        let schedule = schedule(zone, &fields);
        let later = at + SignedDuration::from_secs(seconds);
        if let (Some(first), Some(second)) = (schedule.next(at), schedule.next(later)) {
            prop_assert!(first <= second);
            // Nothing lies between a start and its instant.
            if first > later {
                prop_assert_eq!(first, second);
            }
        }
    }

    #[test]
    fn time_moves_on_in_any_zone(
        fields in fields(), zone in proptest::sample::select([PLAIN, HARD].concat()), at in instant()
    ) {
        let schedule = schedule(zone, &fields);
        let mut at = at;
        for _ in 0..5 {
            let Some(next) = schedule.next(at) else { return Ok(()) };
            prop_assert!(next > at, "{} after {}", next, at);
            at = next;
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[-*/?,@A-Za-z0-9 =_:.]{0,30}", zone in "[A-Za-z/_+0-9]{0,12}", at in instant()) {
        if let Ok(schedule) = Schedule::parse(&text, Some(&zone), &Zones::bundled()) {
            schedule.next(at);
        }
    }

    #[test]
    fn every_is_a_whole_number_of_seconds_later(seconds in 0_i64..100_000, at in instant()) {
        let schedule = Schedule::parse(&format!("@every {seconds}s900ms"), None, &Zones::bundled()).unwrap();
        let next = schedule.next(at).unwrap();
        prop_assert_eq!(next.as_second() - at.as_second(), seconds.max(1));
        prop_assert_eq!(next.subsec_nanosecond(), 0);
    }
}
