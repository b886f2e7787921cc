pub trait CoreBuilder {}
pub trait TensorBuilder {}
