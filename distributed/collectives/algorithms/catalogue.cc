#include "distributed/collectives/algorithms/catalogue.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "distributed/collectives/algorithms/algorithms.h"
#include "distributed/collectives/algorithms/nccl.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

using Made = absl::StatusOr<std::unique_ptr<Collective>>;
using Create = Made (*)(Communicator&, int tag, const SharedArenas&);

// Of S bytes over n ranks on H hosts, by the rank that sends most.
double Nothing(double, double, double) { return 0; }
double BothHalves(double bytes, double ranks, double) { return 2 * (ranks - 1) / ranks * bytes; }
double AndPartials(double bytes, double ranks, double hosts) {
  return BothHalves(bytes, ranks, hosts) + (ranks - 1) * sizeof(double);
}
double OfAPart(double bytes, double ranks, double hosts) {
  return AndPartials(bytes * hosts / ranks, hosts, hosts);
}
double All(double bytes, double ranks, double) { return (ranks - 1) * (bytes + sizeof(double)); }
// A rank with a partner beyond the largest power of two sends it the result, too.
double EachRound(double bytes, double ranks, double) {
  const auto whole = std::bit_floor(static_cast<unsigned>(ranks));
  return (std::countr_zero(whole) + (whole < ranks ? 1 : 0)) * bytes;
}
double Halves(double bytes, double ranks, double hosts) {
  const double whole = std::bit_floor(static_cast<unsigned>(ranks));
  return AndPartials(bytes, whole, hosts) + (whole < ranks ? bytes + whole * sizeof(double) : 0);
}

// `auto` has neither function: it makes several, and sends what its choice does.
struct Algorithm {
  std::string_view name;
  Create create;
  double (*bytes_sent)(double bytes, double ranks, double hosts);
  AlgorithmProperties properties = {};
};

constexpr int kAny = std::numeric_limits<int>::max();

// Of an algorithm that works by messages alone.
template <auto kNew>
Made Make(Communicator& communicator, int tag, const SharedArenas&) {
  return kNew(communicator, tag);
}
Made MakeDirect(Communicator& communicator, int tag, const SharedArenas&) {
  return NewDirect(communicator, tag);
}

constexpr Algorithm kAlgorithms[] = {
    {"ring", NewRing, AndPartials, {.has_halves = true, .arena_hosts = 1}},
    {"direct", MakeDirect, AndPartials, {.has_halves = true}},
    {"halving_doubling", Make<NewHalvingDoubling>, Halves},
    {"recursive_doubling", Make<NewRecursiveDoubling>, EachRound},
    {"shared",
     NewShared,
     Nothing,
     {.has_halves = true, .cuts_halves_elsewhere = true, .arena_hosts = 1}},
    {"hierarchical", NewHierarchical, OfAPart, {.arena_hosts = kAny}},
    {"mpi", Make<NewMpi>, BothHalves},
    {"auto",
     nullptr,
     nullptr,
     {.has_halves = true, .cuts_halves_elsewhere = true, .arena_hosts = kAny}},
    {"naive", Make<NewNaive>, All},
    {"nccl", Make<NewMessageRing>, BothHalves, {.meets_on_device = true}},
};

const Algorithm* Find(std::string_view name) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.name == name) return &algorithm;
  }
  return nullptr;
}

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kAlgorithms)> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kAlgorithms[i].name;
  return names;
}();

std::string JoinNames(std::span<const std::string_view> names) {
  return absl::StrJoin(names, ", ",
                       [](std::string* out, std::string_view name) { out->append(name); });
}

// "auto": each sum by the algorithm that a selector expects to be the fastest, and the other
// operations by those that have them.
//
// Claims go round a ring of all ranks beside the operation, with the choice in them: ranks that
// mean different things may have chosen algorithms of which neither sends the other a message.
class Auto final : public Collective {
 public:
  Auto(Communicator& communicator, int tag, Selector selector)
      : Collective(communicator, tag), selector_(std::move(selector)) {}

  // Makes the algorithms that may be chosen, each with the tag of `auto`.
  absl::Status Open(int tag, const SharedArenas& arenas) {
    std::vector<Selector::Choice> choices = selector_.choices();
    choices.push_back({.algorithm = "direct"});  // for the halves of the sum
    for (const Selector::Choice& choice : choices) {
      std::unique_ptr<Collective>& member = members_[choice.algorithm];
      if (member != nullptr) continue;
      ASSIGN_OR_RETURN(member, Find(choice.algorithm)->create(communicator_, tag, arenas));
    }
    members_["broadcast"] = NewBroadcast(communicator_, tag);
    return absl::OkStatus();
  }

 private:
  absl::Status Begin() override {
    const std::string_view name = Choice();
    const auto member = members_.find(name);
    GYRE_CHECK(member != members_.end());
    chosen_ = member->second.get();
    const Claim claim = claim_;
    claim_ = claim.By(name);
    RETURN_IF_ERROR(Announce());
    return chosen_->Start(claim, operation_, tensor_, root_);
  }

  std::string_view Choice() const {
    if (operation_ == Operation::kAllreduce) return selector_.Choose(tensor_.bytes());
    if (operation_ == Operation::kBroadcast) return "broadcast";
    return members_.contains("shared") ? "shared" : "direct";  // they add in the same order
  }

  absl::StatusOr<Advance> Step() override {
    RETURN_IF_ERROR(Settled().status());
    return chosen_->Progress(&squares_);
  }

  const Selector selector_;
  std::map<std::string, std::unique_ptr<Collective>, std::less<>> members_;
  Collective* chosen_ = nullptr;
};

absl::Status NoSuch(std::string_view algorithm) {
  return absl::InvalidArgumentError(absl::StrCat(
      "no allreduce algorithm \"", std::string(algorithm), "\"; there are: ", JoinNames(kNames)));
}

}  // namespace

std::span<const std::string_view> AllreduceNames() { return kNames; }

const AlgorithmProperties& PropertiesOf(std::string_view algorithm) {
  const Algorithm* const found = Find(algorithm);
  GYRE_CHECK(found != nullptr);
  return found->properties;
}

absl::StatusOr<std::unique_ptr<Collective>> NewCollective(std::string_view algorithm,
                                                          Communicator& communicator, int tag,
                                                          const SharedArenas& arenas,
                                                          const Selector& selector) {
  const Algorithm* const found = Find(algorithm);
  if (found == nullptr) return NoSuch(algorithm);
  if (found->create != nullptr) return found->create(communicator, tag, arenas);
  auto chooses = std::make_unique<Auto>(communicator, tag, selector);
  RETURN_IF_ERROR(chooses->Open(tag, arenas));
  return chooses;
}

absl::StatusOr<std::unique_ptr<Collective>> NewDeviceCollective(std::string_view algorithm,
                                                                Communicator& communicator, int tag,
                                                                Device& device) {
  RETURN_IF_ERROR(CheckAllreduce(algorithm, device.kind()));
  if (device.kind() == DeviceKind::kCpu) return nullptr;
  if (algorithm == "nccl") return NewNccl(communicator, tag, device);
  if (algorithm != "ring" || !communicator.moves_device_memory(device.kind())) return nullptr;
  return NewDeviceRing(communicator, tag, device);
}

absl::Status CheckAllreduce(std::string_view algorithm, std::optional<DeviceKind> device,
                            bool threads) {
  if (Find(algorithm) == nullptr) return NoSuch(algorithm);
  if (algorithm == "nccl" && device && *device != DeviceKind::kCuda) {
    return absl::InvalidArgumentError(
        absl::StrCat("allreduce \"nccl\" sums the memory of GPUs, and this is --device=",
                     std::string(DeviceKindName(*device)), "; use \"ring\", or --device=cuda"));
  }
  if (algorithm == "mpi" && threads) {
    return absl::InvalidArgumentError(
        "allreduce \"mpi\" sums the ranks of mpirun, and these are threads; use \"ring\", or "
        "mpirun");
  }
  return absl::OkStatus();
}

absl::Status CheckWire(std::string_view algorithm, DType wire) {
  if (wire == DType::kF32 || algorithm == "direct") return absl::OkStatus();
  const std::string name(DTypeName(wire));
  return absl::InvalidArgumentError(absl::StrCat("allreduce \"", std::string(algorithm),
                                                 "\" cannot carry F32 as ", name,
                                                 "; use \"direct\", which rounds each sum once"));
}

absl::Status CheckHalves(std::string_view algorithm) {
  std::vector<std::string_view> names;
  for (const Algorithm& has : kAlgorithms) {
    if (!has.properties.has_halves) continue;
    if (has.name == algorithm) return absl::OkStatus();
    names.push_back(has.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("allreduce \"", std::string(algorithm),
                   "\" does not come in halves, with an update between them; those that do: ",
                   JoinNames(names)));
}

size_t AllreduceDeviceBytes(std::string_view algorithm, size_t bytes, int ranks) {
  GYRE_CHECK(Find(algorithm) != nullptr);
  if (algorithm == "nccl") return NcclDeviceBytes();
  return algorithm == "ring" ? DeviceRingBytes(bytes, ranks) : 0;
}

double AllreduceBytesSent(std::string_view algorithm, double bytes, int ranks, int hosts) {
  const Algorithm* const found = Find(algorithm);
  GYRE_CHECK(found != nullptr && found->bytes_sent != nullptr);
  return found->bytes_sent(bytes, ranks, hosts);
}

}  // namespace gyre
