// Two values under one key of metrics.jsonl, of which one would be lost.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/training/metrics/metrics.h"
#include "engine/training/model/model.h"

namespace gyre {
namespace {

std::string Error(const std::string& layers) {
  const Parsed<NetConfig> net = *ParseNetText(absl::StrCat(R"(name: "t"
input { name: "x" dims: 3 }
input { name: "y" type: LABEL }
layer { name: "fc" input: "x" dense { outputs: 2 } }
)",
                                                           layers),
                                              "n");
  const Primitives primitives(DeviceKind::kCpu, 1);
  const auto plan = *PlanModel(
      net, {.shape = {.global = 4}, .test_batch = 4, .test_samples = 4, .primitives = &primitives});
  return std::string(CheckMetricKeys(net, plan.train->spec, &plan.test.front()->spec).message());
}

TEST(MetricKeys, EachValueHasItsOwn) {
  const std::string loss = "layer { name: 'loss' input: ['fc', 'y'] softmax_cross_entropy {} }\n";
  const std::string in = " input: ['fc', 'y'] ";
  EXPECT_EQ(Error(loss), "");
  // A loss of this name gives way to the total.
  EXPECT_EQ(Error(loss + "layer { name: 'more'" + in + "hinge {} }"), "");
  for (const char* name :
       {"step", "epoch", "seconds", "learning_rate", "loss_scale", "skipped_steps",
        "samples_per_second", "fetched_bytes", "iteration_seconds", "host_seconds",
        "data_wait_seconds", "bad_samples"}) {
    EXPECT_EQ(Error(absl::StrCat(loss, "layer { name: '", name, "'", in, "accuracy {} }")),
              absl::StrCat("n:6:1: layer \"", name, "\": its value would be \"", name,
                           "\" in metrics.jsonl, which says something else about a run; rename "
                           "the layer"));
  }
  const auto twice = [](const std::string& layer, const std::string& key) {
    return absl::StrCat("n:6:1: layer \"", layer, "\": its value would be \"", key,
                        "\" in metrics.jsonl, which is another value, too; rename the layer");
  };
  EXPECT_EQ(Error(loss + "layer { name: 'test_loss'" + in + "accuracy {} }"),
            twice("test_loss", "test_loss"));
  EXPECT_EQ(Error("layer { name: 'all' input: ['fc', 'y'] softmax_cross_entropy {} }\n"
                  "layer { name: 'loss'" +
                  in + "accuracy {} }"),
            twice("loss", "loss"));
  EXPECT_EQ(Error("layer { name: 'a' input: ['fc', 'y'] softmax_cross_entropy { perplexity: true } "
                  "}\nlayer { name: 'a_perplexity'" +
                  in + "accuracy {} }"),
            twice("a_perplexity", "a_perplexity"));
  // Of the test alone.
  EXPECT_EQ(Error(loss + "layer { name: 'one' input: 'fc' slice { axis: 1 end: 1 } }\n"
                         "layer { name: 'step' input: ['one', 'y'] roc_auc {} }"),
            "");
}

}  // namespace
}  // namespace gyre
