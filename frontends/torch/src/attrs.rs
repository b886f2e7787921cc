//! Python values as attributes, by what the op's declaration says that an attribute holds.

use crate::dim::{AnyDim, dims};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use rc_dialects::func::bindings_attr;
use rc_ir::op_def::{AttrDef, AttrKind};
use rc_ir::types::FloatKind;
use rc_ir::{Attr, Name, OpDef, Type};

/// The attribute `name` of an op, from a Python value.
pub fn attribute(def: &OpDef, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Attr> {
    let Some(declared) = def.attr_def(name) else {
        return Err(PyTypeError::new_err(format!("'{}' has no attribute '{name}'", def.name)));
    };
    let unfit = || {
        let (kind, given) = (declared.kind.desc(), value.get_type());
        let given = given.name().map(|name| name.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!("'{}' expects '{name}' to be {kind}, not {given}", def.name))
    };
    let converted = converted(def, declared, value);
    let attr = converted.map_err(|e| if e.is_instance_of::<PyTypeError>(value.py()) { unfit() } else { e })?;
    if declared.kind.accepts(attr) { Ok(attr) } else { Err(unfit()) }
}

fn converted(def: &OpDef, declared: &AttrDef, value: &Bound<'_, PyAny>) -> PyResult<Attr> {
    Ok(match declared.kind {
        AttrKind::Bool => Attr::bool(value.extract()?),
        AttrKind::I64 => Attr::i64(value.extract()?),
        AttrKind::I32 => Attr::int(value.extract()?, Type::i32()),
        AttrKind::F32 => Attr::float(value.extract()?, Type::f32()),
        AttrKind::F64 => Attr::float(value.extract()?, Type::f64()),
        AttrKind::Str | AttrKind::Enum(_) => Attr::str(value.extract()?),
        AttrKind::I64Array => Attr::i64s(&value.extract::<Vec<i64>>()?),
        AttrKind::I32Array => Attr::i32s(&value.extract::<Vec<i64>>()?),
        AttrKind::Shape => Attr::shape(&dims(&value.extract::<Vec<AnyDim>>()?)),
        AttrKind::Dialect("bind") => {
            let bound = value.extract::<Vec<(String, AnyDim)>>()?;
            bindings_attr(&bound.iter().map(|(name, dim)| (Name::new(name), dim.0)).collect::<Vec<_>>())
        }
        AttrKind::Type => Attr::ty(element(value.extract()?)?),
        kind => {
            let what = format!(
                "'{}' has the attribute '{}', {}, which Python cannot give",
                def.name,
                declared.name,
                kind.desc()
            );
            return Err(PyValueError::new_err(what));
        }
    })
}

/// An element type by its name in the IR: `f32`, `i64`, `ui8`, `i1`.
pub fn element(name: &str) -> PyResult<Type> {
    let width = |text: &str| text.parse().ok().filter(|w| matches!(w, 1 | 8 | 16 | 32 | 64));
    let float = FloatKind::ALL.into_iter().find(|kind| kind.as_str() == name && *kind != FloatKind::TF32);
    let ty = match name {
        "index" => Some(Type::index()),
        _ if float.is_some() => float.map(Type::float),
        _ => match (name.strip_prefix("ui"), name.strip_prefix('i')) {
            (Some(text), _) => width(text).map(Type::unsigned),
            (_, Some(text)) => width(text).map(Type::int),
            _ => None,
        },
    };
    ty.ok_or_else(|| PyTypeError::new_err(format!("'{name}' is no element type")))
}
