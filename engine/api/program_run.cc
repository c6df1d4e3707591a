#include "engine/api/program_run.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/api/given_dataset.h"
#include "engine/data/batches/sample_order.h"
#include "engine/data/sets/series.h"
#include "engine/runtime/check.h"
#include "engine/training/run/gradient_exchange.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace gyre {
namespace {

// Of a silent rank, as of the tools.
constexpr int64_t kStallTimeoutMs = 300'000;

// Ignores errors, which the parser of the whole text tells.
class NoErrors : public google::protobuf::io::ErrorCollector {
  void AddError(int, int, const std::string&) override {}
};

// The trainer's text with what it lacks because a program has it: data, and the net's file.  Lines
// keep their numbers.
std::string Completed(std::string text, const NetConfig& net) {
  TrainerConfig config;
  NoErrors errors;
  google::protobuf::TextFormat::Parser parser;
  google::protobuf::TextFormat::ParseInfoTree places;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&places);
  parser.AllowPartialMessage(true);
  if (!parser.ParseFromString(text, &config)) return text;
  const bool lacks_net = !config.has_net();
  if (!config.data().has_train()) {
    std::string train = " train { arrays {";
    for (const InputConfig& input : net.input()) {
      absl::StrAppend(&train, " array { input: \"", input.name(),
                      "\" file: \"the program's memory\" }");
    }
    absl::StrAppend(&train, " } }");
    if (config.has_data()) {
      const auto place = places.GetLocation(config.GetDescriptor()->FindFieldByName("data"), -1);
      size_t at = 0;
      for (int line = 0; line < place.line; ++line) at = text.find('\n', at) + 1;
      text.insert(text.find('{', at + static_cast<size_t>(place.column)) + 1, train);
    } else {
      absl::StrAppend(&text, "\ndata {", train, " }");
    }
  }
  if (lacks_net) absl::StrAppend(&text, "\nnet: \"the program's text\"");
  return text;
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> JoinRanks(const void* mpi_comm,
                                                        const AllreduceChoice& choice) {
  if (mpi_comm == nullptr) {
    return ProcessGroup::Start(
        [] { return std::move(NewThreadCommunicators(1, kStallTimeoutMs).front()); }, choice);
  }
  return ProcessGroup::Start([=] { return NewMpiCommunicatorOver(mpi_comm, kStallTimeoutMs); },
                             choice, ProcessGroup::kMeetingTimeoutMs, kStallTimeoutMs);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProgramRun>> ProgramRun::Open(const ProgramRunOptions& options,
                                                             Tell tell) {
  std::unique_ptr<ProgramRun> run(new ProgramRun);
  run->tell_ = std::move(tell);
  RETURN_IF_ERROR(run->ReadTexts(options));
  RETURN_IF_ERROR(run->Start(options));
  return run;
}

// After an error messages may still be under way to memory of the run: all that has some, and the
// thread that knows of it, stays.
ProgramRun::~ProgramRun() {
  if (ranks_ == nullptr || ranks_->size() == 1 || ranks_->status().ok()) return;
  static_cast<void>(run_.release());
  static_cast<void>(ranks_.release());
  static_cast<void>(device_.device.release());
  static_cast<void>(device_.primitives.release());
}

absl::Status ProgramRun::ReadTexts(const ProgramRunOptions& options) {
  const bool texts = !options.trainer_text.empty() || !options.net_text.empty();
  if (texts == !options.trainer_file.empty()) {
    return absl::InvalidArgumentError(
        "expected trainer_text and net_text, or trainer_file, got both or neither");
  }
  if (!texts) {
    ASSIGN_OR_RETURN(trainer_, ParseTrainer(options.trainer_file));
    ASSIGN_OR_RETURN(net_, ParseNet(RelativeTo(options.trainer_file, trainer_.message->net())));
  } else {
    if (options.trainer_text.empty()) return absl::InvalidArgumentError("trainer_text: is missing");
    if (options.net_text.empty()) return absl::InvalidArgumentError("net_text: is missing");
    ASSIGN_OR_RETURN(net_, ParseNetText(options.net_text, "net_text"));
    ASSIGN_OR_RETURN(
        trainer_, ParseTrainerText(Completed(options.trainer_text, *net_.message), "trainer_text"));
  }
  // For testing nets.
  DataConfig& data = *trainer_.message->mutable_data();
  if (!data.has_test() && !data.has_split()) *data.mutable_test() = data.train();
  return absl::OkStatus();
}

absl::Status ProgramRun::Start(const ProgramRunOptions& options) {
  if ((options.resume == "latest" || options.resume == "auto") && options.out.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("resume: \"", options.resume, "\" needs `out`, the folder to resume in"));
  }
  DeviceWish wish = options.device;
  wish.tf32 = trainer_.message->tf32();
  ASSIGN_OR_RETURN(device_, OpenWished(wish));
  const DeviceKind kind = device_.device->kind();
  ASSIGN_OR_RETURN(const AllreduceChoice choice,
                   CompleteExchange(*net_.message, kind, /*threads=*/false, trainer_));
  ASSIGN_OR_RETURN(ranks_, JoinRanks(options.mpi_comm, choice));
  TrainingOptions training{
      .out = options.out,
      .resume = options.resume,
      .weights = options.weights,
      .weights_map = {},
      .net_text = net_.message->DebugString(),
      .trainer_text = trainer_.message->DebugString(),
      .trainer_file = options.trainer_file.empty()
                          ? std::string()
                          : std::filesystem::absolute(options.trainer_file).string(),
      .choices = {{"threads", absl::StrCat(device_.threads)},
                  {"ranks", absl::StrCat(ranks_->size())}},
      .pages = {.threads = device_.threads}};
  if (!options.classes.empty()) {
    training.fit = Fit{{kClassesFile, absl::StrCat(absl::StrJoin(options.classes, "\n"), "\n")}};
  }
  ASSIGN_OR_RETURN(run_, FedRun::Open(trainer_, net_, *device_.device, *device_.primitives, *ranks_,
                                      std::move(training)));
  arrays_.emplace(InputArrays(*net_.message));
  ASSIGN_OR_RETURN(fed_, FedBatch::Create(*device_.device, run_->train_plan()));
  return absl::OkStatus();
}

absl::Status ProgramRun::Refuse(const absl::Status& status) {
  return ranks_->size() == 1 ? status : ranks_->Refuse("a call of a rank", status);
}

absl::Status ProgramRun::Agreed(const absl::Status& status) {
  if (ranks_->size() == 1 || !ranks_->status().ok()) return status;
  double failed = status.ok() ? 0 : 1;
  RETURN_IF_ERROR(ranks_->Sum("ranks that failed", std::span(&failed, 1)));
  if (failed == 0 || !status.ok()) return status;
  return absl::AbortedError("another rank failed, and says why");
}

absl::Status ProgramRun::FillBatch(const gyre_array* given, size_t count) {
  std::span<const gyre_array* const> arrays;
  RETURN_IF_ERROR(arrays_->Match(batch(), given, count, &arrays));
  return fed_->Fill(arrays);
}

absl::Status ProgramRun::Step(const gyre_array* given, size_t count) {
  if (const absl::Status filled = FillBatch(given, count); !filled.ok()) return Refuse(filled);
  ASSIGN_OR_RETURN(const auto metrics, run_->Step(fed_->batch()));
  if (metrics) TellMetrics(/*is_test=*/false, *metrics);
  return absl::OkStatus();
}

absl::Status ProgramRun::Test(int64_t samples, const gyre_array* given, size_t count) {
  const auto [first, own] = ShareOf(run_->test_batch(), ranks_->rank(), ranks_->size());
  if (samples < own || samples % own != 0) {
    return Refuse(absl::InvalidArgumentError(absl::StrFormat(
        "samples: expected a multiple of %d, this rank's part of test_batch, got %d", own,
        samples)));
  }
  std::span<const gyre_array* const> arrays;
  if (const absl::Status matched = arrays_->Match(samples, given, count, &arrays); !matched.ok()) {
    return Refuse(matched);
  }
  const GivenDataset dataset(arrays, arrays_->infos(), samples, run_->test_batch(), first, own);
  ASSIGN_OR_RETURN(const TestResult tested, run_->Test(dataset, dataset.size()));
  TellMetrics(/*is_test=*/true, tested.metrics);
  return absl::OkStatus();
}

absl::Status ProgramRun::Export(const std::string& path) {
  for (const char* const ending : {".gyre", ".safetensors", ".npz"}) {
    if (absl::EndsWith(path, ending)) return Agreed(run_->Export(path));
  }
  return Refuse(absl::InvalidArgumentError(absl::StrCat(
      "path: expected a name that ends in .gyre, .safetensors or .npz, got \"", path, "\"")));
}

void ProgramRun::TellMetrics(bool is_test, const std::vector<Metric>& metrics) const {
  if (tell_) tell_(steps(), is_test, NamedValues(metrics));
}

}  // namespace gyre
