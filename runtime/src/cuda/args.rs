//! Arguments of kernels.

use std::ffi::c_void;

use super::tensor_map::TensorMap;
use crate::{Error, Result};

/// One argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    /// A device address (8 bytes).
    Pointer(u64),
    /// 64-bit integer.
    I64(i64),
    /// 32-bit integer.
    I32(i32),
    /// f32.
    F32(f32),
    /// f64.
    F64(f64),
    /// 16 bits: an f16, bf16 or i16 as its bits.
    Bits16(u16),
    /// 8 bits: an i8, or an i1 as 0 or 1.
    Bits8(u8),
    /// A tensor map (128 bytes), a `.param .align 64 .b8 [128]` of the kernel, `grid_constant`.
    TensorMap(TensorMap),
}

impl Arg {
    /// The size of the parameter in bytes.
    pub fn size(&self) -> usize {
        match self {
            Arg::Pointer(_) | Arg::I64(_) | Arg::F64(_) => 8,
            Arg::I32(_) | Arg::F32(_) => 4,
            Arg::Bits16(_) => 2,
            Arg::Bits8(_) => 1,
            Arg::TensorMap(_) => size_of::<TensorMap>(),
        }
    }

    /// Writes the value into the first words of its place.
    fn write(&self, place: &mut [Line]) {
        place[0].0[0] = match self {
            Arg::Pointer(x) => *x,
            Arg::I64(x) => *x as u64,
            Arg::I32(x) => u64::from(*x as u32),
            Arg::F32(x) => u64::from(x.to_bits()),
            Arg::F64(x) => x.to_bits(),
            Arg::Bits16(x) => u64::from(*x),
            Arg::Bits8(x) => u64::from(*x),
            Arg::TensorMap(map) => {
                place[0].0.copy_from_slice(&map.words()[..8]);
                place[1].0.copy_from_slice(&map.words()[8..]);
                return;
            }
        }
    }
}

/// 64 bytes at a multiple of 64, which a tensor map needs.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// The arguments of a launch, laid out as the driver takes them; made once and patched for later launches.
#[derive(Clone, Debug, Default)]
pub struct KernelArgs {
    lines: Vec<Line>,
    /// Line and size of each argument.
    places: Vec<(usize, usize)>,
    /// Addresses of the arguments, filled in for the driver.
    pointers: Vec<*mut c_void>,
}

// SAFETY: the pointers are into `lines` and are renewed before each use.
unsafe impl Send for KernelArgs {}
// SAFETY: they are read through `&mut` alone.
unsafe impl Sync for KernelArgs {}

impl KernelArgs {
    /// Arguments in the kernel's order.
    pub fn new(args: &[Arg]) -> KernelArgs {
        let mut result = KernelArgs::default();
        args.iter().for_each(|arg| result.push(arg));
        result
    }

    /// No arguments, in memory that is there already.
    pub fn clear(&mut self) {
        self.lines.clear();
        self.places.clear();
    }

    /// Adds an argument that is an array of addresses.
    pub fn push_table(&mut self, addresses: impl ExactSizeIterator<Item = u64>) {
        let (start, count) = (self.lines.len(), addresses.len());
        self.lines.resize(start + count.div_ceil(8), Line::default());
        for (i, address) in addresses.enumerate() {
            self.lines[start + i / 8].0[i % 8] = address;
        }
        self.places.push((start, count * size_of::<u64>()));
    }

    /// Adds an argument.
    pub fn push(&mut self, arg: &Arg) {
        let start = self.lines.len();
        // A line each: a few dozen arguments take little, and every alignment is right.
        self.lines.resize(start + arg.size().div_ceil(size_of::<Line>()), Line::default());
        arg.write(&mut self.lines[start..]);
        self.places.push((start, arg.size()));
    }

    /// Replaces an argument by one of the same size.
    pub fn set(&mut self, index: usize, arg: &Arg) -> Result<()> {
        match self.places.get(index) {
            Some(&(start, size)) if size == arg.size() => {
                arg.write(&mut self.lines[start..]);
                Ok(())
            }
            Some((_, size)) => {
                Err(Error::Invalid(format!("argument {index} has {size} bytes, and {} were given", arg.size())))
            }
            None => Err(Error::Invalid(format!("argument {index} of {}", self.places.len()))),
        }
    }

    /// The number of arguments.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Checks number and sizes against a kernel's parameters.
    pub(super) fn check(&self, kernel: &str, parameters: &[usize]) -> Result<()> {
        if self.places.iter().map(|&(_, size)| size).eq(parameters.iter().copied()) {
            return Ok(());
        }
        let sizes: Vec<_> = self.places.iter().map(|&(_, size)| size).collect();
        Err(Error::Invalid(format!(
            "`{kernel}` takes parameters of {parameters:?} bytes, and arguments of {sizes:?} were given"
        )))
    }

    /// An array of the arguments' addresses, valid until the arguments change.
    pub(super) fn pointers(&mut self) -> *mut *mut c_void {
        let base = self.lines.as_mut_ptr();
        self.pointers.clear();
        // SAFETY: each place starts inside `lines`.
        self.pointers.extend(self.places.iter().map(|&(start, _)| unsafe { base.add(start) }.cast::<c_void>()));
        self.pointers.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that the driver would read for argument `i`.
    fn bytes(args: &mut KernelArgs, i: usize) -> Vec<u8> {
        let size = args.places[i].1;
        let pointers = args.pointers();
        // SAFETY: `pointers` has an address for each argument, with its size of bytes behind it.
        unsafe { std::slice::from_raw_parts((*pointers.add(i)).cast::<u8>(), size) }.to_vec()
    }

    #[test]
    fn addresses_in_a_table() {
        let addresses: Vec<u64> = (1..20).collect();
        let mut args = KernelArgs::default();
        args.push_table(addresses.iter().copied());
        args.check("k", &[19 * 8]).unwrap();
        assert_eq!(bytes(&mut args, 0), addresses.iter().flat_map(|a| a.to_le_bytes()).collect::<Vec<_>>());
    }

    #[test]
    fn lays_out_and_patches() {
        let map = TensorMap::from_words(std::array::from_fn(|i| i as u64 + 1));
        let mut args = KernelArgs::new(&[
            Arg::Bits8(7),
            Arg::TensorMap(map),
            Arg::Pointer(0x1122334455667788),
            Arg::F32(1.5),
            Arg::I32(-2),
            Arg::Bits16(0x3f80),
            Arg::F64(-0.5),
            Arg::I64(-3),
        ]);
        args.check("k", &[1, 128, 8, 4, 4, 2, 8, 8]).unwrap();
        assert!(args.check("k", &[1, 128, 8, 4, 4, 2, 8]).unwrap_err().to_string().contains("`k`"));
        let expected: [&[u8]; 8] = [
            &[7],
            &map.words().iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>(),
            &0x1122334455667788u64.to_le_bytes(),
            &1.5f32.to_le_bytes(),
            &(-2i32).to_le_bytes(),
            &0x3f80u16.to_le_bytes(),
            &(-0.5f64).to_le_bytes(),
            &(-3i64).to_le_bytes(),
        ];
        for (i, expected) in expected.into_iter().enumerate() {
            assert_eq!(bytes(&mut args, i), expected, "{i}");
        }
        // SAFETY: as in `bytes`.
        assert!((unsafe { *args.pointers().add(1) } as usize).is_multiple_of(64));
        args.set(3, &Arg::F32(2.5)).unwrap();
        assert_eq!(bytes(&mut args, 3), 2.5f32.to_le_bytes());
        assert_eq!(bytes(&mut args, 4), (-2i32).to_le_bytes());
        assert!(args.set(3, &Arg::I64(0)).is_err());
        assert!(args.set(8, &Arg::I64(0)).is_err());
    }
}
