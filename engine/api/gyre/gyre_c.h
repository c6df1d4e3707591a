// gyre_c.h: Gyre in a program, by C functions.  libgyre.so exports these functions and nothing
// else.  gyre.h is the same for C++.  docs/library.md has examples.
//
// Errors.  Each function that returns int returns GYRE_OK or another gyre_code.  gyre_last_error
// then has the text.  A mistake of the caller never ends the process, and nothing is printed.
// Only a bug of Gyre, or no memory for a thread, does.  After an error the outputs are undefined.
//
// Threads.  A handle may be used by any thread, but by one at a time.  A call during another call
// with the same handle is refused with GYRE_FAILED_PRECONDITION.  Different handles are
// independent: threads may use them at once.  No handle may be used after its close, or after fork.
//
// Memory.  The caller owns all arrays and keeps them until the call returns.  Texts and structs
// that Gyre returns belong to their handle, and live until its close.
#ifndef GYRE_GYRE_C_H_
#define GYRE_GYRE_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Errors.  The numbers never change.
enum gyre_code {
  GYRE_OK = 0,
  GYRE_INVALID_ARGUMENT = 3,     // null, an unknown name, a wrong size or type, a damaged file
  GYRE_NOT_FOUND = 5,            // a file that is not there
  GYRE_ALREADY_EXISTS = 6,       // a folder with another run's checkpoints
  GYRE_RESOURCE_EXHAUSTED = 8,   // memory, or the device's
  GYRE_FAILED_PRECONDITION = 9,  // a call at a wrong time, or ranks that differ
  GYRE_UNIMPLEMENTED = 12,       // no CUDA in this build
  GYRE_INTERNAL = 13,            // a loss or gradient that is not finite, or a failed library
  GYRE_UNAVAILABLE = 14,         // a rank that is silent or has failed, or no GPU
  GYRE_UNKNOWN = 2               // any other
};

// The release, such as "0.1.0".
const char* gyre_version(void);
// The text of this thread's last error, or "".  It lives until the thread's next call of Gyre.
const char* gyre_last_error(void);

// Element types of arrays.
enum gyre_type {
  GYRE_F32 = 0,
  GYRE_I32 = 1,
  GYRE_U8 = 2  // of an input of reals: b stands for b / 255, as in pictures
};

// An array of a call: values of all samples, one sample after another, each in C order.
typedef struct gyre_array {
  const char* name;
  int type;      // gyre_type
  void* data;    // an input is only read
  size_t bytes;  // exactly those of all samples
} gyre_array;

// What a net takes or gives.
typedef struct gyre_array_info {
  const char* name;
  int is_output;
  int type;             // GYRE_I32 or GYRE_F32.  An input of GYRE_F32 also takes GYRE_U8
  const int64_t* dims;  // of a sample
  size_t rank;          // number of dims
  int64_t elements;     // of a sample
  // Names of an output's elements, where it has a share for each class.  They may be unknown.
  const char* const* classes;
  size_t class_count;
} gyre_array_info;

// ---- Predictions ----

// A trained net.
typedef struct gyre_predictor gyre_predictor;

// All zero is the default.
typedef struct gyre_predictor_options {
  int64_t max_batch;     // most samples of a call.  0: 1
  int threads;           // that compute, with the caller.  0: this process's share of the cores
  const char* device;    // "cpu", "cuda" or "sim" (a CPU with bounded memory).  NULL: "cpu"
  size_t device_memory;  // bytes, of cuda and sim.  0: what is free, or 1 GiB
  const char* outputs;   // layers, such as "fc1,fc2".  NULL: what the losses read, as shares
                         // behind a cross-entropy
} gyre_predictor_options;

// Opens a .gyre file, a run's folder (its newest checkpoint) or a checkpoint's folder.  `options`
// may be NULL.  Plans the net and allocates all its memory.
int gyre_predictor_open(const char* path, const gyre_predictor_options* options,
                        gyre_predictor** predictor);
// Frees it.  NULL is allowed.
void gyre_predictor_close(gyre_predictor* predictor);

// All inputs, then all outputs.  NULL beyond gyre_predictor_arrays - 1.
size_t gyre_predictor_arrays(const gyre_predictor* predictor);
const gyre_array_info* gyre_predictor_array(const gyre_predictor* predictor, size_t index);

// Computes `samples` samples, from 1 to max_batch.  `arrays` has each input once, and each output
// that is wanted, in any order.  Inputs are in the unit of the training data: Gyre normalizes them
// as the run did, and gives predicted targets in their unit.  The first call with a number of
// samples plans for it and allocates its memory.
int gyre_predictor_run(gyre_predictor* predictor, int64_t samples, const gyre_array* arrays,
                       size_t count);

// Layers that carry rows from batch to batch go on from call to call of the same number of samples.
// After a reset, or with another number, they begin with zeros.
int gyre_predictor_reset(gyre_predictor* predictor);

// Both make a picture an input [height, width, 1, 3 or 4] of GYRE_U8, resized and cropped as the
// run's test data are.  `to` has the bytes of one sample.
// From pixels with the channels that the input has: grey, RGB or RGBA.  Rows are from the top,
// without padding.
int gyre_predictor_fit_picture(gyre_predictor* predictor, const char* input, const uint8_t* pixels,
                               int64_t height, int64_t width, int64_t channels, uint8_t* to,
                               size_t to_bytes);
// From the bytes of a JPEG, PNG or WebP file, of any colours.
int gyre_predictor_decode_picture(gyre_predictor* predictor, const char* input, const void* file,
                                  size_t file_bytes, uint8_t* to, size_t to_bytes);

// ---- Training ----

// A net in training.
typedef struct gyre_training_run gyre_training_run;

// A loss or metric, such as {"loss", 0.35}.
typedef struct gyre_metric {
  const char* name;
  double value;
} gyre_metric;

// Called after a step or test with its metrics over all ranks, within the call that ran it.
// `step` counts the steps done.  It must not call Gyre with the same run.
typedef void (*gyre_on_metrics)(void* context, int64_t step, int is_test,
                                const gyre_metric* metrics, size_t count);

// All zero is the default, but for the texts.
typedef struct gyre_training_options {
  // The texts (docs/formats.md), or the trainer's file, which names the net's.  Data need not be
  // named, as the caller feeds the batches.
  const char *trainer_text, *net_text;
  const char* trainer_file;
  const char* out;       // folder of checkpoints.  NULL: there are none
  const char* resume;    // a checkpoint's folder, "latest" (of out) or "auto" (latest or new)
  const char* weights;   // initial weights: .gyre, .safetensors or .npz, a run or a checkpoint
  int threads;           // as of a predictor
  const char* device;    // likewise
  size_t device_memory;  // likewise
  // An MPI_Comm* of the ranks that train together, or NULL for one.  MPI runs with
  // MPI_THREAD_MULTIPLE.  All ranks make the same calls in the same order.
  const void* mpi_comm;
  // Names of the labels' classes by number, which checkpoints and exports keep.  NULL: numbers.
  const char* const* classes;
  size_t class_count;
  gyre_on_metrics on_metrics;  // may be NULL
  void* context;               // its argument
} gyre_training_options;

// Plans all nets, allocates all memory, and sets the weights.
int gyre_training_open(const gyre_training_options* options, gyre_training_run** run);
// Waits for a checkpoint under way, and frees it.  NULL is allowed.
void gyre_training_close(gyre_training_run* run);

// The net's inputs, labels among them.
size_t gyre_training_arrays(const gyre_training_run* run);
const gyre_array_info* gyre_training_array(const gyre_training_run* run, size_t index);

// Samples of a call of gyre_training_step: this rank's share of the trainer's batch.
int64_t gyre_training_batch(const gyre_training_run* run);
// Steps done.
int64_t gyre_training_steps(const gyre_training_run* run);

// One iteration with this batch: each input once.  With the trainer's `accumulate`, as many calls
// make a step.
int gyre_training_step(gyre_training_run* run, const gyre_array* arrays, size_t count);
// Tests the net on any number of samples, each input once.  With ranks: on each rank's own samples,
// of which all have the same number.
int gyre_training_test(gyre_training_run* run, int64_t samples, const gyre_array* arrays,
                       size_t count);
// Writes a checkpoint to `out`, and returns once it is complete.  `resume` goes on from it, and
// gyre_predictor_open, `predict` and `export` read it.
int gyre_training_save(gyre_training_run* run);
// Goes back to a checkpoint's folder, or to the newest one of `out` if `path` is NULL.
int gyre_training_load(gyre_training_run* run, const char* path);
// Writes weights to a new file: .safetensors, .npz, or .gyre, which gyre_predictor_open takes.
int gyre_training_export(gyre_training_run* run, const char* path);

#ifdef __cplusplus
}
#endif

#endif  // GYRE_GYRE_C_H_
