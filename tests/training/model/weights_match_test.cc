// A file's tensors, a net's parameters, and which start which.
#include "engine/training/model/weights_match.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

const std::map<std::string, Shape> kShapes = {
    {"conv.weight", Shape({4, 1, 3, 3})}, {"conv.bias", Shape({4})},
    {"fc.weight", Shape({5, 8})},         {"fc.bias", Shape({5})},
    {"old.weight", Shape({3, 8})},        {"stage.0.weight", Shape({5, 8})},
    {"b-1-fc.weight", Shape({5, 8})},     {"b-2-fc.weight", Shape({5, 8})},
};

ParameterSet Net(const std::vector<std::string>& layers) {
  ParameterSet parameters;
  for (const std::string& layer : layers) {
    for (const char* state : {"weight", "bias"}) {
      const bool conv = layer == "conv";
      const Shape shape = kShapes.at(absl::StrCat(conv ? "conv." : "fc.", state));
      Parameter parameter;
      parameter.layer = layer;
      parameter.spec.name = state;
      parameter.spec.kind = StateKind::kParameter;
      parameter.spec.shape = shape;
      parameter.spec.canonical = shape;
      parameters.Add(std::move(parameter));
    }
  }
  return parameters;
}

TensorFile File(const std::vector<std::string>& names, DType dtype = DType::kF32) {
  std::vector<NamedTensor> tensors;
  for (const std::string& name : names) {
    // Nobody reads it; by its address it is known again.
    tensors.push_back({name, {const_cast<Shape*>(&kShapes.at(name)), kShapes.at(name), dtype}});
  }
  return TensorFile().With(tensors);
}

// "conv.bias<conv.bias head.weight<fc.weight" and the report; or the error.
std::string Summary(const TensorFile& file, const std::string& map,
                    const std::vector<std::string>& layers = {"conv", "head"}) {
  const auto match = MatchWeights(file, map, Net(layers), /*partial=*/true);
  if (!match.ok()) return std::string(match.status().message());
  std::string summary;
  for (const NamedTensor& taken : match->tensors.tensors()) {
    for (const auto& [name, shape] : kShapes) {
      if (taken.tensor.data == &shape) absl::StrAppend(&summary, taken.name, "<", name, " ");
    }
  }
  return absl::StrCat(summary, "\n", ToString(*match));
}

TEST(WeightsMatch, TakesWhatHasTheNameOfOneOfTheNets) {
  const TensorFile file = File({"conv.bias", "conv.weight", "fc.bias", "fc.weight"});
  const std::string conv = "conv.bias<conv.bias conv.weight<conv.weight ";
  EXPECT_EQ(Summary(file, ""), conv +
                                   "\nweights matched 2\n"
                                   "weights initial [\"head.bias\",\"head.weight\"]\n"
                                   "weights unused [\"fc.bias\",\"fc.weight\"]");
  EXPECT_EQ(Summary(file, "fc=head"), conv +
                                          "head.bias<fc.bias head.weight<fc.weight \n"
                                          "weights matched 4\nweights initial []\n"
                                          "weights unused []");
  const std::string no_bias = conv +
                              "head.weight<fc.weight \nweights matched 3\n"
                              "weights initial [\"head.bias\"]\nweights unused [\"fc.bias\"]";
  EXPECT_EQ(Summary(file, "fc.weight=head.weight"), no_bias);
  EXPECT_EQ(Summary(file, "fc=head,fc.bias="), no_bias);
  EXPECT_EQ(Summary(file, "fc.bias=,fc=head"), no_bias);
  // Exchanged at once: nothing of them fits but what is left out.
  EXPECT_EQ(
      Summary(file, "conv=head,fc=conv,conv.weight=,fc.weight=,fc.bias="),
      "its tensor \"conv.bias\" is F32 [4], the net expects for \"head.bias\" F32 [5]; rename "
      "the layer of the net, or leave the old one out with --weights_map=conv=");
  EXPECT_EQ(Summary(File({"stage.0.weight"}), "stage.0=head"),
            "head.weight<stage.0.weight \nweights matched 1\n"
            "weights initial [\"conv.bias\",\"conv.weight\",\"head.bias\"]\nweights unused []");
}

// One of a type that we lack matters to those alone who want it.
TEST(WeightsMatch, ATensorThatCannotBeReadIsUnused) {
  TempFolder folder;
  const std::string header = R"({"conv.bias":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                             R"("a.mask":{"dtype":"BOOL","shape":[2],"data_offsets":[16,18]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  WriteBytes(folder / "w", bytes + header + std::string(18, '\0'));
  const TensorFile file = *TensorFile::Read(folder / "w");
  EXPECT_EQ(Summary(file, ""),
            "\nweights matched 1\n"
            "weights initial [\"conv.weight\",\"head.bias\",\"head.weight\"]\n"
            "weights unused [\"a.mask\"]");
  EXPECT_EQ(Summary(file, "a=", {"conv"}),
            "\nweights matched 1\nweights initial [\"conv.weight\"]\nweights unused [\"a.mask\"]");
  EXPECT_EQ(Summary(file, "a.mask=head.bias"),
            "its tensor \"a.mask\" has the unknown dtype \"BOOL\"; leave it out with "
            "--weights_map=a.mask=");
}

TEST(WeightsMatch, LessThanHalfIsRefusedUnlessAskedFor) {
  const std::vector<std::string> layers = {"conv", "head"};
  const TensorFile two = File({"conv.bias", "conv.weight", "fc.bias"});
  EXPECT_TRUE(MatchWeights(two, "", Net(layers)).ok());
  const absl::Status one = MatchWeights(two, "conv.bias=", Net(layers)).status();
  EXPECT_EQ(one.message(),
            "1 of the net's 4 tensors are in it, less than half; it lacks conv.bias, head.bias, "
            "head.weight, and holds beside these conv.bias, fc.bias; rename its tensors with "
            "--weights_map, or take these few with --weights_partial");
}

TEST(WeightsMatch, LongListsAreCut) {
  WeightsMatch match;
  for (int i = 0; i < 22; ++i) match.unused.push_back(absl::StrCat("n", i));
  EXPECT_TRUE(ToString(match).ends_with("\"n18\",\"n19\",\"... and 2 more\"]")) << ToString(match);
}

TEST(WeightsMatch, RenamesBlocks) {
  const TensorFile file = File({"b-1-fc.weight", "b-2-fc.weight"});
  const std::vector<std::string> net = {"c-2-fc"};
  const std::string second =
      "c-2-fc.weight<b-2-fc.weight \nweights matched 1\nweights initial [\"c-2-fc.bias\"]\n"
      "weights unused [\"b-1-fc.weight\"]";
  EXPECT_EQ(Summary(file, "b-2=c-2", net), second);
  EXPECT_EQ(Summary(file, "b=c,b-1=", net), second);
}

TEST(WeightsMatch, Errors) {
  const TensorFile file = File({"conv.bias", "conv.weight", "fc.bias", "fc.weight", "old.weight"});
  const struct {
    const char *map, *message;
  } cases[] = {
      {"fc", "--weights_map: expected OLD=NEW or OLD=, separated by commas, got \"fc\""},
      {"=fc", "--weights_map: expected OLD=NEW or OLD=, separated by commas, got \"=fc\""},
      {"fc=a=b", "--weights_map: expected OLD=NEW or OLD=, separated by commas, got \"fc=a=b\""},
      {"fc=head,fc=", "--weights_map: \"fc\" is there twice"},
      {"cnv=conv",
       "--weights_map: unknown tensor, layer or block of the file \"cnv\"; did you mean \"conv\"?"},
      {"fcc=head",
       "--weights_map: unknown tensor, layer or block of the file \"fcc\"; did you mean \"fc\"?"},
      {"fc=haed",
       "--weights_map: unknown tensor, layer or block of the net \"haed\"; did you mean \"head\"?"},
      {"fc.weight=head",
       "--weights_map: \"fc.weight\" becomes \"head\", which the net lacks; leave it out with "
       "--weights_map=fc.weight="},
      {"fc=conv",
       "--weights_map: \"conv.bias\" and \"fc.bias\" both become \"conv.bias\"; leave one out, as "
       "with --weights_map=fc.bias="},
      {"fc=head,old=head",
       "--weights_map: \"fc.weight\" and \"old.weight\" both become \"head.weight\"; leave one "
       "out, as with --weights_map=old.weight="},
      {"old=head",
       "its tensor \"old.weight\" is F32 [3, 8], the net expects for \"head.weight\" F32 [5, 8]; "
       "rename the layer of the net, or leave the old one out with --weights_map=old="},
      {"conv=",
       "none of its tensors (conv.bias, conv.weight, fc.bias, fc.weight, old.weight) has the name "
       "of one of the net's (conv.bias, conv.weight, head.bias, head.weight); rename them with "
       "--weights_map"},
  };
  for (const auto& c : cases) EXPECT_EQ(Summary(file, c.map), c.message);
  EXPECT_EQ(Summary(File({"conv.bias"}, DType::kF64), ""),
            "its tensor \"conv.bias\" is F64 [4], the net expects for \"conv.bias\" F32 [4]; train "
            "with its --precision, rename the layer of the net, or leave the old one out with "
            "--weights_map=conv=");
  EXPECT_EQ(Summary(TensorFile(), "").substr(0, 30), "none of its tensors () has the");
}

}  // namespace
}  // namespace gyre
