//! Durations as Go's `time.ParseDuration` reads them: `90s`, `1h30m`, `1.5h`, `250ms`.

const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3600 * 1_000_000_000),
];
/// The largest magnitude: that of the most negative duration.
const MOST: u64 = 1 << 63;

/// Nanoseconds; `None` if it is not a duration, or too long for one.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let whole: u64 = if digits == 0 { 0 } else { rest[..digits].parse().ok().filter(|n| *n <= MOST)? };
        let mut after = &rest[digits..];
        let mut fraction = "";
        if let Some(behind) = after.strip_prefix('.') {
            let length = behind.bytes().take_while(u8::is_ascii_digit).count();
            (fraction, after) = behind.split_at(length);
        }
        if digits == 0 && fraction.is_empty() {
            return None;
        }
        let letters = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let unit = UNITS.iter().find(|(name, _)| *name == &after[..letters])?.1;
        if whole > MOST / unit {
            return None;
        }
        total = total.checked_add(whole * unit + part(fraction, unit)).filter(|n| *n <= MOST)?;
        rest = &after[letters..];
    }
    match negative {
        true => Some(0_i64.wrapping_sub_unsigned(total)),
        false => i64::try_from(total).ok(),
    }
}

/// A decimal fraction of a unit. Digits beyond what 63 bits hold are ignored.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as in Go")]
fn part(digits: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0_f64);
    for digit in digits.bytes() {
        let Some(next) = value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit - b'0'))) else { break };
        if next > MOST {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_in_go() {
        const SECOND: i64 = 1_000_000_000;
        for (text, expected) in [
            ("90s", Some(90 * SECOND)),
            ("1h30m", Some(5400 * SECOND)),
            ("1.5h", Some(5400 * SECOND)),
            (".5s", Some(SECOND / 2)),
            ("1.s", Some(SECOND)),
            ("+3m", Some(180 * SECOND)),
            ("-3m", Some(-180 * SECOND)),
            ("0", Some(0)),
            ("1µs", Some(1000)),
            ("9223372036854775807ns", Some(i64::MAX)),
            ("9223372036854775808ns", None),
            ("-9223372036854775808ns", Some(i64::MIN)),
            ("", None),
            ("-", None),
            ("3", None),
            ("s", None),
            (".s", None),
            ("1d", None),
            (" 1s", None),
            ("1s ", None),
            ("3000000h", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
