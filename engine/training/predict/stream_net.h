// stream_net.h: a recurrent net that predicts step by step, with its state kept between the steps.
// Used by one thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/batches/decoder.h"
#include "engine/data/sets/vocabulary.h"
#include "engine/training/predict/prediction_net.h"
#include "engine/training/predict/trained_net.h"
#include "engine/training/step/owned_batch.h"
#include "engine/training/step/test_iteration.h"

namespace gyre {

// What a line of a stream gives the net's inputs at each step.
struct StreamInputs {
  struct StepInput {
    std::string name;
    int64_t values = 0;  // of a line.  0: made up, as marks where a sequence begins
    int made_up = 0;
    std::vector<double> scales = {};  // of shots: values are divided by them
    Normalization normalization = {};
  };
  std::vector<StepInput> inputs;  // as the net's
  double clip = 0;                // of what was divided
  // A line is a token of it.  Else numbers, or token numbers.
  std::optional<Vocabulary> vocabulary = {};
  TokenKind tokens = TokenKind::kWords;
  // An empty line is the character that ends one.
  bool characters() const { return vocabulary && tokens == TokenKind::kCharacters; }
  int64_t values() const;  // of a line
};

// Makes `net`, which is cut to what predicts, take one step of its sequences, whose state it
// carries.  `data` and `fit` say how its inputs are made.
// Errors: InvalidArgument for a net without recurrent layers, one of both directions, or a layer
// that looks at several steps, for inputs of unlike lengths, and for a table with words.
absl::StatusOr<StreamInputs> CutToStep(const DataConfig& data, const Fit& fit,
                                       Parsed<NetConfig>& net);

class StreamNet {
 public:
  // `trained` is of CutToStep's net, with a test batch of 1.  The arguments outlive the result.
  // Errors: those of allocation, and InvalidArgument for a convolution along the steps.
  static absl::StatusOr<std::unique_ptr<StreamNet>> Create(const TrainedNet& trained,
                                                           const StreamInputs& inputs,
                                                           std::span<const Prediction> predictions,
                                                           Device& device);

  // Begins a sequence.
  absl::Status Begin();
  // Its next step.  Returns F64 [places, columns], a tensor for each prediction in its unit, valid
  // until the next step.  Errors: InvalidArgument for another line, without its number, and those
  // of layers.
  absl::StatusOr<std::span<const Tensor>> Step(const std::string& line);

 private:
  StreamNet(const TrainedNet& trained, const StreamInputs& inputs,
            std::span<const Prediction> predictions, TestIteration iteration, OwnedBatch batch)
      : trained_(trained),
        inputs_(inputs),
        predictions_(predictions),
        iteration_(std::move(iteration)),
        batch_(std::move(batch)) {}
  absl::Status Fill(const std::string& line);

  const TrainedNet& trained_;
  const StreamInputs& inputs_;
  const std::span<const Prediction> predictions_;
  TestIteration iteration_;
  OwnedBatch batch_;
  std::vector<Tensor> values_;  // by prediction, of the last step
  bool begun_ = false;
};

}  // namespace gyre
