// idx_dataset.h: a data set of two IDX files, the format of MNIST, held in memory as bytes.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/dataset.h"

namespace gyre {

// images: u8 [N, H, W] or [N, H, W, C]; labels: u8 [N]; both plain or gzip, told by their content.
// Precondition: std is neither 0 nor infinite nor NaN, nor is mean.
// Errors: as OpenDataset.
// Source: LeCun, Cortes, Burges, "The MNIST database", http://yann.lecun.com/exdb/mnist, "File
// formats"; RFC 1952 for gzip.
absl::StatusOr<std::unique_ptr<Dataset>> OpenIdxDataset(const std::string& images_path,
                                                        const std::string& labels_path,
                                                        const NormalizationConfig& normalization);

}  // namespace gyre
