//! Parquet files put together by hand, so that tests can write what no writer would.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) const BOOLEAN: i32 = 0;
pub(crate) const INT32: i32 = 1;
pub(crate) const INT64: i32 = 2;
pub(crate) const FLOAT: i32 = 4;
pub(crate) const BYTE_ARRAY: i32 = 6;

pub(crate) const PLAIN: i32 = 0;
pub(crate) const RLE: i32 = 3;
pub(crate) const DELTA_BYTE_ARRAY: i32 = 7;
pub(crate) const RLE_DICTIONARY: i32 = 8;

pub(crate) const UNCOMPRESSED: i32 = 0;
pub(crate) const SNAPPY: i32 = 1;
pub(crate) const GZIP: i32 = 2;
pub(crate) const LZ4: i32 = 7;
pub(crate) const ZSTD: i32 = 6;

/// A thrift struct in the making.
#[derive(Clone, Default)]
pub(crate) struct Struct {
    bytes: Vec<u8>,
    last: i16,
}

pub(crate) fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn zigzag(value: i64) -> Vec<u8> {
    varint(((value << 1) ^ (value >> 63)) as u64)
}

/// The bytes of a thrift list of structs; `count` may be a lie.
pub(crate) fn list_of(count: usize, elements: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0xfc];
    bytes.extend(varint(count as u64));
    bytes.extend(elements.concat());
    bytes
}

impl Struct {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn head(&mut self, id: i16, kind: u8) {
        self.bytes.push(((id - self.last) as u8) << 4 | kind);
        self.last = id;
    }

    fn with(mut self, id: i16, kind: u8, bytes: &[u8]) -> Self {
        self.head(id, kind);
        self.bytes.extend(bytes);
        self
    }

    pub(crate) fn boolean(self, id: i16, value: bool) -> Self {
        self.with(id, if value { 1 } else { 2 }, &[])
    }

    pub(crate) fn i32(self, id: i16, value: i32) -> Self {
        self.with(id, 5, &zigzag(value.into()))
    }

    pub(crate) fn i64(self, id: i16, value: i64) -> Self {
        self.with(id, 6, &zigzag(value))
    }

    pub(crate) fn text(self, id: i16, value: &str) -> Self {
        self.with(id, 8, &[varint(value.len() as u64), value.as_bytes().to_vec()].concat())
    }

    pub(crate) fn list(self, id: i16, list: &[u8]) -> Self {
        self.with(id, 9, list)
    }

    pub(crate) fn structure(self, id: i16, inner: Struct) -> Self {
        self.with(id, 12, &inner.end())
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}

/// An element of the schema.
pub(crate) fn group(name: &str, repetition: i32, children: i32) -> Struct {
    Struct::new().i32(3, repetition).text(4, name).i32(5, children)
}

pub(crate) fn leaf(name: &str, physical: i32, repetition: i32) -> Struct {
    Struct::new().i32(1, physical).i32(3, repetition).text(4, name)
}

/// The elements of `list<physical>` with required items: definition and repetition levels up to 1.
pub(crate) fn list_of_numbers(name: &str, physical: i32) -> Vec<Struct> {
    vec![group(name, 0, 1).i32(6, 3), group("list", 2, 1), leaf("element", physical, 0)]
}

/// One page: a header and a body, whose sizes may be lies.
#[derive(Clone)]
pub(crate) struct Page {
    pub(crate) kind: i32,
    pub(crate) uncompressed: i32,
    pub(crate) compressed: Option<i32>,
    pub(crate) values: i32,
    pub(crate) encoding: i32,
    pub(crate) body: Vec<u8>,
}

impl Page {
    pub(crate) fn data(values: i32, encoding: i32, body: Vec<u8>) -> Self {
        Self { kind: 0, uncompressed: body.len() as i32, compressed: None, values, encoding, body }
    }

    pub(crate) fn dictionary(values: i32, body: Vec<u8>) -> Self {
        Self { kind: 2, ..Self::data(values, PLAIN, body) }
    }

    /// The same page with its body compressed and its size told truly.
    pub(crate) fn packed(mut self, codec: i32) -> Self {
        self.body = compress(&self.body, codec);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let details = Struct::new().i32(1, self.values).i32(2, self.encoding);
        let head = Struct::new()
            .i32(1, self.kind)
            .i32(2, self.uncompressed)
            .i32(3, self.compressed.unwrap_or(self.body.len() as i32));
        let head = match self.kind {
            0 => head.structure(5, details.i32(3, RLE).i32(4, RLE)),
            _ => head.structure(7, details),
        };
        [head.end(), self.body.clone()].concat()
    }
}

pub(crate) fn compress(bytes: &[u8], codec: i32) -> Vec<u8> {
    use std::io::Write;
    match codec {
        SNAPPY => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
        ZSTD => zstd::bulk::compress(bytes, 19).unwrap(),
        GZIP => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
        _ => bytes.to_vec(),
    }
}

/// A file with one column and one row group.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) schema: Vec<Struct>,
    pub(crate) rows: i64,
    pub(crate) values: i64,
    pub(crate) codec: i32,
    pub(crate) pages: Vec<Page>,
    /// Offset from where the column is to where the footer says it is.
    pub(crate) shift: i64,
    /// What the footer says about the column's size.
    pub(crate) bytes: Option<i64>,
    pub(crate) metadata: Vec<(String, String)>,
}

impl File {
    pub(crate) fn new(schema: Vec<Struct>, rows: i64, values: i64, pages: Vec<Page>) -> Self {
        Self { schema, rows, values, codec: UNCOMPRESSED, pages, shift: 0, bytes: None, metadata: Vec::new() }
    }

    /// One required column of numbers, called `x`.
    pub(crate) fn numbers(physical: i32, rows: i64, pages: Vec<Page>) -> Self {
        Self::new(vec![leaf("x", physical, 0)], rows, rows, pages)
    }

    pub(crate) fn codec(self, codec: i32) -> Self {
        Self { codec, ..self }
    }

    fn data(&self) -> Vec<u8> {
        self.pages.iter().flat_map(Page::bytes).collect()
    }

    /// The footer's struct, without its end.
    pub(crate) fn footer(&self) -> Struct {
        let data = self.data();
        let dictionary = self.pages.first().filter(|page| page.kind == 2).map(|page| page.bytes().len());
        let start = 4 + self.shift;
        let column = Struct::new()
            .i32(1, 0)
            .list(2, &[0x05])
            .list(3, &[0x08])
            .i32(4, self.codec)
            .i64(5, self.values)
            .i64(6, data.len() as i64)
            .i64(7, self.bytes.unwrap_or(data.len() as i64))
            .i64(9, start + dictionary.unwrap_or(0) as i64);
        let column = if dictionary.is_some() { column.i64(11, start) } else { column };
        let chunk = Struct::new().i64(2, start).structure(3, column);
        let row_group = Struct::new().list(1, &list_of(1, &[chunk.end()])).i64(2, data.len() as i64).i64(3, self.rows);
        let mut schema = vec![Struct::new().text(4, "root").i32(5, 1).end()];
        schema.extend(self.schema.iter().cloned().map(Struct::end));
        let footer = Struct::new()
            .i32(1, 2)
            .list(2, &list_of(schema.len(), &schema))
            .i64(3, self.rows)
            .list(4, &list_of(1, &[row_group.end()]));
        let pairs: Vec<_> =
            self.metadata.iter().map(|(key, value)| Struct::new().text(1, key).text(2, value).end()).collect();
        footer.list(5, &list_of(pairs.len(), &pairs))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        with_footer(&self.data(), &self.footer().end())
    }
}

/// Magic, data, footer, its length and magic.
pub(crate) fn with_footer(data: &[u8], footer: &[u8]) -> Vec<u8> {
    [b"PAR1", data, footer, &(footer.len() as u32).to_le_bytes(), b"PAR1"].concat()
}

/// Levels as one run, with the length that a page of the first kind has before them.
pub(crate) fn level_run(level: u8, count: u64) -> Vec<u8> {
    section(&[varint(count << 1), vec![level]].concat())
}

/// Levels of one bit as packed groups.
pub(crate) fn level_bits(levels: &[u8]) -> Vec<u8> {
    let groups = levels.len().div_ceil(8);
    let mut bytes = varint((groups as u64) << 1 | 1);
    bytes.extend(levels.chunks(8).map(|group| group.iter().rev().fold(0, |byte, level| byte << 1 | level)));
    section(&bytes)
}

fn section(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes(), bytes].concat()
}

pub(crate) fn floats(count: usize) -> Vec<u8> {
    (0..count).flat_map(|index| (index as f32 * 0.5 - 3.0).to_le_bytes()).collect()
}
