//! Calls of functions of the process: on host tensors, whose results become values.

use super::Mode;
use super::dtype_of;
use super::exec::Frame;
use super::value::{Array, Value};
use crate::foreign::{self, Buffer, Call, On};
use crate::tensor::Tensor;
use rc_ir::{OpRef, Result, Type};

impl Frame<'_> {
    pub(super) fn foreign(&mut self, op: OpRef) -> Result<Vec<Value>> {
        let args = (0..op.operands().len()).map(|i| self.array(op, i)).collect::<Result<Vec<_>>>()?;
        let begin = |result: usize| {
            let pairs = op.ints("updates").unwrap_or_default();
            pairs.chunks_exact(2).find(|pair| pair[0] == result as i64).map(|pair| args[pair[1] as usize].clone())
        };
        let results = op.result_types().iter().enumerate().map(|(i, &ty)| (ty, begin(i))).collect::<Vec<_>>();
        let results = self.call_foreign(op, &args, &op.operand_types(), results)?;
        Ok(results.into_iter().map(Value::Array).collect())
    }

    /// Calls the function that an op names. `results`: their types, and what they begin as.
    pub(super) fn call_foreign(
        &self,
        op: OpRef,
        args: &[Array],
        types: &[Type],
        results: Vec<(Type, Option<Array>)>,
    ) -> Result<Vec<Array>> {
        if self.mode() == Mode::Float64 {
            let error = op.unsupported("without rounding: the function computes in the types that it was written for");
            return Err(error.help("run the interpreter in its usual mode"));
        }
        let fail = |e: crate::Error| op.error(e.to_string());
        let function = foreign::find(op.str("function").unwrap_or_default()).map_err(fail)?;
        let mut tensors =
            args.iter().zip(types).map(|(array, &ty)| tensor(op, array, ty)).collect::<Result<Vec<_>>>()?;
        let mut given = Vec::new();
        for (ty, begins) in results {
            let shape = self.shape_of(op, ty)?;
            let array = begins.unwrap_or_else(|| Array::splat(shape, &Value::Int(0)));
            given.push(tensor(op, &array, ty)?);
        }
        let buffer = |tensor: &mut Tensor| {
            let address = tensor.as_mut_ptr()?;
            Ok(Buffer { address, dtype: tensor.dtype(), shape: tensor.shape().to_vec() })
        };
        let buffers = |tensors: &mut [Tensor]| tensors.iter_mut().map(buffer).collect::<crate::Result<Vec<_>>>();
        let (args, results) = (buffers(&mut tensors).map_err(fail)?, buffers(&mut given).map_err(fail)?);
        let sizes = if op.attr("sizes").is_some() { self.sizes(op, "sizes")? } else { Vec::new() };
        let call = Call {
            function: op.str("function").unwrap_or_default(),
            config: op.str("config").unwrap_or_default(),
            sizes: &sizes,
            args: &args,
            results: &results,
            on: On::Cpu,
        };
        foreign::call(&function, &call).map_err(fail)?;
        Ok(given.into_iter().map(Array::host).collect())
    }
}

fn tensor(op: OpRef, array: &Array, ty: Type) -> Result<Tensor> {
    let dtype = dtype_of(ty.elem()).ok_or_else(|| op.unsupported(format!("on elements of type {}", ty.elem())))?;
    let tensor = match array.is_float() {
        true => Tensor::from_f64(dtype, &array.shape, &array.as_floats()),
        false => Tensor::from_i64(dtype, &array.shape, &array.as_ints()),
    };
    tensor.map_err(|e| op.error(e.to_string()))
}
