//! NumPy's `.npy` files: an array's description and its unchanged bytes, in either memory order and byte order.
//!
//! Crates for this format use typed elements, while Gridloom transfers bytes without interpreting them. They also
//! bring a parser generator for one line of header. Objects, records and texts are not supported.
//!
//! ```text
//! 93 "NUMPY" | major | minor | length of header, u16 (u32 from 2.0), little endian | header | elements
//! header: {'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }
//! ```
//! Source: NumPy Enhancement Proposal 1.

use anyhow::{Context, Result, bail};
use gridloom_base::{ByteOrder, Dtype, Meta, Order};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// The elements start at a multiple of this, in bytes.
const ALIGNMENT: usize = 64;
/// NumPy's code of each element type: a letter and a size.
const CODES: [(&str, Dtype); 16] = [
    ("b1", Dtype::Bool),
    ("i1", Dtype::Int8),
    ("i2", Dtype::Int16),
    ("i4", Dtype::Int32),
    ("i8", Dtype::Int64),
    ("u1", Dtype::Uint8),
    ("u2", Dtype::Uint16),
    ("u4", Dtype::Uint32),
    ("u8", Dtype::Uint64),
    ("f2", Dtype::Float16),
    ("f4", Dtype::Float32),
    ("f8", Dtype::Float64),
    ("f16", Dtype::LongDouble),
    ("c8", Dtype::Complex64),
    ("c16", Dtype::Complex128),
    ("c32", Dtype::ComplexLongDouble),
];

/// True if these bytes begin like a `.npy` file.
pub fn is_npy(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Parses a `.npy` file. Returns the array's description and its elements.
///
/// # Errors
/// If it is not a `.npy` file, or if its elements are not numbers.
pub fn read(bytes: &[u8]) -> Result<(Meta, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC).context("not a .npy file")?;
    let (length, start) = match rest {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 4),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 6),
        [version, ..] => bail!("version {version} of .npy is unknown; known are 1, 2 and 3"),
        [] => bail!("the file ends within its header"),
    };
    let (header, elements) = rest[start..].split_at_checked(length).context("the file ends within its header")?;
    let header = std::str::from_utf8(header).context("the header is not UTF-8")?;
    let meta = parse_header(header).with_context(|| format!("header {}", header.trim()))?;
    match meta.checked_size_bytes() {
        Some(size_bytes) if size_bytes == elements.len() as u64 => Ok((meta, elements)),
        Some(size_bytes) => bail!("a {meta} has {size_bytes} bytes, the file {}", elements.len()),
        None => bail!("its size is beyond 2^64 bytes"),
    }
}

fn parse_header(header: &str) -> Result<Meta> {
    let field = |name: &str| {
        let at = header.find(&format!("'{name}'")).with_context(|| format!("there is no '{name}'"))?;
        let value = header[at + name.len() + 2..].trim_start().strip_prefix(':');
        value.map(str::trim_start).with_context(|| format!("'{name}' has no value"))
    };
    let between = |text: &'_ str, open: char, close: char| -> Option<String> {
        Some(text.strip_prefix(open)?.split_once(close)?.0.to_string())
    };
    let descr = between(field("descr")?, '\'', '\'').context("it contains records; expected numbers")?;
    let code = descr.trim_start_matches(['<', '>', '|', '=']);
    let known = CODES.iter().find(|(known, _)| *known == code);
    let Some(&(_, dtype)) = known else { bail!("it contains elements of type '{descr}'; expected numbers") };
    let byte_order = match descr.as_bytes()[0] {
        b'<' => ByteOrder::Little,
        b'>' => ByteOrder::Big,
        _ => ByteOrder::NATIVE,
    };
    let order = match field("fortran_order")? {
        value if value.starts_with("True") => Order::F,
        value if value.starts_with("False") => Order::C,
        _ => bail!("'fortran_order' is neither True nor False"),
    };
    let extents = between(field("shape")?, '(', ')').context("'shape' is not a tuple")?;
    let extents = extents.split(',').map(str::trim).filter(|extent| !extent.is_empty());
    let shape = extents.map(|extent| extent.parse().with_context(|| format!("extent '{extent}'")));
    Ok(Meta::Array { dtype, byte_order, order, shape: shape.collect::<Result<_>>()? })
}

/// Returns a `.npy` file with these elements.
///
/// # Errors
/// If they are not numbers.
pub fn write(meta: &Meta, elements: &[u8]) -> Result<Vec<u8>> {
    let (dtype, byte_order, order, shape) = match meta {
        Meta::Scalar { dtype, byte_order } => (dtype, byte_order, Order::C, &[][..]),
        Meta::Array { dtype, byte_order, order, shape } => (dtype, byte_order, *order, &shape[..]),
        Meta::Text { .. } | Meta::Bytes { .. } | Meta::List { .. } => {
            bail!("a {meta} cannot be saved as .npy; only numbers can")
        }
    };
    let (code, _) = CODES.iter().find(|(_, known)| known == dtype).expect("the table has every element type");
    let byte_order = match (dtype.size_bytes(), byte_order) {
        (1, _) => '|',
        (_, ByteOrder::Little) => '<',
        (_, ByteOrder::Big) => '>',
    };
    let fortran = if order == Order::F { "True" } else { "False" };
    let extents: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    let mut header =
        format!("{{'descr': '{byte_order}{code}', 'fortran_order': {fortran}, 'shape': ({}), }}", extents.trim_end());
    const PREFIX: usize = MAGIC.len() + 4;
    let size = (PREFIX + header.len() + 1).next_multiple_of(ALIGNMENT) - PREFIX;
    header.extend(std::iter::repeat_n(' ', size - header.len() - 1));
    header.push('\n');
    let length = u16::try_from(header.len()).context("too many dimensions for a .npy file")?;
    let parts = [MAGIC, &[1, 0][..], &length.to_le_bytes(), header.as_bytes(), elements];
    Ok(parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for dtype in Dtype::ALL {
            for (order, shape) in
                [(Order::C, vec![2, 3]), (Order::F, vec![3, 2]), (Order::C, vec![]), (Order::C, vec![0])]
            {
                let size = dtype.size_bytes() * shape.iter().product::<u64>();
                let elements: Vec<u8> = (0..size).map(|at| at as u8).collect();
                let meta = Meta::Array { dtype, byte_order: ByteOrder::NATIVE, order, shape };
                let file = write(&meta, &elements).unwrap();
                assert_eq!(read(&file).unwrap(), (meta, &elements[..]));
                assert_eq!((file.len() - elements.len()) % ALIGNMENT, 0);
            }
        }
    }

    #[test]
    fn a_file_of_numpy_is_read() {
        // np.save of np.array([[1], [2]], dtype=">i2"), NumPy 2.3.
        let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        file.extend(format!("{:<117}\n", "{'descr': '>i2', 'fortran_order': False, 'shape': (2, 1), }").bytes());
        file.extend([0, 1, 0, 2]);
        let (meta, elements) = read(&file).unwrap();
        assert_eq!(elements, [0, 1, 0, 2]);
        let expected = (Dtype::Int16, ByteOrder::Big, Order::C, vec![2, 1]);
        let Meta::Array { dtype, byte_order, order, shape } = meta else { panic!("{meta}") };
        assert_eq!((dtype, byte_order, order, shape), expected);
    }

    #[test]
    fn damage_is_named() {
        let file = write(&Meta::array(Dtype::Float64, &[2]), &[0; 16]).unwrap();
        let says = |bytes: &[u8]| format!("{:#}", read(bytes).unwrap_err());
        assert_eq!(says(b"hello"), "not a .npy file");
        assert_eq!(says(&file[..40]), "the file ends within its header");
        assert_eq!(says(&file[..file.len() - 1]), "a float64[2] has 16 bytes, the file 15");
        assert!(says(&replaced(&file, "<f8", "|O8")).ends_with("it contains elements of type '|O8'; expected numbers"));
        assert!(says(&replaced(&file, "(2,)", "(x,)")).contains("extent 'x'"));
        for length in 0..file.len() {
            assert!(read(&file[..length]).is_err());
        }
    }

    fn replaced(file: &[u8], from: &str, to: &str) -> Vec<u8> {
        let mut file = file.to_vec();
        let at = file.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        file[at..at + from.len()].copy_from_slice(to.as_bytes());
        file
    }
}
