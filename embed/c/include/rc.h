/* rc's runtime: loads a package (model.rcp) and runs it.
 *
 *     rc_model *model;
 *     if (rc_load("model.rcp", NULL, &model) != RC_OK) { fprintf(stderr, "%s\n", rc_error()); return 1; }
 *     int64_t shape[] = {1, 3};
 *     float x[3] = {1, 2, 3}, y[3];
 *     rc_tensor in = {x, shape, NULL, 2, RC_F32}, out = {y, shape, NULL, 2, RC_F32};
 *     if (rc_run(model, &in, 1, &out, 1) != RC_OK) …
 *     rc_free(model);
 *
 * A model may be used by several threads: its calls run one after the other. No function keeps a pointer that it is given, but an allocator's.
 */
#ifndef RC_H
#define RC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call came to. rc_error() says it in words. */
typedef enum rc_status {
  RC_OK = 0,
  RC_INVALID = 1,       /* an argument of the call does not fit: a null pointer, a shape, a dtype, strides, alignment */
  RC_IO = 2,            /* a file cannot be read */
  RC_FORMAT = 3,        /* a file is no sound package of this version of rc */
  RC_MISFIT = 4,        /* the package has no code for this machine */
  RC_DEVICE = 5,        /* there is no such GPU, or its driver failed */
  RC_OUT_OF_MEMORY = 6,
  RC_KERNEL = 7,        /* a kernel failed, such as by an index that is out of bounds */
  RC_UNSUPPORTED = 8,
  RC_INTERNAL = 9,      /* a mistake in rc itself */
  RC_FOREIGN = 10       /* a function that the package calls is not registered, or failed */
} rc_status;

typedef enum rc_dtype {
  RC_F64 = 0,
  RC_F32 = 1,
  RC_F16 = 2,
  RC_BF16 = 3,
  RC_I64 = 4,
  RC_I32 = 5,
  RC_I16 = 6,
  RC_I8 = 7,
  RC_U8 = 8,
  RC_BOOL = 9, /* a byte, 0 or 1 */
  RC_F8E4M3FN = 10,
  RC_F8E5M2 = 11
} rc_dtype;

/* A tensor, row-major: in host memory for rc_run, in the memory of the model's GPU for rc_run_on. */
typedef struct rc_tensor {
  void *data; /* aligned to an element, on a GPU to 16 bytes; may be null where there are no elements */
  const int64_t *shape;
  const int64_t *strides; /* in elements, or null; of other strides than row-major ones the call says that they are */
  int32_t rank;
  rc_dtype dtype;
} rc_tensor;

/* An argument or a result of a function. */
typedef struct rc_value {
  const char *name;         /* empty where it has none */
  const int64_t *shape;     /* -1 for a size that the arguments decide */
  const char *const *sizes; /* each size in words: "768", "n", "2 * n" */
  int32_t rank;
  rc_dtype dtype;
} rc_value;

/* A symbol in sizes: a value from min to max, a multiple of divisor. */
typedef struct rc_symbol {
  const char *name;
  int64_t min, max, divisor;
} rc_symbol;

/* What a function takes and gives. Weights of the package are not among its arguments. */
typedef struct rc_signature {
  const rc_value *inputs;
  const rc_value *results;
  const rc_symbol *symbols;
  size_t input_count, result_count, symbol_count;
} rc_signature;

#define RC_DEVICE_ANY (-2) /* the CPU, if the package has code for one, else the first GPU */
#define RC_DEVICE_CPU (-1) /* 0, 1, …: the GPU of this number */

/* Where a model takes memory that it needs besides arguments and results: on a CPU what a run works in, on a GPU that and what stays there between
 * runs. The functions may be called by any thread that runs or frees the model. */
typedef struct rc_allocator {
  /* Memory at a multiple of alignment, on a GPU the device's; null where there is none. On a GPU it is used by what is queued on the stream (a CUstream)
   * from here on; with a null stream at once. */
  void *(*allocate)(void *context, size_t bytes, size_t alignment, void *stream);
  /* Takes memory back, for what is queued on the stream from here on. */
  void (*release)(void *context, void *memory, size_t bytes, void *stream);
  void *context;
} rc_allocator;

typedef struct rc_options {
  const char *entry; /* the function; null: the package's first */
  int32_t device;
  const rc_allocator *allocator; /* null: rc's own; what it points to is copied */
} rc_options;

typedef struct rc_model rc_model;

/* rc's version. */
const char *rc_version(void);

/* Why this thread's last call failed; valid until its next one. */
const char *rc_error(void);

/* Loads a function of a package; options may be null. What follows from its weights alone is computed at the first run. */
rc_status rc_load(const char *path, const rc_options *options, rc_model **model);

/* Frees a model; of null nothing. */
void rc_free(rc_model *model);

/* The GPU that the model runs on, or RC_DEVICE_CPU; RC_DEVICE_ANY where model is null. */
int32_t rc_device_of(const rc_model *model);

/* What the function takes and gives; null where model is. Valid until rc_free. */
const rc_signature *rc_signature_of(const rc_model *model);

/* The shape of a result for arguments of these shapes, whose data is not read: writes as many sizes as the result's rank. */
rc_status rc_result_shape(const rc_model *model, const rc_tensor *inputs, size_t input_count, size_t result, int64_t *shape);

/* Runs the function on the caller's memory. Results have the shapes that rc_result_shape says, and overlap nothing. Arguments that the
 * package declares constant without having their values are those of the first call. */
rc_status rc_run(const rc_model *model, const rc_tensor *inputs, size_t input_count, const rc_tensor *results, size_t result_count);

/* Queues the function on a stream (a CUstream; null: the default one) of the model's GPU, on tensors in that GPU's memory, and returns. Everything
 * else is as for rc_run; arguments, results and shapes are checked before anything is queued. The first call brings the package's weights to the GPU
 * and computes what follows from them, and waits for that. A model on the CPU has no stream: RC_UNSUPPORTED. */
rc_status rc_run_on(const rc_model *model, const rc_tensor *inputs, size_t input_count, const rc_tensor *results, size_t result_count,
                    void *stream);

#ifdef __cplusplus
}
#endif

#endif
