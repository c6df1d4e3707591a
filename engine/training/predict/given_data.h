// given_data.h: files named by hand, read as a run read its training data.  Pure functions, but for
// the list that is written.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// Makes data.test of `trainer` the files in `paths`, of one kind, by their endings:
//   pictures, or folders of them       for an input [height, width, 1, 3 or 4]
//   .csv                               where the run read a table
//   .tsv                               where the run read reviews: lines TEXT or LABEL TAB TEXT
//   .npz, by the names of inputs       or a .npy, for a net of one input
// `net` is cut to what it predicts.  `folder` is for a list, which must outlive the data.
// Errors: InvalidArgument for no path, a path of another kind, or one that is not there.
absl::Status TakeAsTestData(std::span<const std::string> paths, const std::string& folder,
                            const NetConfig& net, TrainerConfig& trainer);

}  // namespace gyre
