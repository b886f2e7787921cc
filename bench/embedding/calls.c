/* What loading and calling a package costs from C: calls package loads [calls]. Prints medians in microseconds, of CPU time and of time. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rc.h"

enum { MOST = 20000 };

static double now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static int order(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *times, int count) {
  qsort(times, (size_t)count, sizeof *times, order);
  return times[count / 2];
}

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, rc_error());
  return EXIT_FAILURE;
}

int main(int argc, char **argv) {
  if (argc < 3) return EXIT_FAILURE;
  const int loads = atoi(argv[2]), calls = argc > 3 ? atoi(argv[3]) : 0;
  if (loads < 1 || loads > MOST || calls < 0 || calls > MOST) return EXIT_FAILURE;
  static double wall[MOST], cpu[MOST];
  rc_model *model = NULL;
  for (int i = 0; i < loads; i++) {
    rc_free(model);
    const double start = now(CLOCK_MONOTONIC), cpu_start = now(CLOCK_PROCESS_CPUTIME_ID);
    if (rc_load(argv[1], NULL, &model) != RC_OK) return fail("load");
    cpu[i] = now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;
    wall[i] = now(CLOCK_MONOTONIC) - start;
  }
  printf("load: %.0f us of CPU time, %.0f us\n", median(cpu, loads), median(wall, loads));
  if (calls == 0) return EXIT_SUCCESS;

  const rc_signature *signature = rc_signature_of(model);
  const size_t inputs = signature->input_count, results = signature->result_count;
  rc_tensor *all = calloc(inputs + results, sizeof *all);
  for (size_t i = 0; i < inputs + results; i++) {
    const rc_value *value = i < inputs ? &signature->inputs[i] : &signature->results[i - inputs];
    size_t bytes = 8;
    for (int32_t d = 0; d < value->rank; d++) bytes *= (size_t)value->shape[d];
    all[i] = (rc_tensor){calloc(bytes, 1), value->shape, NULL, value->rank, value->dtype};
  }
  for (int i = 0; i < calls; i++) {
    const double start = now(CLOCK_MONOTONIC);
    if (rc_run(model, all, inputs, all + inputs, results) != RC_OK) return fail("run");
    wall[i] = now(CLOCK_MONOTONIC) - start;
  }
  const double call = median(wall, calls);
  int64_t shape[64];
  for (int i = 0; i < calls; i++) {
    const double start = now(CLOCK_MONOTONIC);
    if (rc_result_shape(model, all, inputs, 0, shape) != RC_OK) return fail("shape");
    wall[i] = now(CLOCK_MONOTONIC) - start;
  }
  printf("call with %zu arguments and its kernels: %.2f us; of that rc_result_shape: %.2f us\n", inputs, call, median(wall, calls));
  return EXIT_SUCCESS;
}
