//! Calls on memory of a GPU and a stream of the caller, and what stays on the GPU between calls.

use crate::call::apart;
use crate::cuda::{Buffer, Stream};
use crate::program::{Bindings, CudaProgram, Source};
use crate::tensor::byte_size;
use crate::{Allocator, DType, Error, Result, Tensor};
use rc_dialects::func::Initializer;
use std::ffi::c_void;
use std::sync::Arc;

/// A tensor in a GPU's memory, row-major.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTensor<'a> {
    pub dtype: DType,
    pub shape: &'a [usize],
    pub address: u64,
}

/// An argument of a call.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    Device(DeviceTensor<'a>),
    Host(&'a Tensor),
    /// A tensor on the host that is the same at every call.
    Weight(&'a Tensor),
}

impl<'a> Given<'a> {
    pub(crate) fn kind(&self) -> (DType, &'a [usize]) {
        match *self {
            Given::Device(tensor) => (tensor.dtype, tensor.shape),
            Given::Host(tensor) | Given::Weight(tensor) => (tensor.dtype(), tensor.shape()),
        }
    }
}

/// What the widest load of a GPU takes, so what an address is a multiple of.
const WIDEST: u64 = 16;

impl DeviceTensor<'_> {
    /// Whether it can be what the call's tensor `what` is.
    pub(crate) fn check(&self, program: &CudaProgram, what: &dyn Fn() -> String) -> Result<()> {
        if byte_size(self.dtype, self.shape)? == 0 {
            return Ok(());
        }
        if self.address == 0 {
            return Err(Error::Invalid(format!("{} has no data: it is null", what())));
        }
        if !self.address.is_multiple_of(WIDEST) {
            let address = self.address;
            return Err(Error::Invalid(format!("{} lies at {address:#x}, which is no multiple of {WIDEST}", what())));
        }
        if !program.device().reaches(self.address)? {
            let (number, address) = (program.device().ordinal(), self.address);
            return Err(Error::Invalid(format!("{} lies at {address:#x}, not in the memory of GPU {number}", what())));
        }
        Ok(())
    }
}

/// What a function needs that is the same at every call, in the memory of the device.
pub(crate) struct Kept {
    /// For each input of the function, those that its initializer computes among them, where it lies; `None`: each call gives it.
    addresses: Vec<Option<u64>>,
    _memory: Vec<Buffer>,
}

impl Kept {
    /// Brings constants to the device, and runs the initializer there: on these arguments, which are complete.
    pub(crate) fn new(
        program: &CudaProgram,
        initializer: Option<(&Initializer, &CudaProgram)>,
        given: &[Given],
        allocator: Option<&Arc<dyn Allocator>>,
    ) -> Result<Kept> {
        let stream = Stream::new(program.device())?;
        let needed: &[usize] = initializer.map_or(&[], |(init, _)| &init.args);
        let constants = &program.program().constant_inputs;
        // Each constant at its place, and whether the function itself reads it.
        let mut memory: Vec<Option<(Buffer, bool)>> = Vec::with_capacity(given.len());
        for (i, argument) in given.iter().enumerate() {
            let is_needed = needed.contains(&i);
            let is_read = constants.contains(&i) || matches!(argument, Given::Weight(_)) && !is_needed;
            let bytes = byte_size(argument.kind().0, argument.kind().1)?;
            let buffer = || Buffer::kept(program.device(), bytes, allocator);
            memory.push(match argument {
                Given::Host(tensor) | Given::Weight(tensor) if is_read || is_needed => {
                    let buffer = buffer()?;
                    buffer.upload(&stream, 0, tensor.bytes())?;
                    Some((buffer, is_read))
                }
                Given::Device(tensor) if is_read => {
                    let buffer = buffer()?;
                    // SAFETY: the caller vouches for the argument, and the buffer has its size.
                    unsafe { stream.copy(buffer.address(), tensor.address, bytes)? };
                    Some((buffer, true))
                }
                _ => None,
            });
        }
        let mut computed = Vec::new();
        if let Some((init, code)) = initializer {
            let address = |i: usize| match (&memory[i], given[i]) {
                (Some((buffer, _)), _) => buffer.address(),
                (None, Given::Device(tensor)) => tensor.address,
                (None, _) => 0,
            };
            let inputs: Vec<u64> = init.args.iter().map(|&i| address(i)).collect();
            let kinds: Vec<_> = init.args.iter().map(|&i| given[i].kind()).collect();
            computed = initialize(code, &kinds, &inputs, &stream, allocator)?;
        }
        stream.synchronize()?;
        let place = |(i, kept): (usize, &Option<(Buffer, bool)>)| match kept {
            Some((buffer, true)) => Some(buffer.address()),
            // What the initializer alone reads has no place in the function.
            _ => needed.contains(&i).then_some(0),
        };
        let mut addresses: Vec<Option<u64>> = memory.iter().enumerate().map(place).collect();
        addresses.extend(computed.iter().map(|buffer| Some(buffer.address())));
        let read = memory.into_iter().flatten().filter(|(_, is_read)| *is_read).map(|(buffer, _)| buffer);
        Ok(Kept { addresses, _memory: read.chain(computed).collect() })
    }

    /// The inputs of a run on host tensors.
    pub(crate) fn sources<'a>(&self, given: &'a [Tensor]) -> Vec<Source<'a>> {
        let source = |(i, kept): (usize, &Option<u64>)| match kept {
            Some(address) => Source::Kept(*address),
            None => Source::Host(&given[i]),
        };
        self.addresses.iter().enumerate().map(source).collect()
    }
}

fn initialize(
    code: &CudaProgram,
    kinds: &[(DType, &[usize])],
    inputs: &[u64],
    stream: &Stream,
    allocator: Option<&Arc<dyn Allocator>>,
) -> Result<Vec<Buffer>> {
    let signature = &code.program().signature;
    let bindings = signature.bind_shapes(kinds)?;
    let size = |(dtype, shape): (DType, Vec<usize>)| byte_size(dtype, &shape);
    let sizes = signature.shapes_of_results(&bindings)?.into_iter().map(size).collect::<Result<Vec<_>>>()?;
    let kept = |bytes: usize| Buffer::kept(code.device(), bytes, allocator);
    let results = sizes.into_iter().map(kept).collect::<Result<Vec<Buffer>>>()?;
    let addresses: Vec<u64> = results.iter().map(Buffer::address).collect();
    let arena = Buffer::on_stream(stream, code.program().arena_bytes(&bindings)?, allocator)?;
    // SAFETY: inputs of the signature's sizes, fresh memory for the results, all of which outlive the work.
    unsafe { code.run_at(&bindings, inputs, &addresses, arena.address(), stream.raw())? };
    stream.synchronize()?;
    Ok(results)
}

/// Queues a function on the caller's memory and stream.
///
/// # Safety
/// The arguments are valid until the stream has done the work, results for writing too; the stream is one of the program's device.
pub(crate) unsafe fn queue(
    program: &CudaProgram,
    bindings: &Bindings,
    kept: &Kept,
    given: &[Given],
    results: &[DeviceTensor],
    stream: *mut c_void,
    allocator: Option<&Arc<dyn Allocator>>,
) -> Result<()> {
    // SAFETY: the caller's.
    let stream = unsafe { Stream::borrow(program.device(), stream) };
    let address = |(i, kept): (usize, &Option<u64>)| match (kept, given.get(i)) {
        (Some(address), _) => *address,
        (None, Some(Given::Device(tensor))) => tensor.address,
        (None, _) => 0,
    };
    let mut inputs: Vec<u64> = kept.addresses.iter().enumerate().map(address).collect();
    let outputs: Vec<u64> = results.iter().map(|result| result.address).collect();
    check_apart(program, given, results)?;
    // The caller's arguments stay what they are: what the program writes to are copies, which results that are left there begin as.
    let mut copies = Vec::new();
    for &i in &program.program().updated_inputs {
        let (dtype, shape) = given[i].kind();
        let bytes = byte_size(dtype, shape)?;
        let to = match program.program().left_in.iter().position(|&left| left == Some(i)) {
            Some(result) => outputs[result],
            None => {
                let copy = Buffer::on_stream(&stream, bytes, allocator)?;
                copies.push(copy);
                copies[copies.len() - 1].address()
            }
        };
        // SAFETY: both have the argument's size.
        unsafe { stream.copy(to, inputs[i], bytes)? };
        inputs[i] = to;
    }
    let bytes = program.program().arena_bytes(bindings)?;
    let arena = if bytes == 0 { None } else { Some(Buffer::on_stream(&stream, bytes, allocator)?) };
    let arena = arena.as_ref().map_or(0, Buffer::address);
    // SAFETY: the caller's; copies and arena are given back to what the stream does later.
    unsafe { program.run_at(bindings, &inputs, &outputs, arena, stream.raw()) }
}

/// Results overlap neither arguments nor one another.
fn check_apart(program: &CudaProgram, given: &[Given], results: &[DeviceTensor]) -> Result<()> {
    let extent =
        |tensor: &DeviceTensor| Ok((tensor.address, tensor.address + byte_size(tensor.dtype, tensor.shape)? as u64));
    let mut read = Vec::with_capacity(given.len());
    for (i, argument) in given.iter().enumerate() {
        let Given::Device(tensor) = argument else { continue };
        tensor.check(program, &|| format!("argument {i}"))?;
        read.push(extent(tensor)?);
    }
    let mut written = Vec::with_capacity(results.len());
    for (i, tensor) in results.iter().enumerate() {
        tensor.check(program, &|| format!("result {i}"))?;
        let (from, to) = extent(tensor)?;
        written.push((from, to, i));
    }
    apart(&mut written, read.into_iter(), |i| i)
}
