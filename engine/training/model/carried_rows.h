// carried_rows.h: what a net carries from step to step, in files: each rank writes the rows that it
// has, a tensor for each state and batch of a step, "lstm.hidden_l0[6:12]" for rows 6 to 11 of all
// that a step has; each reads those that it needs, whoever wrote them.
#pragma once

#include <string>
#include <vector>

#include "engine/data/tensors/tensor_file.h"
#include "engine/training/net/run/net.h"

namespace gyre {

// "lstm.hidden_l0[6:12]".
std::string NameInFile(const Net::Carried& carried);

// Whether ReadRows can take these: by headers, without reading rows.
absl::Status CheckRows(const TensorFiles& files, const Net::Carried& carried);

// The bytes of these rows, from files whose tensors hold all rows, each once.  Errors, which say
// that the file is of another run: NotFound if it lacks the state; InvalidArgument for rows of
// another shape or type, or another number of them; DataLoss for some that are missing or twice.
absl::StatusOr<std::vector<std::byte>> ReadRows(const TensorFiles& files,
                                                const Net::Carried& carried);

}  // namespace gyre
