// shown_batch.h: the first training batch of a run as a sheet of pictures, for people.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/training/feed/data_feed.h"

namespace gyre {

struct ShownBatch {
  std::string png;
  std::string title;                       // what it shows
  std::vector<std::string> left_out = {};  // samples that could not be read, up to max_bad_samples
};

// Draws the first training input of dims [height, width, 1, 3 or 4], as the net gets it: varied,
// with the normalization undone.  The batch is that of all ranks.  Reals that were no bytes are
// stretched, of each picture the least to black and the most to white.  Alpha lies over squares.
// Captions are labels, and a mask lies beside its picture.  Draws at most 256 pictures and 256 MiB.
// Precondition: data.train is given.
// Errors: InvalidArgument for a net without such an input.  Those of NewLoader, BadSamples and
// DrawSheet.
absl::StatusOr<ShownBatch> ShowBatch(const Parsed<TrainerConfig>& trainer,
                                     const Parsed<NetConfig>& net, const RunData& data,
                                     Device& device);

// Writes it to `path`, and returns the rest.  The file is opened before the data, so that a folder
// that is not there is told at once.
absl::StatusOr<ShownBatch> WriteFirstBatch(const std::string& path,
                                           const Parsed<TrainerConfig>& trainer,
                                           const Parsed<NetConfig>& net,
                                           const std::function<absl::StatusOr<RunData>()>& open,
                                           Device& device);

// What stands under a picture: a class, the two largest shares of a distribution, or numbers.
// `classes` are names by number, or empty.
std::string CaptionOf(const std::vector<double>& label, bool integers,
                      const std::vector<std::string>& classes);

}  // namespace gyre
