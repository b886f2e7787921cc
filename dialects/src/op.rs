//! The names of the declared ops: `op::core::ADD` is `rc.core.add`. What makes an op or looks for one names it by its constant, so that
//! a mistyped name does not compile. A test compares the constants with the declarations.

macro_rules! names {
    ($($dialect:ident $prefix:literal: $($id:ident $name:literal)*;)*) => {
        $(
            pub mod $dialect {
                $(pub const $id: &str = concat!($prefix, $name);)*
                /// All of this dialect.
                pub const NAMES: &[&str] = &[$($id),*];
            }
        )*
        /// The dialects' names.
        pub const ALL: &[&[&str]] = &[$($dialect::NAMES),*];
    };
}

names! {
    func "func.":
        CALL "call" FUNC "func" RETURN "return";
    tensor "rc.tensor.":
        ADAPTIVE_AVG_POOL "adaptive_avg_pool" ADAPTIVE_AVG_POOL_GRAD "adaptive_avg_pool_grad" ADD "add" ALL "all" AMAX "amax" AMIN "amin"
        ANY "any" ARGMAX "argmax" ARGMIN "argmin" AVG_POOL "avg_pool" AVG_POOL_GRAD "avg_pool_grad" CAT "cat" CONV "conv"
        CONV_TRANSPOSE "conv_transpose" CONV_WEIGHT_GRAD "conv_weight_grad" CROSS_ENTROPY "cross_entropy" CUMPROD "cumprod"
        CUMSUM "cumsum" DIV "div" EMBEDDING "embedding" FLIP "flip" GELU "gelu" LAYER_NORM "layer_norm" LINEAR "linear"
        LOG_SOFTMAX "log_softmax" LOGSUMEXP "logsumexp" MATMUL "matmul" MAX_POOL "max_pool" MAX_POOL_GRAD "max_pool_grad"
        MAXIMUM "maximum" MEAN "mean" MINIMUM "minimum" MUL "mul" NORMALIZE "normalize" PAD "pad" PERMUTE "permute" POW "pow"
        PROD "prod" RAGGED_DOT "ragged_dot" RAGGED_OUTER "ragged_outer" RAND_INT "rand_int" RAND_NORMAL "rand_normal" RAND_UNIFORM "rand_uniform" RELU "relu" RESHAPE "reshape"
        RMS_NORM "rms_norm" ROLL "roll" SDPA "sdpa" SILU "silu" SOFTMAX "softmax" SORT "sort" SPLIT "split" STD "std"
        STOP_GRADIENT "stop_gradient" SUB "sub" SUM "sum" TOPK "topk" TRIL "tril" TRIU "triu" VAR "var" WHERE "where";
    core "rc.core.":
        ABS "abs" ACOS "acos" ACOSH "acosh" ADD "add" AND "and" ASIN "asin" ASINH "asinh" ASSUME_SHAPE "assume_shape" ATAN "atan"
        ATAN2 "atan2" ATANH "atanh" ATTENTION "attention" ATTENTION_BACKWARD "attention_backward" BITCAST "bitcast" BROADCAST "broadcast"
        CALL "call" CEIL "ceil" CLAMP "clamp" COMPARE "compare" CONCAT "concat" CONSTANT "constant" CONVERT "convert" COS "cos"
        COSH "cosh" DIGAMMA "digamma" DIM "dim" DIV "div" DOT "dot" ERF "erf" ERFC "erfc" ERFINV "erfinv" EXP "exp" EXP2 "exp2"
        EXPM1 "expm1" EXTENT "extent" FLOOR "floor" FMA "fma" FOR "for" FOREIGN "foreign" FUSION "fusion" GATHER "gather" IF "if"
        IOTA "iota" IS_FINITE "is_finite" IS_NAN "is_nan" LGAMMA "lgamma" LOG "log" LOG10 "log10" LOG1P "log1p" LOG2 "log2"
        LOGISTIC "logistic" MAX "max" MIN "min" MUL "mul" NEG "neg" NOT "not" OR "or" PAD "pad" PHILOX "philox" PHILOX_WORD "philox_word"
        POW "pow" REDUCE "reduce" REM "rem" RESHAPE "reshape" REVERSE "reverse" ROUND "round" RSQRT "rsqrt" SCAN "scan" SCATTER "scatter"
        SELECT "select" SHL "shl" SHR "shr" SIGN "sign" SIN "sin" SINH "sinh" SLICE "slice" SORT "sort" SQRT "sqrt" SUB "sub" TAN "tan"
        TANH "tanh" TRANSPOSE "transpose" TRUNC "trunc" WHILE "while" WINDOW "window" XOR "xor" YIELD "yield";
    loop_ "rc.loop.":
        ATTENTION "attention" ATTENTION_BACKWARD "attention_backward" GATHER "gather" INDEX "index" KERNEL "kernel" LAUNCH "launch"
        NEST "nest" RETURN "return" SCATTER "scatter" SORT "sort" YIELD "yield";
    kernel "rc.kernel.":
        ALLOC "alloc" APPROX "approx" ASYNC_ARRIVE "async_arrive" ASYNC_COMMIT "async_commit" ASYNC_COPY "async_copy"
        ASYNC_WAIT "async_wait" ATOMIC "atomic" BARRIER "barrier" BITCAST "bitcast" BOX_PREFETCH "box_prefetch" BROADCAST "broadcast"
        BULK_COMMIT "bulk_commit" BULK_WAIT "bulk_wait" CHOOSE "choose" CLUSTER_BARRIER "cluster_barrier" CLUSTER_RANK "cluster_rank"
        CONCAT "concat" CONVERT_LAYOUT "convert_layout" DOT "dot" DOT_TILES "dot_tiles" DOT_WORDS "dot_words" ELECT "elect"
        EXTENT "extent" EXTRACT "extract" EXTRACT_SLICE "extract_slice" FENCE "fence" FOR "for" FUNC "func" GATHER "gather"
        GRID_LAUNCH "grid_launch" GRID_WAIT "grid_wait" IF "if" INSERT "insert" IOTA "iota" LDMATRIX "ldmatrix" LOAD "load"
        MBARRIER_ARRIVE "mbarrier_arrive" MBARRIER_EXPECT "mbarrier_expect" MBARRIER_INIT "mbarrier_init" MBARRIER_WAIT "mbarrier_wait"
        MMA "mma" PACK "pack" PERMUTE "permute" PREFETCH "prefetch" PROGRAM_ID "program_id" READ "read" REDUCE "reduce" RETURN "return" SCAN "scan"
        SCATTER "scatter" SET_MAX_REGISTERS "set_max_registers" SHUFFLE "shuffle" SLICE "slice" SORT "sort" SPLAT "splat"
        STMATRIX "stmatrix" STORE "store" TENSOR_LOAD "tensor_load" TENSOR_PREFETCH "tensor_prefetch" TENSOR_STORE "tensor_store"
        THREAD_ID "thread_id" TRANSPOSE "transpose" VECTOR_REDUCE "vector_reduce" VIEW "view" WGMMA "wgmma" WGMMA_COMMIT "wgmma_commit"
        WGMMA_FENCE "wgmma_fence" WGMMA_WAIT "wgmma_wait" WRITE "write" YIELD "yield";
    host "rc.host.":
        ASSERT "assert" BINARY "binary" CALL "call" CONSTANT "constant" COPY "copy" FOR "for" FOREIGN "foreign" FUNC "func" IF "if"
        LAUNCH "launch" RETURN "return" VIEW "view" WHILE "while";
}
