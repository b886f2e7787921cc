/* Several threads call one model, whose memory comes from the caller's allocator: threads model.rcp */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "rc.h"

enum { THREADS = 8, CALLS = 200, ROWS = 5, COLUMNS = 3 };

static atomic_long taken, held;

static void *allocate(void *context, size_t bytes, size_t alignment, void *stream) {
  (void)context, (void)stream;
  atomic_fetch_add(&taken, 1);
  atomic_fetch_add(&held, 1);
  return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

static void release(void *context, void *memory, size_t bytes, void *stream) {
  (void)context, (void)bytes, (void)stream;
  atomic_fetch_sub(&held, 1);
  free(memory);
}

/* The model: sums along rows, twice, of f32[n, 3]. */
static void *work(void *model) {
  float x[ROWS * COLUMNS], y[ROWS];
  for (int call = 0; call < CALLS; call++) {
    const int64_t rows = 1 + call % ROWS, shape[] = {rows, COLUMNS};
    const rc_tensor in = {x, shape, NULL, 2, RC_F32}, out = {y, shape, NULL, 1, RC_F32};
    for (int i = 0; i < rows * COLUMNS; i++) x[i] = (float)(call + i);
    if (rc_run(model, &in, 1, &out, 1) != RC_OK) {
      fprintf(stderr, "run: %s\n", rc_error()); /* this thread's */
      return (void *)"a call failed";
    }
    for (int i = 0; i < rows; i++)
      if (y[i] != 2 * (x[3 * i] + x[3 * i + 1] + x[3 * i + 2])) return (void *)"another sum";
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 2) return EXIT_FAILURE;
  const rc_allocator callers = {allocate, release, NULL};
  const rc_options options = {.device = RC_DEVICE_CPU, .allocator = &callers};
  rc_model *model;
  if (rc_load(argv[1], &options, &model) != RC_OK) {
    fprintf(stderr, "load: %s\n", rc_error());
    return EXIT_FAILURE;
  }
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, model);
  for (int i = 0; i < THREADS; i++) {
    void *failure;
    pthread_join(threads[i], &failure);
    if (failure) return printf("%s\n", (char *)failure), EXIT_FAILURE;
  }
  rc_free(model);
  printf("%d calls, memory was %s, and %ld are held\n", THREADS * CALLS, taken ? "taken" : "not taken", (long)held);
  return EXIT_SUCCESS;
}
