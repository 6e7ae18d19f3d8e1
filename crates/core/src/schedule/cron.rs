//! Cron expressions, as robfig/cron v3 reads them, and the instants they stand for.
//!
//! The existing operator uses that Go module, so manifests rely on what it does, quirks included: `7` is not Sunday, `*-5`
//! is `*`, an empty list never matches, days of month and of week are alternatives unless one of them is `*`, a run in the
//! hour that a clock change skips falls out or moves as its search for the next instant has it, and a schedule without an
//! instant within five years has none at all. Crates that read cron expressions have other rules (croner, for one, knows
//! `L`, `W` and `#`, accepts 7, has no `@every`, and moves skipped runs to the end of the gap). So the search is
//! written out here, step by step as in Go, over jiff's time zones. A table of instants made by the Go module itself proves
//! it (`crates/core/tests/schedule`).
//!
//! Pure: no clock is read, and time zones come from the caller.

use firesteel_api::validate::Problem;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::go_duration;
use super::zones::Zones;

/// Set if a field was `*`, `?` or a step of 1 over either.
const STAR: u64 = 1 << 63;
/// How many years ahead the search goes.
const YEARS: i16 = 5;
/// What a schedule looks like, for messages.
const USAGE: &str =
    "write minute, hour, day of month, month and day of week, such as `30 3 * * mon-fri`, or `@daily`, or `@every 90m`";

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// When runs are due.
#[derive(Debug, Clone)]
pub struct Schedule {
    zone: TimeZone,
    when: When,
}

#[derive(Debug, Clone)]
enum When {
    Fields(Fields),
    /// Whole seconds between two runs.
    Every(i64),
}

/// The values of each field, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
}

/// The values that a field may have.
struct Bounds {
    name: &'static str,
    min: u64,
    max: u64,
    /// Names of the values from `min` on.
    names: &'static [&'static str],
}

const MINUTE: Bounds = Bounds { name: "minute", min: 0, max: 59, names: &[] };
const HOUR: Bounds = Bounds { name: "hour", min: 0, max: 23, names: &[] };
const DAY: Bounds = Bounds { name: "day of month", min: 1, max: 31, names: &[] };
const MONTH: Bounds = Bounds { name: "month", min: 1, max: 12, names: MONTHS };
const WEEKDAY: Bounds = Bounds { name: "day of week", min: 0, max: 6, names: WEEKDAYS };

impl Schedule {
    /// Reads `spec.schedule` and `spec.timeZone`. A zone inside the schedule (`TZ=` or `CRON_TZ=`) takes precedence, but
    /// `spec.timeZone` must exist in any case.
    pub fn parse(schedule: &str, time_zone: Option<&str>, zones: &Zones) -> Result<Self, Problem> {
        let problem = |message: String| Problem { path: "spec.schedule".to_owned(), message };
        let mut zone = match time_zone.filter(|name| !name.is_empty()) {
            Some(name) => zones.find(name).map_err(|message| Problem { path: "spec.timeZone".to_owned(), message })?,
            None => zones.local(),
        };
        let mut rest = schedule;
        if let Some(inside) = schedule.strip_prefix("CRON_TZ=").or_else(|| schedule.strip_prefix("TZ=")) {
            let Some((name, fields)) = inside.split_once(' ') else {
                return Err(problem(format!("{schedule:?} has a time zone and nothing else; {USAGE}")));
            };
            zone = zones.find(name).map_err(problem)?;
            rest = fields;
        }
        let rest = rest.trim();
        let when = if rest.starts_with('@') { descriptor(rest) } else { fields(rest).map(When::Fields) };
        when.map(|when| Schedule { zone, when }).map_err(problem)
    }

    /// The first instant after this one; `None` if there is none within five years.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let second = i64::try_from(after.as_nanosecond().div_euclid(1_000_000_000)).ok()?;
        match &self.when {
            When::Every(seconds) => Timestamp::from_second(second.checked_add(*seconds)?).ok(),
            When::Fields(fields) => fields.next(second.checked_add(1)?, &self.zone),
        }
    }

    /// Whether this instant may have been computed from this schedule at or before `now`.
    pub fn includes(&self, instant: Timestamp, now: Timestamp) -> bool {
        match &self.when {
            When::Every(seconds) => instant.duration_since(now) <= SignedDuration::from_secs(seconds.saturating_add(1)),
            When::Fields(_) if instant > now => self.next(now) == Some(instant),
            When::Fields(_) => {
                let before = instant.checked_sub(SignedDuration::from_secs(1));
                before.ok().and_then(|before| self.next(before)) == Some(instant)
            }
        }
    }

    /// The zone that people read its instants in.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }
}

fn descriptor(text: &str) -> Result<When, String> {
    let first = |bounds: &Bounds| 1 << bounds.min;
    let hourly = Fields {
        minutes: first(&MINUTE),
        hours: all(&HOUR),
        days: all(&DAY),
        months: all(&MONTH),
        weekdays: all(&WEEKDAY),
    };
    let daily = Fields { hours: first(&HOUR), ..hourly };
    let monthly = Fields { days: first(&DAY), ..daily };
    Ok(When::Fields(match text {
        "@yearly" | "@annually" => Fields { months: first(&MONTH), ..monthly },
        "@monthly" => monthly,
        "@weekly" => Fields { weekdays: first(&WEEKDAY), ..daily },
        "@daily" | "@midnight" => daily,
        "@hourly" => hourly,
        _ => {
            let Some(duration) = text.strip_prefix("@every ") else {
                return Err(format!(
                    "{text:?} is not one of @yearly, @monthly, @weekly, @daily, @midnight, @hourly and `@every 90m`"
                ));
            };
            let Some(nanoseconds) = go_duration::parse(duration) else {
                return Err(format!(
                    "{duration:?} is not a duration; write one such as `@every 90s` or `@every 1h30m`"
                ));
            };
            return Ok(When::Every((nanoseconds / 1_000_000_000).max(1)));
        }
    }))
}

fn fields(text: &str) -> Result<Fields, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let &[minutes, hours, days, months, weekdays] = words.as_slice() else {
        let count = words.len();
        return Err(format!("{text:?} has {count} fields instead of 5; {USAGE}"));
    };
    let read = |word: &str, bounds: &Bounds| {
        field(word, bounds).map_err(|problem| format!("the {} {word:?} is not valid: {problem}", bounds.name))
    };
    Ok(Fields {
        minutes: read(minutes, &MINUTE)?,
        hours: read(hours, &HOUR)?,
        days: read(days, &DAY)?,
        months: read(months, &MONTH)?,
        weekdays: read(weekdays, &WEEKDAY)?,
    })
}

/// A list of ranges. Empty entries are skipped, as in Go.
fn field(text: &str, bounds: &Bounds) -> Result<u64, String> {
    text.split(',').filter(|part| !part.is_empty()).try_fold(0, |bits, part| Ok(bits | range(part, bounds)?))
}

/// `N`, `N-M`, `*` or `?`, each with an optional `/step`. `N/step` goes on to the maximum.
fn range(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let mut slashes = text.split('/');
    let ends = slashes.next().unwrap_or_default();
    let (step, more) = (slashes.next(), slashes.next());
    let hyphens: Vec<&str> = ends.split('-').collect();
    let (first, mut last, mut star) = match hyphens.as_slice() {
        // What follows is ignored, as in Go.
        ["*" | "?", ..] => (bounds.min, bounds.max, STAR),
        [one] => {
            let one = value(one, bounds)?;
            (one, one, 0)
        }
        [first, last] => (value(first, bounds)?, value(last, bounds)?, 0),
        _ => return Err("it has more than one hyphen; write `first-last`".to_owned()),
    };
    let step = match (step, more) {
        (None, _) => 1,
        (Some(step), None) => {
            if hyphens.len() == 1 {
                last = bounds.max;
            }
            let step = number(step)?;
            if step > 1 {
                star = 0;
            }
            step
        }
        (Some(_), Some(_)) => return Err("it has more than one slash; write `first-last/step`".to_owned()),
    };
    let Bounds { min, max, .. } = bounds;
    if first < *min {
        return Err(format!("{first} is below {min}"));
    }
    if last > *max {
        let hint = if last == 7 && *max == 6 { "; Sunday is 0" } else { "" };
        return Err(format!("{last} is above {max}{hint}"));
    }
    if first > last {
        return Err(format!("{first} is after {last}; write two ranges, such as `{first}-{max},{min}-{last}`"));
    }
    if step == 0 {
        return Err("the step is 0; write at least 1".to_owned());
    }
    Ok(bits(first, last, step) | star)
}

fn bits(first: u64, last: u64, step: u64) -> u64 {
    let step = usize::try_from(step).unwrap_or(usize::MAX);
    (first..=last).step_by(step).fold(0, |bits, value| bits | 1 << value)
}

fn all(bounds: &Bounds) -> u64 {
    bits(bounds.min, bounds.max, 1) | STAR
}

fn value(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let name = bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match name.and_then(|at| u64::try_from(at).ok()) {
        Some(at) => Ok(at + bounds.min),
        None => number(text),
    }
}

/// As `strconv.Atoi` reads it, without a minus.
fn number(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix('+').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| digits.parse::<i64>().ok()).flatten();
    number.and_then(|number| u64::try_from(number).ok()).ok_or_else(|| format!("{text:?} is not a number"))
}

/// An instant as a clock shows it: Go's `time.Time` in a zone.
#[derive(Debug, Clone, Copy)]
struct Clock<'a> {
    zone: &'a TimeZone,
    unix: i64,
    year: i16,
    month: i8,
    day: i8,
    hour: i8,
    minute: i8,
    second: i8,
    weekday: Weekday,
}

impl<'a> Clock<'a> {
    fn at(unix: i64, zone: &'a TimeZone) -> Option<Self> {
        let shown = zone.to_datetime(Timestamp::from_second(unix).ok()?);
        Some(Clock {
            zone,
            unix,
            year: shown.year(),
            month: shown.month(),
            day: shown.day(),
            hour: shown.hour(),
            minute: shown.minute(),
            second: shown.second(),
            weekday: shown.weekday(),
        })
    }

    /// Go's `time.Date` with the seconds that a day has had. In a gap or an overlap it chooses as Go does: by the offset that
    /// holds where the wall time would be in UTC, looked up again if that leads to another offset.
    fn on(zone: &'a TimeZone, date: Date, seconds: i64) -> Option<Self> {
        let offset = |unix: i64| Some(i64::from(zone.to_offset(Timestamp::from_second(unix).ok()?).seconds()));
        let midnight = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
        let wall = midnight + seconds;
        let unix = wall - offset(wall - offset(wall)?)?;
        Clock::at(unix, zone)
    }

    fn date(&self) -> Option<Date> {
        Date::new(self.year, self.month, self.day).ok()
    }

    /// Seconds since midnight, as shown.
    fn seconds(&self) -> i64 {
        i64::from(self.hour) * 3600 + i64::from(self.minute) * 60 + i64::from(self.second)
    }

    fn plus(self, seconds: i64) -> Option<Self> {
        Clock::at(self.unix + seconds, self.zone)
    }

    /// The same time of day a month later. A day that this month lacks runs over into the next, as in Go.
    fn next_month(self) -> Option<Self> {
        let (year, month) = if self.month == 12 { (self.year + 1, 1) } else { (self.year, self.month + 1) };
        let first = Date::new(year, month, 1).ok()?;
        let date = first.checked_add(SignedDuration::from_hours(24 * (i64::from(self.day) - 1))).ok()?;
        Clock::on(self.zone, date, self.seconds())
    }

    /// This, or so many days after `before` if it is no later. Where a zone left a day out (Apia has no 30 December 2011),
    /// robfig/cron steps on the spot for ever.
    fn later_than(self, before: Self, days: i64) -> Option<Self> {
        if self.unix > before.unix { Some(self) } else { before.plus(days * 24 * 3600) }
    }

    fn next_day(self) -> Option<Self> {
        Clock::on(self.zone, self.date()?.tomorrow().ok()?, self.seconds())
    }
}

impl Fields {
    fn is_empty(&self) -> bool {
        [self.minutes, self.hours, self.days | self.weekdays, self.months].contains(&0)
    }

    fn matches_day(&self, clock: &Clock<'_>) -> bool {
        let day = has(self.days, clock.day);
        let weekday = has(self.weekdays, clock.weekday.to_sunday_zero_offset());
        if (self.days | self.weekdays) & STAR == 0 { day || weekday } else { day && weekday }
    }

    /// The search of robfig/cron, from the second `start` on: the first month, then day, hour, minute and second that match;
    /// back to the month whenever a field starts over.
    fn next(&self, start: i64, zone: &TimeZone) -> Option<Timestamp> {
        // It would search for years and find nothing.
        if self.is_empty() {
            return None;
        }
        let mut clock = Clock::at(start, zone)?;
        let last_year = clock.year.checked_add(YEARS)?;
        // Whether the fields below the first that did not match were reset.
        let mut reset = false;
        'search: loop {
            if clock.year > last_year {
                return None;
            }
            while !has(self.months, clock.month) {
                if !std::mem::replace(&mut reset, true) {
                    clock = Clock::on(zone, clock.date()?.first_of_month(), 0)?;
                }
                clock = clock.next_month()?.later_than(clock, 31)?;
                if clock.month == 1 {
                    continue 'search;
                }
            }
            while !self.matches_day(&clock) {
                if !std::mem::replace(&mut reset, true) {
                    clock = Clock::on(zone, clock.date()?, 0)?;
                }
                let mut next = clock.next_day()?;
                // Where a clock change skips midnight: back to the full hour before, or on to the next.
                if next.hour != 0 {
                    let hours = if next.hour > 12 { 24 - next.hour } else { -next.hour };
                    next = next.plus(i64::from(hours) * 3600)?;
                }
                clock = next.later_than(clock, 1)?;
                if clock.day == 1 {
                    continue 'search;
                }
            }
            while !has(self.hours, clock.hour) {
                if !std::mem::replace(&mut reset, true) {
                    clock = Clock::on(zone, clock.date()?, i64::from(clock.hour) * 3600)?;
                }
                clock = clock.plus(3600)?;
                if clock.hour == 0 {
                    continue 'search;
                }
            }
            while !has(self.minutes, clock.minute) {
                if !std::mem::replace(&mut reset, true) {
                    clock = Clock::at(clock.unix - clock.unix.rem_euclid(60), zone)?;
                }
                clock = clock.plus(60)?;
                if clock.minute == 0 {
                    continue 'search;
                }
            }
            // Runs are due at second 0.
            while clock.second != 0 {
                reset = true;
                clock = clock.plus(1)?;
                if clock.second == 0 {
                    continue 'search;
                }
            }
            return Timestamp::from_second(clock.unix).ok();
        }
    }
}

fn has(bits: u64, value: i8) -> bool {
    bits & (1 << value) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(schedule: &str, zone: Option<&str>) -> String {
        Schedule::parse(schedule, zone, &Zones::bundled()).unwrap_err().to_string()
    }

    #[test]
    fn problems_name_the_field_and_the_remedy() {
        let said = problem("61 * * * *", None);
        assert_eq!(said, "spec.schedule: the minute \"61\" is not valid: 61 is above 59");
        let said = problem("0 0 * * 7", None);
        assert_eq!(said, "spec.schedule: the day of week \"7\" is not valid: 7 is above 6; Sunday is 0");
        let said = problem("0 22-4 * * *", None);
        assert!(said.ends_with("22 is after 4; write two ranges, such as `22-23,0-4`"), "{said}");
        let said = problem("0 3 * *", None);
        assert!(said.starts_with("spec.schedule: \"0 3 * *\" has 4 fields instead of 5; write minute, "), "{said}");
        assert!(problem("@fortnightly", None).contains("is not one of @yearly, @monthly"));
        assert!(problem("@every day", None).contains("\"day\" is not a duration; write one such as `@every 90s`"));
        let said = problem("@daily", Some("Europe/Berln"));
        assert!(said.starts_with("spec.timeZone: \"Europe/Berln\" is not a time zone"), "{said}");
        let said = problem("TZ=europe/berlin @daily", None);
        assert_eq!(said, "spec.schedule: \"europe/berlin\" is not a time zone; write Europe/Berlin");
        assert!(problem("CRON_TZ=UTC", None).contains("has a time zone and nothing else"));
    }
}
