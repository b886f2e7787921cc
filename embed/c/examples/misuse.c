/* What a caller may get wrong, and what is said of it: each line is a status and its message. */
#include <stdio.h>

#include "rc.h"

#define SAY(call)                                        \
  do {                                                   \
    rc_status status = (call);                           \
    printf("%d %s\n", (int)status, status ? rc_error() : ""); \
  } while (0)

/* argv: a package of main(x: f32[n, 3]) -> f32[n, 3], a damaged one, one for another machine */
int main(int argc, char **argv) {
  if (argc < 4) return 2;
  rc_model *model = NULL;
  SAY(rc_load(NULL, NULL, &model));
  SAY(rc_load(argv[1], NULL, NULL));
  SAY(rc_load("absent.rcp", NULL, &model));
  SAY(rc_load(argv[2], NULL, &model));
  SAY(rc_load(argv[3], NULL, &model));
  rc_options other = {.entry = "other", .device = RC_DEVICE_ANY}, gpu = {.device = 97};
  SAY(rc_load(argv[1], &other, &model));
  SAY(rc_load(argv[1], &gpu, &model));
  rc_allocator none = {NULL, NULL, NULL};
  rc_options without = {.device = RC_DEVICE_CPU, .allocator = &none};
  SAY(rc_load(argv[1], &without, &model));
  SAY(rc_run(model, NULL, 0, NULL, 0)); /* still null */
  SAY(rc_run_on(model, NULL, 0, NULL, 0, NULL));
  if (rc_device_of(model) != RC_DEVICE_ANY) return 2;
  if (rc_signature_of(model) != NULL) return 2;
  rc_free(model);

  if (rc_load(argv[1], NULL, &model) != RC_OK) return 2;
  float x[6] = {1, 2, 3, 4, 5, 6}, y[6];
  int64_t shape[] = {2, 3}, columns[] = {1, 2}, wrong[] = {2, 4}, negative[] = {-2, 3}, rows[] = {3, 1};
  const rc_tensor in = {x, shape, NULL, 2, RC_F32}, out = {y, shape, rows, 2, RC_F32};
  rc_tensor t;
  SAY(rc_run(model, &in, 1, &out, 1));
  printf("%g %g\n", y[0], y[5]);
  SAY(rc_run(model, NULL, 1, &out, 1));
  SAY(rc_run(model, &in, 0, &out, 1));
  SAY(rc_run(model, &in, 1, &out, 0));
  SAY(rc_run(model, &in, (size_t)-1, &out, 1)); /* nothing is read of arrays that are shorter than their counts */
  SAY(rc_run(model, &in, 1, &out, 1000000));
  SAY(rc_result_shape(model, &in, 2, 0, shape));
  SAY(rc_run(model, &in, 1, NULL, 1));
  SAY((t = in, t.data = NULL, rc_run(model, &t, 1, &out, 1)));
  SAY((t = in, t.shape = NULL, rc_run(model, &t, 1, &out, 1)));
  SAY((t = in, t.shape = wrong, rc_run(model, &t, 1, &out, 1)));
  SAY((t = in, t.shape = negative, rc_run(model, &t, 1, &out, 1)));
  SAY((t = in, t.rank = -1, rc_run(model, &t, 1, &out, 1)));
  SAY((t = in, t.rank = 1, rc_run(model, &t, 1, &out, 1)));
  SAY((t = in, t.dtype = RC_I32, rc_run(model, &t, 1, &out, 1)));
  SAY((t = in, t.dtype = (rc_dtype)77, rc_run(model, &t, 1, &out, 1)));
  SAY((t = in, t.strides = columns, rc_run(model, &t, 1, &out, 1)));
  SAY((t = in, t.data = (char *)x + 1, rc_run(model, &t, 1, &out, 1)));
  SAY((t = out, t.shape = wrong, t.strides = NULL, rc_run(model, &in, 1, &t, 1)));
  SAY((t = out, t.dtype = RC_F64, rc_run(model, &in, 1, &t, 1)));
  SAY((t = out, t.data = x, rc_run(model, &in, 1, &t, 1)));
  SAY(rc_run_on(model, &in, 1, &out, 1, NULL));
  SAY(rc_result_shape(model, &in, 1, 7, shape));
  SAY(rc_result_shape(model, &in, 1, 0, NULL));
  rc_free(model);
  rc_free(NULL);
  return 0;
}
