#include "tests/end_to_end/run_tool.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <stdexcept>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/check.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

constexpr double kPollSeconds = 0.005;
// mpirun ends its ranks on SIGTERM; it needs this long at most.
constexpr double kTermSeconds = 5;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string ReadAll(std::FILE* file) {
  std::string text;
  char piece[4096];
  off_t at = 0;
  ssize_t count;
  while ((count = pread(fileno(file), piece, sizeof(piece), at)) > 0) {
    text.append(piece, static_cast<size_t>(count));
    at += count;
  }
  return text;
}

// The flags of tests/mpirun_test.sh, which says why.
std::vector<std::string> MpirunCommand(int ranks) {
  return absl::StrSplit(
      absl::StrCat(
          "mpirun -np ", ranks,
          " --oversubscribe --bind-to none --mca plm isolated --mca btl self,vader --mca "
          "btl_vader_single_copy_mechanism none --mca pml ob1 --mca oob_tcp_if_include lo"),
      ' ');
}

// One thread a rank by default: more would fight over a test machine's cores, and change the bits.
std::vector<std::string> Environment(const ToolOptions& options, const std::string& scratch) {
  std::map<std::string, std::string> values;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(*variable, absl::MaxSplits('=', 1));
    values.insert(pair);
  }
  // The test's own report is not the tool's business.
  for (const char* name : {"XML_OUTPUT_FILE", "TEST_PREMATURE_EXIT_FILE"}) values.erase(name);
  values["TMPDIR"] = scratch;
  values["OMPI_ALLOW_RUN_AS_ROOT"] = values["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1";
  if (options.ranks > 1) {
    std::string& asan = values["ASAN_OPTIONS"];  // Open MPI never frees its components
    asan = absl::StrCat("detect_leaks=0", asan.empty() ? "" : ":", asan);
  }
#if defined(__SANITIZE_THREAD__)
  // What tests/main.cc says in the test's own binary, and why.  libprotobuf is not instrumented
  // either: TSan does not see the atomics that guard a default string, made when first read.  Where
  // it has lost the stack of the making, the string's own name tells.
  values["OMP_THREAD_LIMIT"] = "1";
  WriteBytes(absl::StrCat(scratch, "/tsan"),
             "called_from_lib:libgomp.so\ncalled_from_lib:libdnnl.so\n"
             "race:google::protobuf::internal::LazyString\n"
             "race:_i_give_permission_to_break_this_code_default_\n");
  values["TSAN_OPTIONS"] = absl::StrCat("halt_on_error=1:suppressions=", scratch, "/tsan");
#endif
  for (const auto& [name, value] : options.env) values[name] = value;
  std::vector<std::string> environment;
  for (const auto& [name, value] : values) environment.push_back(absl::StrCat(name, "=", value));
  return environment;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string ReadProc(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void AppendBigEndian(std::string& bytes, int64_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
}

std::string InputsText(const SyntheticData& data) {
  return absl::StrFormat(
      "input { name: \"image\" dims: [%d, %d, %d] }\ninput { name: \"label\" type: LABEL }\n",
      data.height, data.width, data.channels);
}

constexpr char kHeadText[] =
    "layer { name: \"loss\" input: \"scores\" input: \"label\" softmax_cross_entropy {} }\n"
    "layer { name: \"accuracy\" input: \"scores\" input: \"label\" accuracy {} }\n";

}  // namespace

std::string ToolResult::ToString() const {
  return absl::StrFormat("exit code %d after %.1f s%s\n-- stdout\n%s\n-- stderr\n%s", exit_code,
                         seconds, timed_out ? " (killed at its time limit)" : "", out, err);
}

Tool::Tool(const std::string& tool, const std::vector<std::string>& arguments,
           const ToolOptions& options)
    : start_s_(Now()), timeout_s_(options.timeout_s) {
  // Open MPI puts sockets below TMPDIR, whose path may have 108 characters.
  char scratch[] = "/tmp/gyre.XXXXXX";
  GYRE_CHECK(mkdtemp(scratch) != nullptr);
  scratch_ = scratch;
  out_ = std::tmpfile();
  err_ = std::tmpfile();
  GYRE_CHECK(out_ != nullptr && err_ != nullptr);

  // Bazel starts a test in its runfiles.
  std::vector<std::string> command = {fs::absolute(fs::path("tools") / tool)};
  GYRE_CHECK(fs::exists(command[0]));
  if (options.ranks > 1) {
    std::vector<std::string> mpirun = MpirunCommand(options.ranks);
    command.insert(command.begin(), mpirun.begin(), mpirun.end());
  }
  const std::string tool_path = command.back();
  for (const std::string& argument : arguments) {
    command.push_back(argument);
    if (argument != ":") continue;
    command.insert(command.end(), {"-np", "1"});
    if (!options.other_folder.empty()) {
      command.insert(command.end(), {"-wdir", options.other_folder});
    }
    command.push_back(tool_path);
  }
  std::vector<std::string> environment = Environment(options, scratch_);
  const std::vector<char*> argv = Pointers(command), envp = Pointers(environment);
  pid_ = fork();
  GYRE_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    const int in = open(options.in.empty() ? "/dev/null" : options.in.c_str(), O_RDONLY);
    dup2(in, STDIN_FILENO);
    dup2(fileno(out_), STDOUT_FILENO);
    dup2(fileno(err_), STDERR_FILENO);
    if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(127);
    execvpe(argv[0], argv.data(), envp.data());
    _exit(127);
  }
}

Tool::~Tool() {
  if (pid_ != 0) {
    timeout_s_ = 0;
    Wait();
  }
  std::fclose(out_);
  std::fclose(err_);
  std::error_code ignored;
  fs::remove_all(scratch_, ignored);
}

double Tool::Seconds() const { return Now() - start_s_; }

bool Tool::Running() { return !Ended(0); }

bool Tool::Await(const std::function<bool()>& holds) {
  while (!holds()) {
    if (!Running()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool Tool::Ended(double deadline_s) {
  while (pid_ != 0) {
    rusage used = {};
    const pid_t ended = wait4(pid_, &status_, WNOHANG, &used);
    GYRE_CHECK(ended >= 0);
    if (ended == pid_) {
      peak_bytes_ = static_cast<size_t>(used.ru_maxrss) << 10;
      pid_ = 0;
    } else if (Seconds() >= deadline_s) {
      return false;
    } else {
      std::this_thread::sleep_for(std::chrono::duration<double>(kPollSeconds));
    }
  }
  return true;
}

ToolResult Tool::Wait() {
  ToolResult result;
  result.timed_out = !Ended(timeout_s_);
  if (result.timed_out) {
    Signal(SIGTERM);
    if (!Ended(Seconds() + kTermSeconds)) {
      Signal(SIGKILL);
      Ended(Seconds() + kTermSeconds);
    }
  }
  result.seconds = Seconds();
  result.peak_bytes = peak_bytes_;
  result.exit_code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  result.out = ReadAll(out_);
  result.err = ReadAll(err_);
  return result;
}

void Tool::Signal(int signal) {
  if (pid_ != 0) kill(pid_, signal);
}

pid_t Tool::PidOfRank(int rank) const {
  const std::string wanted = absl::StrCat("OMPI_COMM_WORLD_RANK=", rank);
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string status = ReadProc(entry.path() / "status");
    if (status.find(absl::StrFormat("\nPPid:\t%d\n", pid_)) == std::string::npos) continue;
    for (const auto variable : absl::StrSplit(ReadProc(entry.path() / "environ"), '\0')) {
      if (variable == wanted) return static_cast<pid_t>(std::stoi(name));
    }
  }
  return 0;
}

std::string Tool::Out() const { return ReadAll(out_); }

ToolResult RunTool(const std::string& tool, const std::vector<std::string>& arguments,
                   const ToolOptions& options) {
  return Tool(tool, arguments, options).Wait();
}

ToolResult Succeeded(ToolResult result) {
  if (result.exit_code != 0) throw std::runtime_error(result.ToString());
  return result;
}

std::vector<std::string> Joined(std::vector<std::string> flags,
                                const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::string Unwrapped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\n  ", " "}});
}

void WriteIdx(const std::string& folder, const std::string& name, const SyntheticData& data) {
  std::mt19937_64 random(data.seed);
  std::string images, labels;
  AppendBigEndian(images, data.channels == 1 ? 0x803 : 0x804);
  for (int64_t extent : {data.samples, data.height, data.width}) AppendBigEndian(images, extent);
  if (data.channels != 1) AppendBigEndian(images, data.channels);
  AppendBigEndian(labels, 0x801);
  AppendBigEndian(labels, data.samples);

  // A class lights one of classes equal runs of an image's pixels.
  const int64_t pixels = data.height * data.width * data.channels;
  for (int64_t sample = 0; sample < data.samples; ++sample) {
    const auto label = static_cast<int64_t>(random() % static_cast<uint64_t>(data.classes));
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      const bool lit = pixel * data.classes / pixels == label;
      images.push_back(static_cast<char>((lit ? 128 : 0) + random() % 128));
    }
    const auto other = data.labels.find(sample);
    labels.push_back(static_cast<char>(other != data.labels.end() ? other->second : label));
  }
  WriteBytes(absl::StrCat(folder, "/", name, "-images.idx"), images);
  WriteBytes(absl::StrCat(folder, "/", name, "-labels.idx"), labels);
}

std::string ConvNetText(const SyntheticData& data) {
  return absl::StrCat("name: \"conv\"\n", InputsText(data),
                      "layer { name: \"conv1\" conv2d { filters: 6 kernel: 3 padding: 1 } }\n"
                      "layer { name: \"relu1\" relu {} }\n"
                      "layer { name: \"pool1\" pool2d { kind: MAX kernel: 2 } }\n"
                      "layer { name: \"conv2\" conv2d { filters: 9 kernel: 3 } }\n"
                      "layer { name: \"pool2\" pool2d { kind: AVERAGE kernel: 2 } }\n"
                      "layer { name: \"flat\" flatten {} }\n"
                      "layer { name: \"fc1\" dense { outputs: 25 } }\n"
                      "layer { name: \"relu2\" relu {} }\n"
                      "layer { name: \"drop\" dropout { rate: 0.3 } }\n"
                      "layer { name: \"scores\" dense { outputs: ",
                      data.classes, " } }\n", kHeadText);
}

std::string MlpNetText(const SyntheticData& data) {
  return absl::StrCat("name: \"mlp\"\n", InputsText(data),
                      "layer { name: \"flat\" flatten {} }\n"
                      "layer { name: \"fc1\" dense { outputs: 31 } }\n"
                      "layer { name: \"relu\" relu {} }\n"
                      "layer { name: \"drop\" dropout { rate: 0.2 } }\n"
                      "layer { name: \"scores\" dense { outputs: ",
                      data.classes, " } }\n", kHeadText);
}

std::string CopiedLabelNetText(const SyntheticData& data) {
  return absl::StrCat("name: \"copied\"\n", InputsText(data),
                      "layer { name: \"flat\" input: \"image\" flatten {} }\n"
                      "layer { name: \"fc\" dense { outputs: ",
                      data.classes,
                      " } }\n"
                      "layer { name: \"scores\" reshape { dims: [1, ",
                      data.classes,
                      "] } }\n"
                      "layer { name: \"column\" input: \"label\" reshape { dims: 1 } }\n"
                      "layer { name: \"copy\" slice { end: 1 } }\n"
                      "layer { name: \"loss\" input: \"scores\" input: \"copy\" "
                      "softmax_cross_entropy {} }\n");
}

std::string WriteTrainer(const std::string& folder, const std::string& net,
                         const TrainerText& trainer) {
  const std::string& test = trainer.test.empty() ? trainer.source : trainer.test;
  const auto dataset = [](const char* set, const std::string& source) {
    return absl::StrReplaceAll("  SET { " + source + " }\n", {{"SET", set}});
  };
  WriteBytes(absl::StrCat(folder, "/net.textproto"), net);
  const std::string path = absl::StrCat(folder, "/trainer.textproto");
  WriteBytes(path,
             absl::StrCat("net: \"net.textproto\"\ndata {\n", dataset("train", trainer.source),
                          dataset("test", test), "  ", trainer.data, "\n}\noptimizer { ",
                          trainer.optimizer, " }\nlearning_rate { ", trainer.learning_rate, " }\n",
                          trainer.rest, "\n"));
  return path;
}

}  // namespace gyre
