//! The `Main-Class` of a jar, read from its manifest.

use std::io::Read;

use flate2::read::DeflateDecoder;

const MANIFEST: &[u8] = b"META-INF/MANIFEST.MF";
/// Maximum size of a manifest; larger ones are truncated.
const LIMIT: u64 = 16 << 20;

/// The main class in a jar's manifest, or why there is none, as a clause.
pub(super) fn main_class(jar: &[u8]) -> Result<String, &'static str> {
    let manifest = manifest(jar)?;
    attribute(&String::from_utf8_lossy(&manifest), "Main-Class").ok_or("its manifest has no Main-Class")
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)).ok()
}

fn manifest(jar: &[u8]) -> Result<Vec<u8>, &'static str> {
    const BROKEN: &str = "it is not a valid jar";
    let entry = central_directory(jar).ok_or(BROKEN)?.ok_or("it has no manifest")?;
    let data = entry_data(jar, &entry).ok_or(BROKEN)?;
    let mut out = Vec::new();
    match entry.method {
        0 => out.extend_from_slice(data),
        8 => {
            DeflateDecoder::new(data).take(LIMIT).read_to_end(&mut out).map_err(|_| BROKEN)?;
        }
        _ => return Err("its manifest uses an unknown compression method"),
    }
    Ok(out)
}

struct Entry {
    method: usize,
    packed: usize,
    header: usize,
}

/// The manifest's entry in the zip's central directory; the outer option is `None` if the file is not a zip.
fn central_directory(jar: &[u8]) -> Option<Option<Entry>> {
    let earliest = jar.len().saturating_sub(22 + 65_535);
    let end = (earliest..=jar.len().checked_sub(22)?).rev().find(|at| jar[*at..].starts_with(b"PK\x05\x06"))?;
    let count = u16_at(jar, end + 10)?;
    let mut at = u32_at(jar, end + 16)?;
    for _ in 0..count {
        if !jar.get(at..)?.starts_with(b"PK\x01\x02") {
            return None;
        }
        let (name_len, extra, comment) = (u16_at(jar, at + 28)?, u16_at(jar, at + 30)?, u16_at(jar, at + 32)?);
        let name = jar.get(at + 46..at + 46 + name_len)?;
        if name.eq_ignore_ascii_case(MANIFEST) {
            let entry =
                Entry { method: u16_at(jar, at + 10)?, packed: u32_at(jar, at + 20)?, header: u32_at(jar, at + 42)? };
            return Some(Some(entry));
        }
        at += 46 + name_len + extra + comment;
    }
    Some(None)
}

fn entry_data<'a>(jar: &'a [u8], entry: &Entry) -> Option<&'a [u8]> {
    let start = entry.header + 30 + u16_at(jar, entry.header + 26)? + u16_at(jar, entry.header + 28)?;
    jar.get(start..start.checked_add(entry.packed)?)
}

/// A main attribute: the name is case-insensitive, the value may continue on lines that start with a space.
fn attribute(manifest: &str, name: &str) -> Option<String> {
    let mut value: Option<String> = None;
    for line in manifest.lines() {
        if line.is_empty() {
            break;
        }
        match (&mut value, line.strip_prefix(' ')) {
            (Some(value), Some(more)) => value.push_str(more),
            (Some(_), None) => break,
            (None, _) => {
                if let Some((key, rest)) = line.split_once(": ")
                    && key.eq_ignore_ascii_case(name)
                {
                    value = Some(rest.to_owned());
                }
            }
        }
    }
    value.map(|v| v.trim().to_owned()).filter(|v| !v.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    /// A jar with one entry, compressed or not.
    fn jar(name: &str, content: &str, packed: bool) -> Vec<u8> {
        let mut data = content.as_bytes().to_vec();
        if packed {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(content.as_bytes()).unwrap();
            data = encoder.finish().unwrap();
        }
        let sizes = |out: &mut Vec<u8>| {
            out.extend([0; 4]);
            out.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
            out.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
            out.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
            out.extend([0; 2]);
        };
        let method: u16 = if packed { 8 } else { 0 };
        let mut out = b"PK\x03\x04\x14\0\0\0".to_vec();
        out.extend(method.to_le_bytes());
        out.extend([0; 4]);
        sizes(&mut out);
        out.extend(name.as_bytes());
        out.extend(&data);
        let directory = u32::try_from(out.len()).unwrap();
        out.extend(b"PK\x01\x02\x14\0\x14\0\0\0");
        out.extend(method.to_le_bytes());
        out.extend([0; 4]);
        sizes(&mut out);
        out.extend([0; 14]);
        out.extend(name.as_bytes());
        let end = u32::try_from(out.len()).unwrap();
        out.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
        out.extend((end - directory).to_le_bytes());
        out.extend(directory.to_le_bytes());
        out.extend([0; 2]);
        out
    }

    const NAME: &str = "META-INF/MANIFEST.MF";

    #[test]
    fn the_main_class_is_found_packed_or_not() {
        let manifest = "Manifest-Version: 1.0\r\nmain-class: com.example.Main\r\n\r\n";
        for packed in [true, false] {
            assert_eq!(main_class(&jar(NAME, manifest, packed)), Ok("com.example.Main".to_owned()));
        }
    }

    #[test]
    fn a_long_name_goes_on_over_the_line_and_later_sections_do_not_count() {
        let manifest = "Main-Class: com.example.Ve\n ryLong\n\nName: x\nMain-Class: no\n";
        assert_eq!(main_class(&jar(NAME, manifest, true)), Ok("com.example.VeryLong".to_owned()));
        let later = "Manifest-Version: 1.0\n\nName: x\nMain-Class: no\n";
        assert_eq!(main_class(&jar(NAME, later, true)), Err("its manifest has no Main-Class"));
    }

    #[test]
    fn what_is_no_jar_or_has_no_manifest_is_told_apart() {
        assert_eq!(main_class(b""), Err("it is not a valid jar"));
        assert_eq!(main_class(b"print(1)"), Err("it is not a valid jar"));
        assert_eq!(main_class(&jar("x", "y", false)), Err("it has no manifest"));
    }

    proptest! {
        #[test]
        fn broken_jars_never_panic(cut in 0usize..200, at in 0usize..200, byte: u8) {
            let mut bytes = jar(NAME, "Main-Class: a.B\n", true);
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Some(b) = bytes.get_mut(at) {
                *b = byte;
            }
            let _ = main_class(&bytes);
        }
    }
}
