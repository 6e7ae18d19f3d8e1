//! A framing for several streams over one connection: one byte for the kind, four for the length, then the data.
//!
//! Used between agent and shim (attach), and between agent and a command with a terminal.

pub(crate) const STDIN: u8 = 0;
pub(crate) const STDOUT: u8 = 1;
pub(crate) const STDERR: u8 = 2;
/// A terminal's width and height, two bytes each.
pub(crate) const RESIZE: u8 = 4;
/// End of input.
pub(crate) const END: u8 = 255;

const HEAD: usize = 5;
/// A longer frame is invalid.
const LONGEST: usize = 16 << 20;

pub(crate) fn encode(kind: u8, data: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD + data.len());
    frame.push(kind);
    frame.extend_from_slice(&u32::try_from(data.len()).unwrap_or(0).to_be_bytes());
    frame.extend_from_slice(data);
    frame
}

pub(crate) fn encode_size(width: u16, height: u16) -> Vec<u8> {
    encode(RESIZE, &[width.to_be_bytes(), height.to_be_bytes()].concat())
}

/// Width and height.
pub(crate) fn decode_size(data: &[u8]) -> Option<(u16, u16)> {
    let [a, b, c, d] = *data.first_chunk::<4>()?;
    Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
}

/// Takes the next complete frame from a buffer. A frame of invalid length clears the buffer.
pub(crate) fn take(buffer: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let [kind, a, b, c, d] = *buffer.first_chunk::<HEAD>()?;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > LONGEST {
        buffer.clear();
        return None;
    }
    if buffer.len() < HEAD + length {
        return None;
    }
    let data = buffer[HEAD..HEAD + length].to_vec();
    buffer.drain(..HEAD + length);
    Some((kind, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut buffer = [encode(STDIN, b"ab"), encode_size(80, 24), encode(END, b"")].concat();
        let cut = buffer.split_off(9);
        assert_eq!(take(&mut buffer), Some((STDIN, b"ab".to_vec())));
        assert_eq!(take(&mut buffer), None, "half a frame");
        buffer.extend_from_slice(&cut);
        let (kind, size) = take(&mut buffer).expect("a frame");
        assert_eq!((kind, decode_size(&size)), (RESIZE, Some((80, 24))));
        assert_eq!(take(&mut buffer), Some((END, Vec::new())));
        let mut nonsense = vec![0xff; 64];
        assert_eq!(take(&mut nonsense), None);
        assert_eq!(nonsense, [] as [u8; 0]);
    }
}
