/* frame.c: the first prediction of frames.cc, from C.
 *
 *   frame NET.gyre
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "gyre/gyre_c.h"

enum { kHeight = 48, kWidth = 64, kChannels = 3 };

static int Fail(void) {
  fprintf(stderr, "error: %s\n", gyre_last_error());
  return 1;
}

int main(int argc, char** argv) {
  static uint8_t frame[kHeight * kWidth * kChannels];
  gyre_predictor_options options = {0};
  gyre_predictor* predictor = NULL;
  const gyre_array_info *input, *output;
  uint8_t* fitted;
  float* shares;
  gyre_array arrays[2];
  int64_t best = 0, i;
  int x, y, c;

  if (argc != 2) {
    fprintf(stderr, "usage: frame NET.gyre\n");
    return 2;
  }
  for (y = 0; y < kHeight; ++y) {
    for (x = 0; x < kWidth; ++x) {
      for (c = 0; c < kChannels; ++c) {
        frame[(y * kWidth + x) * kChannels + c] = (uint8_t)(4 * x + 5 * y * (c + 1));
      }
    }
  }
  options.threads = 1;
  if (gyre_predictor_open(argv[1], &options, &predictor) != GYRE_OK) return Fail();
  input = gyre_predictor_array(predictor, 0);
  output = gyre_predictor_array(predictor, gyre_predictor_arrays(predictor) - 1);
  fitted = malloc((size_t)input->elements);
  shares = malloc((size_t)output->elements * sizeof(float));
  if (fitted == NULL || shares == NULL) return 1;
  if (gyre_predictor_fit_picture(predictor, input->name, frame, kHeight, kWidth, kChannels, fitted,
                                 (size_t)input->elements) != GYRE_OK) {
    return Fail();
  }
  arrays[0].name = input->name;
  arrays[0].type = GYRE_U8;
  arrays[0].data = fitted;
  arrays[0].bytes = (size_t)input->elements;
  arrays[1].name = output->name;
  arrays[1].type = GYRE_F32;
  arrays[1].data = shares;
  arrays[1].bytes = (size_t)output->elements * sizeof(float);
  if (gyre_predictor_run(predictor, 1, arrays, 2) != GYRE_OK) return Fail();
  for (i = 1; i < output->elements; ++i) {
    if (shares[i] > shares[best]) best = i;
  }
  if ((size_t)best < output->class_count) {
    printf("frame 0: %s %.6f\n", output->classes[best], shares[best]);
  } else {
    printf("frame 0: %d %.6f\n", (int)best, shares[best]);
  }
  free(fitted);
  free(shares);
  gyre_predictor_close(predictor);
  return 0;
}
