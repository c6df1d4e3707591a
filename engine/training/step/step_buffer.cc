#include "engine/training/step/step_buffer.h"

#include <algorithm>
#include <limits>
#include <new>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// Bytes from `from` to `to`, in one allocation.
size_t BytesBetween(const void* from, const void* to) {
  return static_cast<size_t>(static_cast<const std::byte*>(to) -
                             static_cast<const std::byte*>(from));
}

// Bytes of a net's block, with the metrics and records behind it.
size_t BlockBytes(const Net& net) {
  size_t bytes = sizeof(StepScalars);
  const auto reach = [&](const Tensor& part) {
    if (part) bytes = BytesBetween(net.step_scalars(), part.data) + part.bytes();
  };
  reach(net.metrics());
  for (size_t n = 0; n < net.plan().spec.nodes.size(); ++n) reach(net.records(static_cast<int>(n)));
  return bytes;
}

// The value that is bad, as text.  None if there is none, or if several differ.
template <typename T, typename IsBad>
std::optional<std::string> OneOf(std::span<const T> values, const IsBad& is_bad) {
  std::optional<T> found;
  for (const T v : values) {
    if (!is_bad(v)) continue;
    if (found && !(*found == v)) return std::nullopt;
    found = v;
  }
  return found ? std::optional(absl::StrCat(*found)) : std::nullopt;
}

}  // namespace

absl::StatusOr<StepBuffer> StepBuffer::Create(Device& device, const Net& net) {
  StepBuffer buffer;
  buffer.net_ = &net;
  buffer.block_at_ = BytesBetween(net.step(), net.step_scalars());
  ASSIGN_OR_RETURN(buffer.memory_,
                   Buffer::Allocate(device, MemoryKind::kPinnedHost,
                                    buffer.block_at_ + sizeof(StepScalars) + BlockBytes(net)));
  new (buffer.down()) StepScalars();
  const std::vector<FedInput>& inputs = net.plan().feed.inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensor values = net.pixel_values(static_cast<int>(i));
    if (values.elements() == 0) continue;
    values.data = buffer.memory_.data() + BytesBetween(net.step(), values.data);
    VisitReal(values.dtype, [&]<typename T>() {
      std::ranges::transform(inputs[i].pixel_values, values.as<T>(),
                             [](double value) { return static_cast<T>(value); });
    });
  }
  return buffer;
}

void StepBuffer::Set(const BatchPosition& position,
                     const std::array<UpdateScalars, kMostStepsInFlight>& updates,
                     double loss_scale, bool first_batch) {
  new (up()) StepScalars{.position = position,
                         .first_batch = first_batch,
                         .loss_scale = loss_scale,
                         .updates = updates,
                         .fault = {},
                         .gradients = {}};
}

absl::Status StepBuffer::Upload(Stream& stream) const {
  return stream.Copy(net_->step(), memory_.data(), block_at_ + sizeof(StepScalars));
}

absl::Status StepBuffer::Download(Stream& stream) const {
  const size_t first = offsetof(StepScalars, fault);
  return stream.Copy(&down()->fault, &net_->step_scalars()->fault, BlockBytes(*net_) - first);
}

GradientReport StepBuffer::gradients() const { return down()->gradients; }

Tensor StepBuffer::metrics() const { return Down(net_->metrics()); }

Tensor StepBuffer::records(int node) const { return Down(net_->records(node)); }

Tensor StepBuffer::Down(Tensor there) const {
  if (there) {
    there.data =
        reinterpret_cast<std::byte*>(down()) + BytesBetween(net_->step_scalars(), there.data);
  }
  return there;
}

absl::Status StepBuffer::CheckFault(const Batch& batch) const {
  const Fault fault = down()->fault;
  if (fault.word == Fault::kNone) return absl::OkStatus();
  const NetNode& node = net_->plan().spec.nodes[fault.layer()];
  std::vector<std::string> takes;  // all that it may be
  std::string got = "one beyond";  // of what is computed
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const StateSpec& state = node.spec.states[i];
    if (state.largest < 0 && !state.not_negative) continue;
    const std::string range = state.not_negative
                                  ? absl::StrCat(state.name, " of 0 or more")
                                  : absl::StrFormat("%s from 0 to %d", state.name, state.largest);
    if (const auto bad = OneBeyond(state, node.inputs[i], batch, fault.index())) {
      takes = {range};
      got = *bad;
      break;
    }
    takes.push_back(range);
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "sample %d (the first is 0): %s: layer \"%s\" takes %s, got %s; correct the data, or the "
      "layer",
      batch.samples[fault.index()], node.where, node.config->name(), absl::StrJoin(takes, " and "),
      got));
}

std::optional<std::string> StepBuffer::OneBeyond(const StateSpec& state, int value,
                                                 const Batch& batch, int64_t sample) const {
  const auto input =
      static_cast<size_t>(net_->plan().spec.values[value].memory);  // it is, or views
  if (input >= batch.arrays.size()) return std::nullopt;
  const Tensor& array = batch.arrays[input];
  const auto beyond = [&]<typename T>(double largest) {
    const int64_t elements = array.elements() / static_cast<int64_t>(batch.samples.size());
    const std::span of_sample(array.as<T>() + sample * elements, static_cast<size_t>(elements));
    return OneOf<T>(of_sample, [largest](T v) { return !(v >= 0 && v <= largest); });
  };
  constexpr double kLargest = std::numeric_limits<double>::max();
  switch (array.dtype) {
    case DType::kI32:
      return state.not_negative ? std::nullopt
                                : beyond.operator()<int32_t>(static_cast<double>(state.largest));
    case DType::kF32:
      return beyond.operator()<float>(kLargest);
    case DType::kF64:
      return beyond.operator()<double>(kLargest);
    default:
      return std::nullopt;
  }
}

}  // namespace gyre
