//! `.safetensors` files, memory-mapped.
//!
//! A mapped file must not be cut or rewritten while it is in use: the system then delivers a signal instead of bytes.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::safetensors::tensor::{Dtype, SafeTensors, TensorInfo, View, serialize_to_file};

use crate::tensor::{DType, Storage, Tensor};
use crate::{Error, Result};

/// The tensors of one file. Opening reads the header alone; tensors are views of the map.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    storage: Arc<Storage>,
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Range<usize>,
}

impl SafetensorsFile {
    /// Maps a file and checks its header: every tensor's range must lie in the file and have its shape's size.
    pub fn open(path: impl AsRef<Path>) -> Result<SafetensorsFile> {
        let path = path.as_ref();
        let storage = map(path)?;
        let length = storage.len();
        if length < 8 {
            return Err(Error::format(
                path,
                "a .safetensors file, which starts with 8 bytes of length",
                format!("{length} bytes"),
            ));
        }
        let (header_size, metadata) = SafeTensors::read_metadata(storage.bytes())
            .map_err(|e| Error::format(path, "a sound .safetensors header", e.to_string()))?;
        let start = header_size + 8;
        let entry = |info: &TensorInfo| Entry {
            dtype: info.dtype,
            shape: info.shape.clone(),
            bytes: start + info.data_offsets.0..start + info.data_offsets.1,
        };
        let entries: BTreeMap<_, _> = metadata.tensors().into_iter().map(|(name, info)| (name, entry(info))).collect();
        if let Some((name, e)) = entries.iter().find(|(_, e)| e.bytes.end > length || e.bytes.start > e.bytes.end) {
            return Err(Error::format(
                path,
                format!("tensor `{name}` at bytes {:?}", e.bytes),
                format!("a file of {length} bytes"),
            ));
        }
        Ok(SafetensorsFile { path: path.to_path_buf(), storage, entries })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All bytes of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.storage.bytes()
    }

    /// The tensors' names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Whether there is a tensor of that name.
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// A tensor, as a view of the map. It is copied only where the file does not align it to its element's size, which
    /// the format permits.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let entry = self.entries.get(name).ok_or_else(|| {
            let near = self.entries.range(name.to_string()..).chain(&self.entries).next();
            let hint = near
                .map_or("no tensors".into(), |(near, _)| format!("{} others, such as `{near}`", self.entries.len()));
            Error::format(&self.path, format!("a tensor named `{name}`"), hint)
        })?;
        let dtype = from_file(entry.dtype).ok_or_else(|| {
            Error::format(&self.path, format!("tensor `{name}` of a supported dtype"), format!("{}", entry.dtype))
        })?;
        let size = crate::tensor::byte_size(dtype, &entry.shape)?;
        if size != entry.bytes.len() {
            let expected = format!("{size} bytes for tensor `{name}`, shape {:?} of {dtype}", entry.shape);
            return Err(Error::format(&self.path, expected, format!("{} bytes", entry.bytes.len())));
        }
        let bytes = &self.storage.bytes()[entry.bytes.clone()];
        let tensor = if (bytes.as_ptr() as usize).is_multiple_of(dtype.size()) {
            Tensor::view(dtype, entry.shape.clone(), self.storage.clone(), entry.bytes.start)?
        } else {
            Tensor::from_bytes(dtype, &entry.shape, bytes)?
        };
        crate::npy::check_bools(&tensor, &self.path)?;
        Ok(tensor)
    }

    /// A tensor, checked against dtype and shape (`None` stands for any extent).
    pub fn tensor_expecting(&self, name: &str, dtype: DType, shape: &[Option<usize>]) -> Result<Tensor> {
        let tensor = self.tensor(name)?;
        tensor.expect(&format!("{}: tensor `{name}`", self.path.display()), dtype, shape)?;
        Ok(tensor)
    }
}

/// Maps a file, which must not be cut or rewritten while it is in use.
pub(crate) fn map(path: &Path) -> Result<Arc<Storage>> {
    // A pipe that nobody writes to is not waited for.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(|e| Error::io(path, e))?;
    let kind = file.metadata().map_err(|e| Error::io(path, e))?;
    if !kind.is_file() {
        return Err(Error::format(path, "a file", "something else"));
    }
    if kind.len() == 0 {
        return Ok(Arc::new(Storage::zeroed(0)?));
    }
    // SAFETY: the bytes are only read; that the file must not change is the stated condition.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
    Ok(Arc::new(Storage::Mapped(map)))
}

/// Writes tensors under their names. The file appears whole or not at all.
pub fn write(path: impl AsRef<Path>, tensors: &[(&str, &Tensor)]) -> Result<()> {
    let path = path.as_ref();
    let mut names = BTreeMap::new();
    for (name, tensor) in tensors {
        if names.insert(*name, FileView(tensor)).is_some() {
            return Err(Error::Invalid(format!("{}: two tensors named `{name}`", path.display())));
        }
    }
    serialize_to_file(names, None, path).map_err(|e| Error::format(path, "to write the file", e.to_string()))
}

struct FileView<'a>(&'a Tensor);

impl View for FileView<'_> {
    fn dtype(&self) -> Dtype {
        to_file(self.0.dtype())
    }
    fn shape(&self) -> &[usize] {
        self.0.shape()
    }
    fn data(&self) -> std::borrow::Cow<'_, [u8]> {
        self.0.bytes().into()
    }
    fn data_len(&self) -> usize {
        self.0.bytes().len()
    }
}

fn from_file(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|&ours| to_file(ours) == dtype)
}

fn to_file(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::F8E4M3FN => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::I16 => Dtype::I16,
        DType::I8 => Dtype::I8,
        DType::U64 => Dtype::U64,
        DType::U32 => Dtype::U32,
        DType::U16 => Dtype::U16,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_without_copying() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let tensors: Vec<_> = DType::ALL
            .iter()
            .enumerate()
            .map(|(k, &dtype)| (dtype.name(), Tensor::random_input(dtype, &[3, 8], 1, k as u32).unwrap()))
            .collect();
        write(&path, &tensors.iter().map(|(name, tensor)| (*name, tensor)).collect::<Vec<_>>()).unwrap();
        let file = SafetensorsFile::open(&path).unwrap();
        assert_eq!(file.names().count(), DType::ALL.len());
        let map = file.storage.bytes().as_ptr_range();
        for (name, tensor) in &tensors {
            let mut read = file.tensor(name).unwrap();
            assert_eq!((read.dtype(), read.shape(), read.bytes()), (tensor.dtype(), tensor.shape(), tensor.bytes()));
            assert!(map.contains(&read.as_ptr()), "{name} was copied");
            // Writing leaves the map, and so the file, alone.
            read.bytes_mut().unwrap().fill(0);
            assert_eq!(file.tensor(name).unwrap().bytes(), tensor.bytes());
        }
        // Views outlive the handle.
        let view = file.tensor("f32").unwrap();
        drop(file);
        assert_eq!(view.bytes(), tensors[1].1.bytes());
    }

    /// A file with this header and data.
    fn raw(path: &Path, header: &str, data: &[u8]) {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.extend(data);
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn unaligned_tensors_are_copied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        // The data start at 8 + the header's length; pad it to be odd.
        let mut header = r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#.to_string();
        while (header.len() + 8).is_multiple_of(2) {
            header.push(' ');
        }
        raw(&path, &header, &1.5f32.to_le_bytes());
        assert_eq!(SafetensorsFile::open(&path).unwrap().tensor("x").unwrap().as_slice::<f32>().unwrap(), [1.5]);
    }

    #[test]
    fn bad_files_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let cases = [
            (r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 4),
            (r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4),
            (r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, 8),
            (r#"{"x":{"dtype":"F32","shape":[18446744073709551615,3],"data_offsets":[0,8]}}"#, 8),
            (r#"{"x":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}}"#, 8),
            ("not json", 0),
        ];
        for (header, data) in cases {
            raw(&path, header, &vec![0; data]);
            let error = SafetensorsFile::open(&path).unwrap_err().to_string();
            assert!(error.contains("w.safetensors: expected"), "{header}: {error}");
        }
        raw(&path, r#"{"x":{"dtype":"F8_E5M2FNUZ","shape":[2],"data_offsets":[0,2]}}"#, &[0; 2]);
        let file = SafetensorsFile::open(&path).unwrap();
        assert!(file.tensor("x").unwrap_err().to_string().contains("F8_E5M2FNUZ"));
        assert!(file.tensor("y").unwrap_err().to_string().contains("`y`"));
        for bytes in [&[][..], &[1; 7], &[0xff; 64]] {
            std::fs::write(&path, bytes).unwrap();
            assert!(SafetensorsFile::open(&path).is_err());
        }
        assert!(SafetensorsFile::open(folder.path().join("absent")).unwrap_err().to_string().contains("absent"));
    }

    #[test]
    fn expectations_name_file_and_tensor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let x = Tensor::zeros(DType::F32, &[2]).unwrap();
        write(&path, &[("x", &x)]).unwrap();
        let error = SafetensorsFile::open(&path).unwrap().tensor_expecting("x", DType::F32, &[Some(3)]).unwrap_err();
        assert!(
            error.to_string().ends_with("w.safetensors: tensor `x`: expected tensor<3xf32>, found tensor<2xf32>"),
            "{error}"
        );
        assert!(write(&path, &[("x", &x), ("x", &x)]).is_err());
    }
}
