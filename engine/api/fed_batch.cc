#include "engine/api/fed_batch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {

std::vector<NetArray> InputArrays(const NetConfig& net) {
  std::vector<NetArray> arrays;
  for (const InputConfig& input : net.input()) {
    arrays.push_back({.name = input.name(),
                      .type = input.type() == InputConfig::LABEL ? GYRE_I32 : GYRE_F32,
                      .dims = {input.dims().begin(), input.dims().end()}});
  }
  return arrays;
}

DType TypeOf(int type) {
  return type == GYRE_I32 ? DType::kI32 : type == GYRE_U8 ? DType::kU8 : DType::kF32;
}

absl::StatusOr<FedBatch> FedBatch::Create(Device& device, const NetPlan& plan) {
  FedBatch fed;
  ASSIGN_OR_RETURN(fed.owned_, OwnedBatch::Create(device, plan));
  for (size_t i = 0; i < fed.batch().arrays.size(); ++i) {
    const DType to = fed.batch().arrays[i].dtype;
    const Normalization& normal = plan.feed.inputs[i].normalization;
    const bool label = to == DType::kI32;
    fed.decoders_.push_back({.own = Decoder(label ? DType::kI32 : DType::kF32, to, normal)});
    if (!label) fed.decoders_.back().bytes.emplace(DType::kU8, to, normal);
  }
  return fed;
}

absl::Status FedBatch::Fill(std::span<const gyre_array* const> given) {
  for (size_t i = 0; i < decoders_.size(); ++i) {
    const Tensor& to = batch().arrays[i];
    const bool bytes = given[i]->type == GYRE_U8;
    const Decoder& decoder = bytes ? *decoders_[i].bytes : decoders_[i].own;
    const absl::Status decoded =
        decoder.Decode({given[i]->data, to.shape, TypeOf(given[i]->type)}, /*move=*/{}, to);
    if (!decoded.ok()) return Annotate(decoded, absl::StrCat("\"", given[i]->name, "\""));
  }
  return absl::OkStatus();
}

}  // namespace gyre
