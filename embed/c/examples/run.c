/* Runs a package on arguments whose elements are 0, 1, 2, … and prints its results: cc run.c $(pkg-config --cflags --libs rc_runtime) */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rc.h"

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, rc_error());
  return EXIT_FAILURE;
}

static size_t count(const int64_t *shape, int32_t rank) {
  size_t n = 1;
  for (int32_t i = 0; i < rank; i++) n *= (size_t)shape[i];
  return n;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s model.rcp [value of every symbol]\n", argv[0]);
    return EXIT_FAILURE;
  }
  const int64_t symbol = argc > 2 ? atoll(argv[2]) : 1;
  rc_model *model;
  if (rc_load(argv[1], NULL, &model) != RC_OK) return fail("load");
  const rc_signature *signature = rc_signature_of(model);

  const size_t inputs = signature->input_count, results = signature->result_count;
  rc_tensor *in = calloc(inputs + 1, sizeof *in), *out = calloc(results + 1, sizeof *out);
  for (size_t i = 0; i < inputs; i++) {
    const rc_value *value = &signature->inputs[i];
    int64_t *shape = calloc((size_t)value->rank + 1, sizeof *shape);
    for (int32_t d = 0; d < value->rank; d++) shape[d] = value->shape[d] < 0 ? symbol : value->shape[d];
    if (value->dtype != RC_F32) {
      fprintf(stderr, "this example gives floats, and %s is of another type\n", value->name);
      return EXIT_FAILURE;
    }
    const size_t n = count(shape, value->rank);
    float *data = calloc(n + 1, sizeof *data);
    for (size_t k = 0; k < n; k++) data[k] = (float)(k % 7);
    in[i] = (rc_tensor){data, shape, NULL, value->rank, RC_F32};
    printf("%s: %zu elements\n", value->name, n);
  }
  for (size_t i = 0; i < results; i++) {
    const rc_value *value = &signature->results[i];
    int64_t *shape = calloc((size_t)value->rank + 1, sizeof *shape);
    if (rc_result_shape(model, in, inputs, i, shape) != RC_OK) return fail("shape");
    out[i] = (rc_tensor){calloc(count(shape, value->rank) + 1, 8), shape, NULL, value->rank, value->dtype};
  }

  if (rc_run(model, in, inputs, out, results) != RC_OK) return fail("run");
  for (size_t i = 0; i < results; i++) {
    const size_t n = count(out[i].shape, out[i].rank);
    double sum = 0;
    for (size_t k = 0; k < n && out[i].dtype == RC_F32; k++) sum += ((const float *)out[i].data)[k];
    printf("result %zu: %zu elements, their sum is %.4f\n", i, n, sum);
  }

  for (size_t i = 0; i < inputs; i++) free(in[i].data), free((void *)in[i].shape);
  for (size_t i = 0; i < results; i++) free(out[i].data), free((void *)out[i].shape);
  free(in), free(out);
  rc_free(model);
  return EXIT_SUCCESS;
}
