#include "tests/end_to_end/bad_input.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

constexpr char kNet[] =
    "name: \"tiny\"\n"
    "input { name: \"image\" dims: [8, 8, 1] }\n"
    "input { name: \"label\" type: LABEL }\n"
    "layer { name: \"conv\" conv2d { filters: 4 kernel: 3 } } layer { name: \"flat\" flatten {} }\n"
    "layer { name: \"fc\" dense { outputs: 3 } }\n"
    "layer { name: \"loss\" input: \"fc\" input: \"label\" softmax_cross_entropy {} }\n";

void Apply(const Edit& edit, const std::string& path) {
  const std::string text = ReadBytes(path);
  const size_t at = text.find(edit.from);
  ASSERT_NE(at, std::string::npos) << edit.from;
  WriteBytes(path, absl::StrCat(text.substr(0, at), edit.to, text.substr(at + edit.from.size())));
}

// Path -> bytes, or "folder", of all that lies below `folder`.
std::map<std::string, std::string> Snapshot(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string path = fs::relative(entry.path(), folder);
    files[path] = entry.is_directory() ? "folder" : ReadBytes(entry.path());
  }
  return files;
}

// The paths that came, went, or hold other bytes.
std::vector<std::string> Changes(const std::map<std::string, std::string>& before,
                                 const std::map<std::string, std::string>& after) {
  std::vector<std::string> changes;
  for (const auto& [path, bytes] : after) {
    const auto old = before.find(path);
    if (old == before.end() || old->second != bytes) changes.push_back(path);
  }
  for (const auto& [path, bytes] : before) {
    if (!after.contains(path)) changes.push_back(path + " is gone");
  }
  return changes;
}

std::string InFolder(const std::string& text, const std::string& folder) {
  return absl::StrReplaceAll(text, {{"@", folder}});
}

// The folder of a test: data sets train and test, net.textproto, trainer.textproto.
void WriteFolder(const std::string& folder) {
  WriteIdx(folder, "train", {.samples = 20, .height = 8, .width = 8, .classes = 3});
  WriteIdx(folder, "test", {.samples = 10, .height = 8, .width = 8, .classes = 3, .seed = 2});
  WriteTrainer(folder, kNet, {.rest = "batch: 4 steps: 4"});
}

ToolResult RunIn(const std::string& folder, const std::string& tool,
                 const std::vector<std::string>& arguments, const ToolOptions& options = {}) {
  const bool has_trainer = tool == "train" || tool == "evaluate";
  std::vector<std::string> command;
  const auto begin_rank = [&] {
    if (has_trainer) command.push_back("--trainer=" + folder + "/trainer.textproto");
  };
  begin_rank();
  for (const std::string& argument : arguments) {
    command.push_back(InFolder(argument, folder));
    if (argument == ":") begin_rank();
  }
  return RunTool(tool, command, options);
}

// The lines with which the tool itself, not mpirun, says what is wrong.
std::vector<std::string> Errors(const std::string& err) {
  std::vector<std::string> errors;
  for (absl::string_view line : absl::StrSplit(err, '\n')) {
    if (!absl::ConsumePrefix(&line, "error: ")) continue;
    for (const char* rank : {"rank 0: ", "rank 1: "}) absl::ConsumePrefix(&line, rank);
    errors.emplace_back(line);
  }
  return errors;
}

}  // namespace

std::vector<BadInput> OfFlags(std::span<const BadInput> inputs) {
  std::vector<BadInput> of_flags(inputs.begin(), inputs.end());
  for (BadInput& input : of_flags) input.exit_code = 2;
  return of_flags;
}

void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }

std::string NameOf(const testing::TestParamInfo<BadInput>& info) { return info.param.name; }

GoodFolder::GoodFolder() {
  // One run serves all tests of a binary.
  static const std::unique_ptr<TempFolder> good = [] {
    auto made = std::make_unique<TempFolder>();
    WriteFolder(made->path());
    Succeeded(RunIn(made->path(), "train", {"--out=@/run", "--checkpoint_every=2"}));
    return made;
  }();
  fs::copy(good->path(), path(), fs::copy_options::recursive);
}

ToolResult GoodFolder::Run(const std::string& tool, const std::vector<std::string>& arguments,
                           const ToolOptions& options) const {
  return RunIn(path(), tool, arguments, options);
}

void ExpectMessage(const ToolResult& result, std::string message) {
  const std::vector<std::string> errors = Errors(result.err);
  ASSERT_EQ(errors.size(), 1u) << result.ToString();
  std::string got = errors[0];
  if (absl::EndsWith(message, "...")) {
    message.resize(message.size() - 3);
    got = got.substr(0, message.size());
  }
  EXPECT_EQ(got, message) << result.ToString();
}

void ExpectOneMessage(const BadInput& input) {
  const GoodFolder folder;
  if (!input.net.from.empty()) Apply(input.net, folder / "net.textproto");
  if (!input.trainer.from.empty()) Apply(input.trainer, folder / "trainer.textproto");
  if (input.prepare) input.prepare(folder.path());
  const std::map<std::string, std::string> before = Snapshot(folder.path());
  std::vector<std::string> arguments = input.arguments;
  if (input.tool == "train") arguments.insert(arguments.begin(), "--out=@/out");

  for (const int ranks : input.ranks) {
    SCOPED_TRACE(absl::StrCat(ranks, " ranks"));
    const ToolResult result = folder.Run(input.tool, arguments, {.ranks = ranks, .env = input.env});
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.exit_code, input.exit_code) << result.ToString();
    ExpectMessage(result, InFolder(input.message, folder.path()));
    if (ranks == 1) {
      EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    }

    std::map<std::string, std::string> after = Snapshot(folder.path());
    if (input.begins) {
      std::erase_if(after, [](const auto& file) { return absl::StartsWith(file.first, "out"); });
      fs::remove_all(folder / "out");
    }
    EXPECT_EQ(Changes(before, after), std::vector<std::string>());
  }
}

}  // namespace gyre
