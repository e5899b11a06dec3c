//! Writes small MP4 files box by box. Their frames are no real bitstream: for the index only.

/// One box.
pub(super) fn boxed(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let size = u32::try_from(body.len() + 8).unwrap();
    [&size.to_be_bytes()[..], kind, body].concat()
}

/// Big-endian words one after the other.
pub(super) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// What a small video is made of. Each field is the body of a box.
#[derive(Clone)]
pub(super) struct Movie {
    pub(super) mvhd: Vec<u8>,
    pub(super) tkhd: Vec<u8>,
    pub(super) edts: Option<Vec<u8>>,
    pub(super) mdhd: Vec<u8>,
    pub(super) hdlr: Vec<u8>,
    pub(super) stsd: Vec<u8>,
    pub(super) stts: Vec<u8>,
    pub(super) ctts: Option<Vec<u8>>,
    pub(super) stss: Option<Vec<u8>>,
    pub(super) stsz: Vec<u8>,
    pub(super) stsc: Vec<u8>,
    /// Chunk offsets, from the start of the data.
    pub(super) chunks: Vec<u32>,
    pub(super) mvex: Option<Vec<u8>>,
    pub(super) data: Vec<u8>,
    pub(super) moov_first: bool,
}

/// A sample entry of a codec.
pub(super) fn entry(kind: &[u8; 4], width: u16, height: u16, extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![0; 24];
    body.extend(width.to_be_bytes());
    body.extend(height.to_be_bytes());
    body.extend([0; 50]);
    body.extend(extensions);
    boxed(kind, &body)
}

/// `stsd` with these entries.
pub(super) fn stsd(entries: &[Vec<u8>]) -> Vec<u8> {
    [words(&[0, u32::try_from(entries.len()).unwrap()]), entries.concat()].concat()
}

impl Movie {
    /// Four frames of 10 bytes at 10 per second, 1000 units per second, in two chunks: I B P B in the
    /// order of decoding I P B B, shown from 0 by the edit list.
    pub(super) fn small() -> Self {
        Self {
            mvhd: words(&[0, 0, 0, 600, 240]),
            tkhd: words(&[0, 0, 0, 7]),
            edts: Some(boxed(b"elst", &words(&[0, 1, 240, 100, 0x0001_0000]))),
            mdhd: words(&[0, 0, 0, 1000, 400, 0]),
            hdlr: [words(&[0, 0]), b"vide".to_vec(), vec![0; 13]].concat(),
            stsd: stsd(&[entry(b"avc1", 64, 48, &[])]),
            stts: words(&[0, 1, 4, 100]),
            ctts: Some(words(&[0, 4, 1, 100, 1, 300, 1, 0, 1, 0])),
            stss: Some(words(&[0, 1, 1])),
            stsz: words(&[0, 0, 4, 10, 10, 10, 10]),
            stsc: words(&[0, 2, 1, 3, 1, 2, 1, 1]),
            chunks: vec![0, 30],
            mvex: None,
            data: vec![0xab; 40],
            moov_first: false,
        }
    }

    fn moov(&self, data_at: u32) -> Vec<u8> {
        let optional = |kind, body: &Option<Vec<u8>>| body.as_ref().map(|body| boxed(kind, body)).unwrap_or_default();
        let count = u32::try_from(self.chunks.len()).unwrap();
        let offsets: Vec<u32> = self.chunks.iter().map(|chunk| chunk.wrapping_add(data_at)).collect();
        let stbl = [
            boxed(b"stsd", &self.stsd),
            boxed(b"stts", &self.stts),
            optional(b"ctts", &self.ctts),
            optional(b"stss", &self.stss),
            boxed(b"stsz", &self.stsz),
            boxed(b"stsc", &self.stsc),
            boxed(b"stco", &[words(&[0, count]), words(&offsets)].concat()),
        ]
        .concat();
        let minf = boxed(b"minf", &boxed(b"stbl", &stbl));
        let mdia = boxed(b"mdia", &[boxed(b"mdhd", &self.mdhd), boxed(b"hdlr", &self.hdlr), minf].concat());
        let trak = boxed(b"trak", &[boxed(b"tkhd", &self.tkhd), optional(b"edts", &self.edts), mdia].concat());
        boxed(b"moov", &[boxed(b"mvhd", &self.mvhd), trak, optional(b"mvex", &self.mvex)].concat())
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let ftyp = boxed(b"ftyp", b"isom\0\0\0\0isom");
        let mdat = boxed(b"mdat", &self.data);
        let start = u32::try_from(ftyp.len() + 8).unwrap();
        if self.moov_first {
            let length = u32::try_from(self.moov(0).len()).unwrap();
            [ftyp, self.moov(start + length), mdat].concat()
        } else {
            [ftyp, mdat, self.moov(start)].concat()
        }
    }
}
