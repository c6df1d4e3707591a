// carried_rows.h: carried rows in checkpoint files.  Each rank writes its own rows, a tensor for
// each state and batch of a step.  "lstm.hidden_l0[6:12]" has rows 6 to 11 of the step's rows.
// Each rank reads the rows that it needs from any rank's file.
#pragma once

#include <string>
#include <vector>

#include "engine/data/tensors/tensor_file.h"
#include "engine/training/net/run/net.h"

namespace gyre {

// "lstm.hidden_l0[6:12]".
std::string NameInFile(const Net::Carried& carried);

// The bytes of these rows.  Errors: NotFound if the files lack the state, InvalidArgument for
// another shape, type or number of rows, DataLoss for missing or repeated rows.
absl::StatusOr<std::vector<std::byte>> ReadRows(const TensorFiles& files,
                                                const Net::Carried& carried);

}  // namespace gyre
