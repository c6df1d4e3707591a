// What a user reads after a mistake in a net's text: each message word by word, and the positions
// that outlive the parsing.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "models/schema/parse.h"

namespace gyre {
namespace {

constexpr char kHead[] = "input { name: \"image\" dims: 28 dims: 28 dims: 1 }\n";

std::string ErrorOf(const std::string& text) {
  const auto net = ParseNetText(text, "net");
  if (net.ok()) return "";
  EXPECT_EQ(net.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(net.status().message());
}

struct Case {
  std::string text;  // after kHead, hence from line 2
  std::string error;
};

void Expect(const std::vector<Case>& cases) {
  for (const Case& c : cases) EXPECT_EQ(ErrorOf(kHead + c.text), c.error) << c.text;
}

TEST(NetText, UnknownField) {
  Expect({
      {"layer { name: \"conv1\" conv2d { kernal: 5 } }",
       "net:2:32: layer \"conv1\": unknown field \"kernal\"; did you mean \"kernel\"?"},
      {"layer {\n  conv2d { xyz: 5 }\n  name: \"late\"\n}",
       "net:3:12: layer \"late\": unknown field \"xyz\"; choose from filters, kernel, stride, "
       "padding, dilation, groups, use_bias, weight, bias"},
      {"layer { name: \"a\" dens { } }",
       "net:2:19: layer \"a\": unknown layer type \"dens\"; did you mean \"dense\"?"},
      {"layers { }", "net:2:1: unknown field \"layers\"; did you mean \"layer\"?"},
      {"optimizer { }",
       "net:2:1: unknown field \"optimizer\" in a net; it belongs in a trainer: is this file a "
       "trainer?"},
      {"layer { name: \"a\" flatten { size: 3 } }",
       "net:2:29: layer \"a\": unknown field \"size\"; there is none"},
      // The name of something inside is not the layer's.
      {"layer { relu { name: 'x' } }",
       "net:2:16: unknown field \"name\" in relu; it belongs in layer: is a \"}\" missing before "
       "it?"},
      {"layer { conv2d { kernal: 5 } }",
       "net:2:18: unknown field \"kernal\"; did you mean \"kernel\"?"},
  });
}

// New layers lengthen the lists of types, so only their beginnings are fixed here.
TEST(NetText, ListsOfLayerTypesStartWith) {
  const struct {
    std::string layer, error;
  } cases[] = {
      {"layer { name: \"a\" }",
       "net:2:1: layer \"a\": missing type; write one of dense, conv2d, pool2d, relu, dropout, "
       "flatten, softmax_cross_entropy, accuracy"},
      {"layer { name: \"a\" use_bias: true }",
       "net:2:19: layer \"a\": unknown field \"use_bias\" here; it belongs in dense or conv2d"},
      {"layer { name: \"a\" zzz { } }",
       "net:2:19: layer \"a\": unknown layer type \"zzz\"; choose from dense, conv2d, pool2d, "
       "relu"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(ErrorOf(kHead + c.layer).substr(0, c.error.size()), c.error);
  }
}

TEST(NetText, MissingBrace) {
  Expect({
      {"layer { name: \"a\" dense { outputs: 1 }\nlayer { name: \"b\" relu { } }",
       "net:3:1: layer \"a\": unknown field \"layer\" in layer; it belongs outside: is a \"}\" "
       "missing before it?"},
      {"layer { name: \"a\" dense { outputs: 1 input: \"image\" }",
       "net:2:38: layer \"a\": unknown field \"input\" in dense; it belongs in layer: is a \"}\" "
       "missing before it?"},
      {"layer { name: \"a\" relu { }", "net:2:7: layer \"a\": the \"{\" of layer is never closed"},
      {"layer { name: \"a\" relu {", "net:2:24: layer \"a\": the \"{\" of relu is never closed"},
      {"}", "net:2:1: expected the name of a field, got }"},
      {"layer { name: \"a\" relu { > }",
       "net:2:26: layer \"a\": expected the name of a field, got >"},
      {"layer", "net:2:6: expected for layer { ... }, got the end of the file"},
  });
}

TEST(NetText, WrongType) {
  Expect({
      {"layer { name: \"d\" dropout { rate: 0,5 } }",
       "net:2:35: layer \"d\": expected for rate a number, got 0,5; a decimal has a point: 0.5"},
      {"layer { name: \"d\" dropout { rate: 0x1 } }",
       "net:2:35: layer \"d\": expected for rate a number, got 0x1"},
      {"layer { name: \"c\" conv2d { filters: 2,5 } }",
       "net:2:39: layer \"c\": expected the name of a field, got 5"},
      {"layer { name: \"c\" conv2d { filters: \"20\" } }",
       "net:2:37: layer \"c\": expected for filters a 64-bit integer, got \"20\""},
      {"layer { name: \"c\" conv2d { filters: 2.5 } }",
       "net:2:37: layer \"c\": expected for filters a 64-bit integer, got 2.5"},
      {"layer { name: \"c\" conv2d { filters: many } }",
       "net:2:37: layer \"c\": expected for filters a 64-bit integer, got many"},
      {"layer { name: \"c\" conv2d { filters: 9223372036854775808 } }",
       "net:2:37: layer \"c\": expected for filters a 64-bit integer, got 9223372036854775808"},
      {"layer { name: \"c\" conv2d { filters } }",
       "net:2:36: layer \"c\": expected \":\" after filters, got }"},
      {"layer { name: \"c\" conv2d { filters: } }",
       "net:2:37: layer \"c\": expected for filters a 64-bit integer, got }"},
      {"layer { name: \"c\" conv2d { filters: [3] } }",
       "net:2:37: layer \"c\": filters takes one value, not a list"},
      {"layer { name: \"c\" conv2d { kernel: [3, 5 } }",
       "net:2:42: layer \"c\": expected \",\" or \"]\" in the list kernel, got }"},
      {"layer { name: \"c\" conv2d { kernel: [3, x] } }",
       "net:2:40: layer \"c\": expected for kernel a 64-bit integer, got x"},
      {"layer { name: \"c\" conv2d { use_bias: 2 } }",
       "net:2:38: layer \"c\": expected for use_bias true or false, got 2"},
      {"layer { name: \"c\" dropout { rate: half } }",
       "net:2:35: layer \"c\": expected for rate a number, got half"},
      {"layer { name: \"c\" conv2d: 3 }",
       "net:2:27: layer \"c\": expected for conv2d { ... }, got 3"},
      {"layer { name: \"c\" accuracy { ignore_label: 2147483648 } }",
       "net:2:44: layer \"c\": expected for ignore_label a 32-bit integer, got 2147483648"},
      {"layer { name: conv1 relu { } }",
       "net:2:15: expected for name a string in quotes, got conv1"},
      {"layer { name: \"p\" pool2d { kind: MAXIMUM } }",
       "net:2:34: layer \"p\": expected for kind MAX or AVERAGE, got MAXIMUM"},
      {"layer { name: \"p\" pool2d { kind: 7 } }",
       "net:2:34: layer \"p\": expected for kind MAX or AVERAGE, got 7"},
      {"layer { name: \"p\" phase: train }",
       "net:2:26: layer \"p\": expected for phase ALWAYS, TRAIN or TEST, got train"},
      {"layer { name: \"p\" dropout { rate: nan } }",
       "net:2:29: layer \"p\": rate must be finite, got nan"},
      {"layer { name: \"p\" dense { weight { initializer { gaussian { std: -inf } } } } }",
       "net:2:61: layer \"p\": std must be finite, got -inf"},
  });
}

TEST(NetText, Twice) {
  Expect({
      {"layer { name: \"c\" dense { outputs: 1\n outputs: 2 } }",
       "net:3:2: layer \"c\": outputs is already set at net:2:27; keep one"},
      {"layer { name: \"c\" dense { outputs: 1 } relu { } }",
       "net:2:40: layer \"c\": both dense (at net:2:19) and relu; keep one"},
      {"layer { name: \"c\" relu { } relu { } }",
       "net:2:28: layer \"c\": relu is already set at net:2:19; keep one"},
      {"layer { name: \"c\" relu { } }\nlayer { name: \"c\" relu { } }",
       "net:3:9: layer \"c\": the name is already that of the layer at net:2:9"},
      {"layer { name: \"image\" relu { } }",
       "net:2:9: layer \"image\": the name is already that of the input at net:1:9"},
      {"input { name: \"image\" } layer { name: \"c\" relu { } }",
       "net:2:9: input \"image\": the name is already that of the input at net:1:9"},
  });
}

TEST(NetText, Missing) {
  Expect({
      {"", "net:1:1: the net has no layer; write layer { name: \"fc\" dense { outputs: 10 } }"},
      {"\n  layer { relu { } }", "net:3:3: layer 0: missing name; write name: \"conv1\""},
      {"layer { name: \"\" relu { } }", "net:2:9: layer 0: missing name; write name: \"conv1\""},
      {"input { dims: 3 }",
       "net:1:1: the net has no layer; write layer { name: \"fc\" dense { outputs: 10 } }"},
      {"input { dims: 3 } layer { name: \"a\" relu { } }",
       "net:2:1: input 1: missing name; write name: \"image\""},
      {"input { name: \"x\" dims: 3 dims: 0 } layer { name: \"a\" relu { } }",
       "net:2:27: input \"x\": dims must be >= 1, got 0"},
      {"input { name: \"x\" dims: [3, -1] } layer { name: \"a\" relu { } }",
       "net:2:19: input \"x\": dims must be >= 1, got -1"},
      {"layer { name: \"a\" input: [\"image\", \"\"] relu { } }",
       "net:2:19: layer \"a\": input is empty"},
      {"input { name: \"x\" dims: 2147483648 } layer { name: \"a\" relu { } }",
       "net:2:19: input \"x\": dims must be at most 2^31 - 1, got 2147483648"},
  });
}

// What escapes a folder, breaks JSON, gives two tensors one name or is out of --set's reach.
TEST(NetText, Names) {
  const std::string rule =
      ": a name has at most 100 characters, each an ASCII letter, a digit, \"_\" or \"-\"";
  const std::string longest(100, 'a');
  const struct {
    std::string name, shown;  // as written between quotes; as complained about, "" if good
  } cases[] = {
      {"fc.2", "fc.2"},
      {"../../x", "../../x"},
      {"a/b", "a/b"},
      {"a b", "a b"},
      {"a=b", "a=b"},
      {"a,b", "a,b"},
      {"l\\377", "l\\xff"},
      {"n\\000", "n\\x00"},
      {"caf\u00e9", "caf\\xc3\\xa9"},
      {longest + "a", longest.substr(0, 40) + "..."},
      {longest, ""},
      {"Conv_1-b", ""},
      {"0", ""},
  };
  for (const auto& c : cases) {
    const auto error = [&](const std::string& where) {
      return c.shown.empty() ? "" : "net:" + where + " \"" + c.shown + "\"" + rule;
    };
    const std::string relu = "layer { name: \"r\" relu { } }";
    EXPECT_EQ(ErrorOf(kHead + ("layer { name: \"" + c.name + "\" relu { } }")),
              error("2:9: layer"));
    EXPECT_EQ(ErrorOf(kHead + ("input { name: \"" + c.name + "\" } " + relu)), error("2:9: input"));
    EXPECT_EQ(ErrorOf(kHead + ("name: \"" + c.name + "\" " + relu)), error("2:1: net"));
  }
}

TEST(NetText, NotEvenTokens) {
  Expect({
      {"layer { n\u00e4me: \"a\" relu { } }",
       "net:2:9: a character beyond ASCII, which only quotes and comments may hold"},
      {"layer { name: \"a\n relu { } }",
       "net:2:15: a string that has no closing quote on its line"},
      {"layer { name: \"a\" input: 'x\\q' relu { } }",
       "net:2:26: layer \"a\": Invalid escape sequence in string literal"},
      {"layer { name: \"a\" dense { outputs: 0x } }",
       "net:2:38: layer \"a\": \"0x\" must be followed by hex digits"},
      {"layer \x01 { }",
       "net:2:7: the byte 0x01 is no text; expected a file in protobuf's text format"},
  });
  for (const std::string& bad : {std::string("\0", 1), std::string("\xff\xfe"), std::string("'"),
                                 std::string("\x1f\x8b\x08"), std::string("0x")}) {
    const std::string error = ErrorOf(kHead + bad);
    EXPECT_EQ(error.rfind("net:2:", 0), 0u) << error;
  }
}

TEST(NetText, AByteOrderMarkIsLeftOut) {
  EXPECT_EQ(ErrorOf("\xef\xbb\xbf" + std::string(kHead) + "layer { name: \"a\" relu { } }"), "");
  EXPECT_EQ(ErrorOf("\xef\xbb\xbfoops: 1"),
            "net:1:1: unknown field \"oops\"; choose from name, input, layer, block, precision");
  for (const std::string& bad : {std::string("\xff\xfen\0", 4), std::string("\xfe\xff\0n", 4),
                                 std::string("n\0a\0", 4), std::string("\0n\0a", 4)}) {
    EXPECT_EQ(
        ErrorOf(bad),
        "net:1:1: the text is in UTF-16 or UTF-32; expected UTF-8, as iconv -t UTF-8 makes it");
  }
}

TEST(NetText, AcceptsWhatTheFormatAllows) {
  const std::string text = std::string(kHead) +
                           "# a comment\n"
                           "layer < name: 'a' 'b'; conv2d: { filters: 0x10, kernel: [3, 5] "
                           "use_bias: f } phase: 1 >\n"
                           "layer: { name: \"r\" relu { negative_slope: -.5e-1f } };";
  const auto net = ParseNetText(text, "net").value();
  EXPECT_EQ(net.message->layer(0).name(), "ab");
  EXPECT_EQ(net.message->layer(0).conv2d().filters(), 16);
  EXPECT_EQ(net.message->layer(0).conv2d().kernel(1), 5);
  EXPECT_FALSE(net.message->layer(0).conv2d().use_bias());
  EXPECT_EQ(net.message->layer(0).phase(), LayerConfig::TRAIN);
  EXPECT_EQ(net.message->layer(1).relu().negative_slope(), -.05);
}

TEST(NetText, AnErrorPastCorrectFieldsIsFoundWhereItIs) {
  // Each of these must be read as correct by the second reading, or it would be blamed.
  const std::string fine =
      "layer { name: 'a' conv2d { filters: -9223372036854775808 kernel: [] kernel: 3 kernel: [1, "
      "2] use_bias: True } phase: 2 }\n"
      "layer { name: 'b' dropout { rate: inf } }, layer { name: 'c' dropout { rate: -Infinity } "
      "};\n"
      "layer: < name: 'd' accuracy { ignore_label: -2147483648 top_k: 0x7f } >\n"
      "layer [ { name: 'e' pool2d: { kind: 1 } }, < relu { negative_slope: 1e-3f } > ]\n";
  EXPECT_EQ(ErrorOf(kHead + fine + "oops: 1"),
            "net:6:1: unknown field \"oops\"; choose from name, input, layer, block, precision");
}

TEST(NetText, PositionsOutliveParsing) {
  const auto net = *ParseNetText(
      "input { name: \"image\" dims: [4, 5] }\n"
      "layer {\n"
      "  name: \"conv1\"\n"
      "  conv2d {\n"
      "    filters: 2  kernel: 3\n"
      "    kernel: 5\n"
      "    weight { initializer { gaussian { std: 1 } } }\n"
      "  }\n"
      "}\n"
      "layer { name: \"r\" relu {} }\n",
      "dir/net");
  const SourceMap& source = *net.source;
  const LayerConfig& layer = net.message->layer(0);
  EXPECT_EQ(source.file(), "dir/net");
  EXPECT_EQ(source.Where(*net.message), "dir/net:1:1");
  EXPECT_EQ(source.Where(layer), "dir/net:2:1");
  EXPECT_EQ(source.Where(layer, "name"), "dir/net:3:3");
  EXPECT_EQ(source.Where(layer, "conv2d"), "dir/net:4:3");
  EXPECT_EQ(source.Where(layer.conv2d()), "dir/net:4:3");
  EXPECT_EQ(source.Where(layer.conv2d(), "filters"), "dir/net:5:5");
  EXPECT_EQ(source.Where(layer.conv2d(), "kernel"), "dir/net:5:17");
  EXPECT_EQ(source.Where(layer.conv2d(), "kernel", 1), "dir/net:6:5");
  EXPECT_EQ(source.Where(layer.conv2d(), "groups"), "dir/net:4:3");
  EXPECT_EQ(source.Where(layer.conv2d().weight().initializer().gaussian(), "std"), "dir/net:7:39");
  EXPECT_EQ(source.Where(layer.conv2d().bias()), "dir/net");
  EXPECT_EQ(source.Where(net.message->layer(1)), "dir/net:10:1");
  EXPECT_EQ(source.Where(*net.message, "layer", 1), "dir/net:10:1");
  EXPECT_EQ(source.Where(net.message->input(0), "dims", 1), "dir/net:1:23");
  EXPECT_EQ(source.Where(LayerConfig(), "name"), "dir/net");
}

TEST(NetText, PositionsInListsOfMessages) {
  const auto net = *ParseNetText(
      "layer: [ { name: 'a' relu {} },\n {\n  name: 'b'\n  dense { outputs: 1 } } ]\n"
      "layer { name: 'c' relu {} }",
      "net");
  const NetConfig& config = *net.message;
  // protobuf knows one position for the whole list, and not where its elements end.
  EXPECT_EQ(net.source->Where(config.layer(1)), "net:1:1");
  EXPECT_EQ(net.source->Where(config.layer(1).dense(), "outputs"), "net:4:11");
  EXPECT_EQ(net.source->Where(config.layer(2)), "net:1:1");
  EXPECT_EQ(net.source->Where(config.layer(2), "name"), "net:5:9");
}

TEST(SourceMap, KnowsOnlyItsMessages) {
  const std::vector<LayerConfig> layers(3);
  SourceMap source("f");
  source.AddMessage(layers[1], 2, 3);
  EXPECT_EQ(source.Where(layers[2]), "f");
  source.Add(layers[1], "input", 1, 4, 5);
  EXPECT_EQ(source.Where(layers[0]), "f");
  EXPECT_EQ(source.Where(layers[2]), "f");
  EXPECT_EQ(source.Where(layers[1], "input", 0), "f:2:3");
  EXPECT_EQ(source.Where(layers[1], "input", 1), "f:4:5");
  EXPECT_EQ(source.Where(layers[1], "input", 2), "f:4:5");
  EXPECT_EQ(source.Where(layers[1], "inputs", 1), "f:2:3");
  EXPECT_EQ(source.Where(layers[1], "name"), "f:2:3");
}

TEST(NetFile, OnlyTextOfSomeSize) {
  const std::string folder = testing::TempDir();
  const auto missing = ParseNet(folder + "/none.textproto");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.status().message(), folder + "/none.textproto: No such file or directory");
  EXPECT_EQ(ParseNet(folder).status().message(), folder + ": is a folder, not a model's file");

  const std::string path = folder + "/net.textproto";
  std::ofstream(path).flush();
  EXPECT_EQ(
      ParseNet(path).status().message(),
      path + ":1:1: the net has no layer; write layer { name: \"fc\" dense { outputs: 10 } }");
  std::ofstream(path) << "layer { name: \"a\" relu { } }";
  EXPECT_TRUE(ParseNet(path).ok());
  std::filesystem::resize_file(path, (64 << 20) + 1);
  EXPECT_EQ(ParseNet(path).status().message(),
            path + ": 67108865 bytes are too many for a model's text, which has at most 67108864");
  std::remove(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  for (const std::string& endless : {path, std::string("/dev/zero")}) {
    EXPECT_EQ(ParseNet(endless).status().message(),
              endless + ": is a pipe or a device, not a model's file");
  }
  std::remove(path.c_str());
}

TEST(RelativeTo, TheFolderOfTheFile) {
  EXPECT_EQ(RelativeTo("models/lenet/trainer.textproto", "net.textproto"),
            "models/lenet/net.textproto");
  EXPECT_EQ(RelativeTo("trainer.textproto", "net.textproto"), "net.textproto");
  EXPECT_EQ(RelativeTo("models/trainer.textproto", "/data/x"), "/data/x");
}

}  // namespace
}  // namespace gyre
