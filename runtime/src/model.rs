//! Packages, loaded: signature and run.

use crate::call::{Merged, Tensors};
use crate::cuda::Device;
use crate::on_device::{DeviceTensor, Given};
use crate::package::Package;
use crate::program::{Bindings, Guard, Signature};
use crate::{Allocator, DType, Error, Executable, Machine, Needs, Result, Tensor};
use rc_ir::{Diagnostic, Module};
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

/// Where a model runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Cpu,
    /// The GPU of this number.
    Cuda(usize),
}

impl Place {
    /// The GPU, if it is one.
    fn device(self) -> Result<Option<Arc<Device>>> {
        match self {
            Place::Cpu => Ok(None),
            Place::Cuda(number) => Device::open(number).map(Some),
        }
    }
}

fn place_of(device: Option<&Arc<Device>>) -> Place {
    device.map_or(Place::Cpu, |device| Place::Cuda(device.ordinal()))
}

impl Package {
    /// The number of the module that fits this machine and needs the most of it, and the GPU that it is for. Without a place, that is the CPU, if
    /// there is code for one, else the first GPU.
    ///
    /// # Errors
    /// [`Error::Misfit`], which says what the code needs; no such GPU.
    pub fn choose(&self, place: Option<Place>) -> Result<(usize, Option<Arc<Device>>)> {
        let has_cpu = self.needs().any(|needs| needs.machine == Machine::Cpu);
        let place = place.unwrap_or(if has_cpu { Place::Cpu } else { Place::Cuda(0) });
        let device = place.device()?;
        let arch = device.as_ref().map(|device| device.info().arch());
        let misfit = |needs: &Needs| match &arch {
            None => needs.misfit_here(),
            Some(arch) => needs.misfit_on(arch),
        };
        let fitting = self.needs().enumerate().filter(|(_, needs)| misfit(needs).is_none());
        let rank = |needs: &Needs| (Some(&needs.arch) == arch.as_ref(), needs.features.len(), needs.arch.clone());
        if let Some((number, _)) = fitting.max_by_key(|(_, needs)| rank(needs)) {
            return Ok((number, device));
        }
        let why: Vec<String> = self.needs().filter_map(misfit).collect();
        Err(Error::Misfit { path: self.path().to_path_buf(), why: why.join("; ") })
    }
}

/// How a package is loaded.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LoadOptions {
    /// The function; the package's first by default.
    pub entry: Option<String>,
    /// Where it runs; by default on the CPU if the package has code for one, else on the first GPU.
    pub place: Option<Place>,
}

/// A function of a package, ready to run, with the package's weights. Calls from several threads run one after the other.
///
/// ```no_run
/// # fn main() -> rc_runtime::Result<()> {
/// use rc_runtime::{Model, Tensor};
/// let model = Model::load("model.rcp")?;
/// for input in &model.signature().inputs {
///     println!("{input}");
/// }
/// let x = Tensor::from_slice(&[1, 3], &[1.0f32, 2.0, 3.0])?;
/// println!("{}", model.run(&[x])?[0]);
/// # Ok(()) }
/// ```
pub struct Model {
    executable: Executable,
    signature: Signature,
    guard: Guard,
    place: Place,
    /// Where the weights are from: they are checked before the first run.
    package: Option<Arc<Package>>,
    /// For each argument of the function the package's weight; `None`: the caller's.
    weights: Vec<Option<Tensor>>,
    /// For each argument of the function how many of the caller's stand before it.
    places: Vec<usize>,
}

impl Model {
    /// Loads a package's first function. Its weights are checked, and what follows from them alone is computed, at the first call.
    ///
    /// # Errors
    /// A file that is no sound package of this version of rc; [`Error::Misfit`] where it has no code for this machine.
    pub fn load(path: impl AsRef<Path>) -> Result<Model> {
        Model::load_with(path, &LoadOptions::default())
    }

    /// Loads a package as the options say.
    ///
    /// # Errors
    /// As [`Model::load`]; a function that the package does not have.
    pub fn load_with(path: impl AsRef<Path>, options: &LoadOptions) -> Result<Model> {
        Model::of(&Arc::new(Package::open(path)?), options)
    }

    /// A function of an open package.
    ///
    /// # Errors
    /// As [`Model::load_with`].
    pub fn of(package: &Arc<Package>, options: &LoadOptions) -> Result<Model> {
        let (number, device) = package.choose(options.place)?;
        let module = package.module(number)?;
        let fail = |d: Box<Diagnostic>| Error::format(package.path(), "a function that can be run", d.message);
        let executable = Executable::load_on(&module, options.entry.as_deref(), device.as_ref()).map_err(fail)?;
        let mut signature = executable.signature().clone();
        signature.inputs.truncate(executable.given());
        let weight = |spec: &crate::program::TensorSpec| match spec.name.is_empty() {
            true => Ok(None),
            false => package.unchecked_weight(spec.name.as_str()),
        };
        let weights = signature.inputs.iter().map(weight).collect::<Result<Vec<_>>>()?;
        Ok(Model::new(executable, signature, place_of(device.as_ref()), Some(package.clone()), weights))
    }

    /// A function of a compiled module (the first, where none is named), which has no weights of its own.
    ///
    /// # Errors
    /// If the module is not compiled, or its code cannot be loaded there.
    pub fn of_module(module: &Module, entry: Option<&str>, place: Place) -> rc_ir::Result<Model> {
        let fail = |e: Error| Diagnostic::error(module.loc, e.to_string());
        let device = place.device().map_err(fail)?;
        let executable = Executable::load_on(module, entry, device.as_ref())?;
        let mut signature = executable.signature().clone();
        signature.inputs.truncate(executable.given());
        let weights = vec![None; signature.inputs.len()];
        Ok(Model::new(executable, signature, place, None, weights))
    }

    fn new(
        executable: Executable,
        mut signature: Signature,
        place: Place,
        package: Option<Arc<Package>>,
        weights: Vec<Option<Tensor>>,
    ) -> Model {
        let mut given = weights.iter().map(Option::is_none);
        signature.inputs.retain(|_| given.next().unwrap_or(true));
        let guard = Guard::new(&signature, signature.inputs.len());
        let before = |count: &mut usize, weight: &Option<Tensor>| {
            Some(std::mem::replace(count, *count + usize::from(weight.is_none())))
        };
        let places = weights.iter().scan(0, before).collect();
        Model { executable, signature, guard, place, package, weights, places }
    }

    /// Where it runs.
    pub fn place(&self) -> Place {
        self.place
    }

    /// What the function takes of its caller, and what it gives.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Runs the function: arguments in order, results in order. On a GPU they are copied there and back.
    ///
    /// # Errors
    /// Arguments that do not fit the signature, by name; a kernel's failure.
    pub fn run(&self, args: &[Tensor]) -> Result<Vec<Tensor>> {
        self.check(args.len())?;
        self.executable.run_any(&self.and(args)).map_err(|error| self.blame(args, error))
    }

    /// Runs the function, and leaves its results in the caller's memory: for each the bytes of its elements in row-major order, aligned to its
    /// elements. The sizes are those that [`Model::result_shapes`] says.
    ///
    /// # Errors
    /// As [`Model::run`]; memory of another size or alignment than a result has.
    pub fn run_into(&self, args: &[Tensor], results: &mut [&mut [u8]]) -> Result<()> {
        self.check(args.len())?;
        self.executable.run_any_into(&self.and(args), results).map_err(|error| self.blame(args, error))
    }

    /// Runs the function on memory of the caller's, and leaves its results there. On a CPU such a call makes and copies nothing of its own.
    ///
    /// # Errors
    /// As [`Model::run`]; results of another dtype or shape than [`Model::result_shapes`] says, null pointers, memory that is not aligned or that a result
    /// shares.
    ///
    /// # Safety
    /// The results may be written to, and nothing else uses their memory until this returns.
    pub unsafe fn run_in(&self, args: &(impl Tensors + ?Sized), results: &(impl Tensors + ?Sized)) -> Result<()> {
        self.check(args.count())?;
        // SAFETY: the caller's.
        unsafe { self.executable.run_in(&self.and(args), results) }.map_err(|error| self.blame(args, error))
    }

    /// What is wrong with arguments, by the caller's numbers; else what went wrong with them.
    fn blame(&self, args: &(impl Tensors + ?Sized), error: Error) -> Error {
        self.guard.bind(|i| args.tensor(i).kind(), args.count()).err().unwrap_or(error)
    }

    /// Queues the function on a stream (a `CUstream`) of its GPU, on tensors in that GPU's memory, and returns. Results have the shapes that
    /// [`Model::result_shapes`] says, and overlap nothing. The first call brings the weights to the GPU, computes what follows from them, and waits for
    /// that.
    ///
    /// # Errors
    /// As [`Model::run`]; tensors that are null, in other memory, not at a multiple of 16 bytes, or that overlap a result; a model on the CPU.
    ///
    /// # Safety
    /// The tensors' memory is valid until the stream has done the work; the stream is one of the device.
    pub unsafe fn run_on(&self, args: &[DeviceTensor], results: &[DeviceTensor], stream: *mut c_void) -> Result<()> {
        self.check(args.len())?;
        let mut args = args.iter().copied().map(Given::Device);
        let weights = self.weights.iter();
        let given: Vec<Given> =
            weights.filter_map(|weight| weight.as_ref().map(Given::Weight).or_else(|| args.next())).collect();
        // SAFETY: the caller's.
        unsafe { self.executable.queue(&given, results, stream) }
    }

    /// Has runs take what memory they need of the caller: on a CPU what they work in, on a GPU that and what stays there between runs. Results that
    /// [`Model::run`] makes are its own.
    pub fn with_allocator(mut self, allocator: Arc<dyn Allocator>) -> Model {
        self.executable.set_allocator(allocator);
        self
    }

    /// The dtype and shape of each result for arguments of these.
    ///
    /// # Errors
    /// Those that do not fit the signature, by name.
    pub fn result_shapes<S: AsRef<[usize]>>(&self, args: &[(DType, S)]) -> Result<Vec<(DType, Vec<usize>)>> {
        let bindings = self.guard.bind(|i| (args[i].0, args[i].1.as_ref()), args.len())?;
        self.signature.shapes_of_results(&bindings)
    }

    /// The values of the symbols for arguments of these.
    ///
    /// # Errors
    /// Those that do not fit the signature, by name.
    pub fn sizes(&self, args: &[(DType, &[usize])]) -> Result<Bindings> {
        self.guard.bind(|i| args[i], args.len())
    }

    /// The shape of one result for arguments of these dtypes and shapes.
    ///
    /// # Errors
    /// Those that do not fit the signature, by name; a result that there is not.
    pub fn result_shape(&self, result: usize, args: &(impl Tensors + ?Sized)) -> Result<Vec<usize>> {
        let bindings = self.guard.bind(|i| args.tensor(i).kind(), args.count())?;
        let specs = &self.signature.outputs;
        let spec =
            specs.get(result).ok_or_else(|| Error::Invalid(format!("the function has {} results", specs.len())))?;
        spec.sizes(&bindings)
    }

    /// Computes what follows from the weights alone, where the caller gives none of what it needs; the first call does it otherwise.
    ///
    /// # Errors
    /// As [`Model::run`].
    pub fn initialize(&self, args: &[Tensor]) -> Result<()> {
        self.check(args.len())?;
        self.executable.initialize_any(&self.and(args))
    }

    /// The caller's arguments and the weights, in the function's order.
    fn and<'a, G: Tensors + ?Sized>(&'a self, given: &'a G) -> Merged<'a, G> {
        Merged { fixed: &self.weights, places: Some(&self.places), given }
    }

    /// Whether there are as many arguments as the function takes, and its weights are sound.
    fn check(&self, given: usize) -> Result<()> {
        let expected = self.signature.inputs.len();
        if given != expected {
            return Err(Error::Invalid(format!("the function takes {expected} arguments, {given} were given")));
        }
        self.package.as_ref().map_or(Ok(()), |package| package.check_weights())
    }
}
