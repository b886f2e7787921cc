//! NumPy's `.npy` files.
//!
//! | dtype | descriptor written | also read |
//! |---|---|---|
//! | f64, f32, f16 | `<f8`, `<f4`, `<f2` | |
//! | i64, i32, i16, i8, ui64, ui32, ui16, ui8 | `<i8`, `<i4`, `<i2`, `\|i1`, `<u8`, `<u4`, `<u2`, `\|u1` | `<i1`, `<u1` |
//! | i1 | `\|b1` | `<b1`, `?` |
//! | bf16 | `<V2` | `\|V2`, `bfloat16` |
//! | f8E4M3FN, f8E5M2 | `<V1`, `<f1` | `\|V1`, `\|f1`, `float8_e4m3fn`, `float8_e5m2` |
//!
//! NumPy has no bf16: `<V2` (two bytes of no type) is what `numpy.save` writes for an array of `ml_dtypes.bfloat16`,
//! and what `numpy.load(file).view(ml_dtypes.bfloat16)` reads back. So every two-byte void is taken for bf16. The same
//! holds for 8-bit floats, `ml_dtypes.float8_e4m3fn` and `ml_dtypes.float8_e5m2`.

mod header;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use crate::files::write_whole;
use crate::tensor::{DType, Tensor, byte_size};
use crate::{Error, Result};
use header::Header;
pub use header::descriptor;

/// Reads a file. Errors name it, what was expected and what was found: a wrong magic number, a descriptor of no
/// dtype here, big-endian or Fortran order, a length that is not the shape's.
pub fn read(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    let metadata = file.metadata().map_err(|e| Error::io(path, e))?;
    let mut reader = BufReader::new(file);
    let (header, header_size) = header::read(&mut reader, path)?;
    let Header { dtype, shape } = header;
    let size = byte_size(dtype, &shape).map_err(|e| Error::format(path, "a shape that fits memory", e.to_string()))?;
    let length_error = |found: u64| {
        Error::format(path, format!("{size} bytes of data for shape {shape:?} of {dtype}"), format!("{found} bytes"))
    };
    // A pipe has no length; for a file, compare before allocating what a corrupt header may ask for.
    if metadata.is_file() && metadata.len() != header_size + size as u64 {
        return Err(length_error(metadata.len().saturating_sub(header_size)));
    }
    let mut tensor = Tensor::zeros(dtype, &shape)?;
    let bytes = tensor.bytes_mut()?;
    read_exactly(&mut reader, bytes).map_err(|e| match e {
        Short::Ended(found) => length_error(found as u64),
        Short::Failed(e) => Error::io(path, e),
    })?;
    if reader.read(&mut [0]).map_err(|e| Error::io(path, e))? != 0 {
        return Err(length_error(size as u64 + 1));
    }
    check_bools(&tensor, path)?;
    Ok(tensor)
}

/// Reads a file and checks its dtype and shape (`None` stands for any extent).
pub fn read_expecting(path: impl AsRef<Path>, dtype: DType, shape: &[Option<usize>]) -> Result<Tensor> {
    let path = path.as_ref();
    let tensor = read(path)?;
    tensor.expect(&path.display().to_string(), dtype, shape)?;
    Ok(tensor)
}

/// Writes a file. It appears whole or not at all: the bytes go to a file beside it that is then renamed.
pub fn write(path: impl AsRef<Path>, tensor: &Tensor) -> Result<()> {
    let path = path.as_ref();
    write_whole(path, |file| write_to(file, tensor)).map_err(|e| Error::io(path, e))
}

/// Writes header and data.
pub fn write_to(mut writer: impl Write, tensor: &Tensor) -> io::Result<()> {
    writer.write_all(&header::encode(tensor.dtype(), tensor.shape()))?;
    writer.write_all(tensor.bytes())?;
    writer.flush()
}

enum Short {
    Ended(usize),
    Failed(io::Error),
}

/// Fills `bytes`, or says how many there were.
fn read_exactly(reader: &mut impl Read, bytes: &mut [u8]) -> std::result::Result<(), Short> {
    let mut filled = 0;
    while filled < bytes.len() {
        match reader.read(&mut bytes[filled..]) {
            Ok(0) => return Err(Short::Ended(filled)),
            Ok(count) => filled += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Short::Failed(e)),
        }
    }
    Ok(())
}

/// A `bool` that is neither 0 nor 1 would behave differently from kernel to kernel.
pub(crate) fn check_bools(tensor: &Tensor, path: &Path) -> Result<()> {
    if tensor.dtype() != DType::Bool {
        return Ok(());
    }
    match tensor.bytes().iter().position(|&byte| byte > 1) {
        None => Ok(()),
        Some(i) => Err(Error::format(path, "bools of 0 or 1", format!("{} in element {i}", tensor.bytes()[i]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn every_dtype_round_trips() {
        let folder = folder();
        for (k, dtype) in DType::ALL.into_iter().enumerate() {
            for shape in [&[][..], &[1], &[0], &[7, 1, 13], &[3, 0, 5]] {
                let path = folder.path().join(format!("{dtype}.npy"));
                let tensor = Tensor::random_input(dtype, shape, 11, k as u32).unwrap();
                write(&path, &tensor).unwrap();
                let read = read(&path).unwrap();
                assert_eq!((read.dtype(), read.shape(), read.bytes()), (dtype, shape, tensor.bytes()));
            }
        }
        // Only the files themselves remain.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), DType::ALL.len());
    }

    #[test]
    fn writes_what_numpy_writes() {
        // numpy.save of numpy.array([[1, 2, 3]], dtype=numpy.float32), byte for byte.
        let mut expected =
            b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }".to_vec();
        expected.resize(127, b' ');
        expected.push(b'\n');
        expected.extend([1.0f32, 2.0, 3.0].iter().flat_map(|x| x.to_le_bytes()));
        let mut found = Vec::new();
        write_to(&mut found, &Tensor::from_slice(&[1, 3], &[1.0f32, 2.0, 3.0]).unwrap()).unwrap();
        assert_eq!(found, expected);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let folder = folder();
        let path = folder.path().join("x.npy");
        let mut whole = Vec::new();
        write_to(&mut whole, &Tensor::random_input(DType::F16, &[5, 3], 1, 0).unwrap()).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("x.npy: expected "), "{length}: {error}");
        }
        whole.push(0);
        std::fs::write(&path, &whole).unwrap();
        assert!(
            read(&path)
                .unwrap_err()
                .to_string()
                .ends_with("expected 30 bytes of data for shape [5, 3] of f16, found 31 bytes")
        );
    }

    #[test]
    fn corrupt_bytes_never_panic() {
        let folder = folder();
        let path = folder.path().join("x.npy");
        let mut whole = Vec::new();
        write_to(&mut whole, &Tensor::zeros(DType::Bool, &[5, 3]).unwrap()).unwrap();
        for i in 0..whole.len() {
            for byte in [0, b'9', 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[i] = byte;
                std::fs::write(&path, &bytes).unwrap();
                let _ = read(&path);
            }
        }
    }

    #[test]
    fn says_what_does_not_fit() {
        let folder = folder();
        let path = folder.path().join("x.npy");
        let case = |header: &str| {
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend((header.len() as u16).to_le_bytes());
            bytes.extend(header.bytes());
            std::fs::write(&path, &bytes).unwrap();
            read(&path).unwrap_err().to_string()
        };
        for (header, text) in [
            ("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", "Fortran order"),
            ("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", "`>f4`"),
            ("{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }", "`<c8`"),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "[('a'"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "shape"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "shape"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "fits memory"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }", "found 0 bytes"),
            ("{'descr': '<f4', 'fortran_order': False}", "'shape'"),
            ("garbage", "dictionary"),
        ] {
            let error = case(header);
            assert!(error.contains(text) && error.contains("x.npy"), "{header}: {error}");
        }
        assert!(read(folder.path().join("absent.npy")).unwrap_err().to_string().contains("absent.npy"));
        assert!(read(folder.path()).is_err());
    }

    #[test]
    fn checks_what_the_caller_expects() {
        let folder = folder();
        let path = folder.path().join("x.npy");
        write(&path, &Tensor::zeros(DType::F32, &[5, 3]).unwrap()).unwrap();
        read_expecting(&path, DType::F32, &[Some(5), None]).unwrap();
        let error = read_expecting(&path, DType::F32, &[Some(4), None]).unwrap_err().to_string();
        assert!(error.ends_with("x.npy: expected tensor<4x?xf32>, found tensor<5x3xf32>"), "{error}");
    }
}
