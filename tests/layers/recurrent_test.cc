#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/runtime/parallel/instruction_set.h"
#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

void ExpectNear(const char* what, const Doubles& got, const Doubles& want, double tolerance) {
  double largest = 1;
  for (const double x : want) largest = std::max(largest, std::abs(x));
  EXPECT_THAT(got, IsNear(want, tolerance * largest)) << what;
}

// h1 = 2 * 1 + 0.5 - 1 = 1.5, h2 = max(0, 2 * -1 + 3 * 1.5 - 0.5) = 2, h3 = max(0, -6 + 6 - 0.5) =
// 0: nothing flows back from the third step.  dh2 = 10, dh1 = 1 + 3 * 10 = 31.
TEST(Rnn, HandComputed) {
  LayerCase layer{"rnn { hidden: 1 nonlinearity: RELU }",
                  {Along(1, Real({3, 1, 1}, {1, -1, -3}))},
                  {{2}, {3}, {0.5}, {-1}}};
  layer.output_gradient = {1, 10, 100};
  const RunResult result = Ran(layer);
  EXPECT_EQ(result.output, (Doubles{1.5, 2, 0}));
  EXPECT_EQ(result.input_gradients[0], (Doubles{62, 20, 0}));
  EXPECT_EQ(result.parameter_gradients,
            (std::vector<Doubles>{{31 * 1 + 10 * -1}, {10 * 1.5}, {41}, {41}}));
}

// Gates are 1/2 where nothing goes into them, and g is tanh(ln 3 / 2) = 1/2: c1 = 1/4, c2 = 3/8.
TEST(Lstm, HandComputed) {
  const double g = std::log(3) / 2;
  const Doubles zero(4, 0);
  const RunResult result = Ran({"lstm { hidden: 1 }",
                                {Along(1, Real({2, 1, 1}, {5, 7}))},
                                {zero, zero, {0, 0, g, 0}, zero}});
  ExpectNear("h", result.output, {std::tanh(0.25) / 2, std::tanh(0.375) / 2}, 1e-15);
}

// r = z = 1/2; c = tanh(ln 3 - r ln 3) = 1/2; h1 = c / 2, h2 = (c + h1) / 2.
TEST(Gru, HandComputed) {
  const double a = std::log(3);
  const Doubles zero(3, 0);
  const RunResult result = Ran({"gru { hidden: 1 }",
                                {Along(1, Real({2, 1, 1}, {5, 7}))},
                                {zero, zero, {0, 0, a}, {0, 0, -a}}});
  ExpectNear("h", result.output, {0.25, 0.375}, 1e-15);
}

// What two of the layer's sequences make of one sample, with resets and a length, is what each of
// its pieces makes alone; nothing crosses a piece's ends in either direction.
void ExpectPieces(const std::string& config, int axis, bool has_lengths, bool has_reset) {
  SCOPED_TRACE(config + " axis " + std::to_string(axis) + (has_lengths ? " lengths" : "") +
               (has_reset ? " reset" : ""));
  constexpr int64_t kT = 7, kN = 4, kC = 3;
  const std::vector<int32_t> lengths =
      has_lengths ? std::vector<int32_t>{7, 0, 1, 5} : std::vector<int32_t>(kN, kT);
  std::vector<int32_t> reset(kT * kN);  // [T, N]
  if (has_reset) {
    for (const auto& [t, n] :
         {std::pair{3, 0}, {4, 0}, {0, 3}, {2, 3}, {6, 2}, {5, 3}, {1, 1}, {0, 1}}) {
      reset[t * kN + n] = 1;
    }
  }
  const auto place = [axis](const Doubles& x, int64_t times, int64_t samples) {
    const int64_t columns = std::ssize(x) / (times * samples);
    return Along(axis, axis == 1 ? Real({times, samples, columns}, x)
                                 : Real({samples, times, columns}, Swapped(x, times, samples)));
  };
  const Doubles x = Distinct({kT, kN, kC}, 1).values;  // [T, N, C], as all here
  LayerCase whole{config, {place(x, kT, kN)}};
  if (has_lengths) whole.inputs.push_back(Labels(lengths));
  if (has_reset) {
    const Doubles mask = place(Doubles(reset.begin(), reset.end()), kT, kN).values;
    whole.inputs.push_back(Along(axis, Labels(axis == 1 ? Shape{kT, kN} : Shape{kN, kT},
                                              std::vector<int32_t>(mask.begin(), mask.end()))));
  }
  whole.parameters = Ran(whole).parameters;
  const auto says = [&](const char* what) { return config.find(what) != std::string::npos; };
  const bool last = says("last: true"), bidirectional = says("bidirectional: true");
  const int64_t columns = Ran(whole).output_sizes[0] / (kT * kN);
  const Doubles dy = Distinct({kT, kN, columns}, 2).values;
  const Doubles dlast = Distinct({kN, columns}, 3).values;
  whole.output_gradient = place(dy, kT, kN).values;
  if (last) whole.output_gradient.insert(whole.output_gradient.end(), dlast.begin(), dlast.end());
  const RunResult got = Ran(whole, {.threads = 2});
  EXPECT_EQ(got.fault.word, Fault::kNone);
  const auto home = [axis](Doubles y) { return axis == 1 ? y : Swapped(y, kN, kT); };
  const auto rows = [](const Doubles& from, int64_t n, int64_t begin, int64_t end, int64_t width) {
    Doubles piece;
    for (int64_t t = begin; t < end; ++t) {
      const auto at = from.begin() + (t * kN + n) * width;
      piece.insert(piece.end(), at, at + width);
    }
    return piece;
  };
  const Doubles y = home({got.output.begin(), got.output.begin() + kT * kN * columns});
  const Doubles dx = home(got.input_gradients[0]);
  std::vector<Doubles> dw;
  for (const Doubles& parameter : got.parameters) dw.emplace_back(parameter.size());
  for (int64_t n = 0; n < kN; ++n) {
    for (int64_t begin = 0, end = 0; begin < lengths[n]; begin = end) {
      end = begin + 1;
      while (end < lengths[n] && reset[end * kN + n] == 0) ++end;
      LayerCase piece{config, {place(rows(x, n, begin, end, kC), end - begin, 1)}};
      piece.parameters = whole.parameters;
      piece.output_gradient = rows(dy, n, begin, end, columns);
      // Forwards a sample ends with its last piece, backwards with its first.
      const auto ends = [&](int64_t c) {
        return bidirectional && c >= columns / 2 ? begin == 0 : end == lengths[n];
      };
      for (int64_t c = 0; last && c < columns; ++c) {
        piece.output_gradient.push_back(ends(c) ? dlast[n * columns + c] : 0);
      }
      const RunResult want = Ran(piece);
      Doubles of_rows(want.output.begin(), want.output.begin() + (end - begin) * columns);
      ExpectNear("y", rows(y, n, begin, end, columns), of_rows, 1e-13);
      ExpectNear("dx", rows(dx, n, begin, end, kC), want.input_gradients[0], 1e-12);
      for (size_t p = 0; p < dw.size(); ++p) {
        for (size_t i = 0; i < dw[p].size(); ++i) dw[p][i] += want.parameter_gradients[p][i];
      }
      for (int64_t c = 0; last && c < columns; ++c) {
        if (!ends(c)) continue;
        EXPECT_NEAR(got.output[kT * kN * columns + n * columns + c],
                    want.output[(end - begin) * columns + c], 1e-13);
      }
    }
    for (const double v : rows(y, n, lengths[n], kT, columns)) EXPECT_EQ(v, 0);
    for (const double v : rows(dx, n, lengths[n], kT, kC)) EXPECT_EQ(v, 0);
    for (int64_t c = 0; last && lengths[n] == 0 && c < columns; ++c) {
      EXPECT_EQ(got.output[kT * kN * columns + n * columns + c], 0);
    }
  }
  for (size_t p = 0; p < dw.size(); ++p) ExpectNear("dw", got.parameter_gradients[p], dw[p], 1e-12);
}

TEST(Recurrent, LengthsAndResetsCutSequences) {
  for (const char* type : {"rnn", "gru", "lstm"}) {
    const std::string begin = std::string(type) + " { hidden: 3 ";
    for (const int axis : {0, 1}) {
      ExpectPieces(begin + "}", axis, true, false);
      ExpectPieces(begin + "}", axis, false, true);
      ExpectPieces(begin + "last: true bidirectional: true layers: 2 }", axis, true, true);
    }
  }
  ExpectPieces("lstm { hidden: 4 projection: 3 layers: 2 last: true }", 1, true, true);
  ExpectPieces("lstm { hidden: 4 projection: 3 bidirectional: true }", 0, true, true);
}

// Rows that are left out were nothing: the outputs have the same bits; the sums over rows are in
// another order.  Samples enough for pieces of products, a time at which nobody is alive, a reset,
// and dropout, whose masks are those of x's rows.
TEST(Recurrent, PackedRowsAreMaskedRows) {
  constexpr int64_t kT = 6, kN = 37;
  std::vector<int32_t> lengths(kN), reset(kT * kN);
  for (int64_t n = 0; n < kN; ++n) lengths[n] = static_cast<int32_t>(n * 7 % 6);
  for (int64_t i = 0; i < kT * kN; i += 5) reset[i] = 1;
  // A GPU's, which computes the rows beyond lengths too, and has no say in what they hold.  A GPU
  // is compared with a CPU, which packs them, so both ways' roundings count.
  std::vector<std::unique_ptr<PrimitiveLibrary>> libraries;
  libraries.push_back(NewBlockedLibrary());
  libraries.push_back(NewReferenceLibrary());
  const Primitives masking(DeviceKind::kCuda, std::move(libraries));
  const bool on_device = NamedDevice().has_value();
  for (const char* config :
       {"rnn { hidden: 5 layers: 2 dropout: 0.5 }", "gru { hidden: 5 carry: true last: true }",
        "gru { hidden: 5 bidirectional: true last: true }",
        "lstm { hidden: 5 layers: 2 bidirectional: true dropout: 0.3 last: true }",
        "lstm { hidden: 5 projection: 2 carry: true }"}) {
    for (const int axis : {0, 1}) {
      const Shape x = axis == 1 ? Shape{kT, kN, 3} : Shape{kN, kT, 3};
      const Shape marks = axis == 1 ? Shape{kT, kN} : Shape{kN, kT};
      const LayerCase layer{
          config,
          {Along(axis, Distinct(x, 1)), Labels(lengths), Along(axis, Labels(marks, reset))}};
      for (const DType compute : {DType::kF64, DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(absl::StrCat(config, " axis ", axis, " ", std::string(DTypeName(compute))));
        const RunResult want = Ran(layer, {.device = DeviceKind::kCpu,
                                           .compute = compute,
                                           .primitives = on_device ? nullptr : &masking});
        const RunResult got = Ran(layer, {.threads = 2, .compute = compute});
        const double tolerance = compute == DType::kF64   ? (on_device ? 1e-12 : 1e-13)
                                 : compute == DType::kF32 ? (on_device ? 2e-5 : 1e-5)
                                                          : (on_device ? 4e-2 : 2e-2);
        if (compute == DType::kF64 && !on_device) {
          EXPECT_EQ(got.output, want.output);
        }
        ExpectNear("y", got.output, want.output, tolerance);
        ExpectNear("dx", got.input_gradients[0], want.input_gradients[0], tolerance);
        ASSERT_EQ(got.carried.size(), want.carried.size());
        for (size_t i = 0; i < want.carried.size(); ++i) {
          ExpectNear("carried", got.carried[i], want.carried[i], tolerance);
        }
        for (size_t i = 0; i < want.parameter_gradients.size(); ++i) {
          ExpectNear("dw", got.parameter_gradients[i], want.parameter_gradients[i], tolerance);
        }
      }
    }
  }
}

// A sequence in two batches, of which the second begins with what the first carried on; without
// resets, then with them and with samples that end before the cut, after it and at once.
TEST(Recurrent, BatchesContinueOneAnother) {
  constexpr int64_t kT = 7, kN = 3, kC = 2, kCut = 3;
  const Doubles x = Distinct({kT, kN, kC}, 1).values;
  const std::vector<int32_t> reset = {0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0,
                                      1, 0, 0, 0, 1, 0, 0, 0, 0, 0};
  const auto chunk = [&](int64_t begin, int64_t end, bool ragged) {
    std::vector<TestInput> inputs{Along(
        1, Real({end - begin, kN, kC}, {x.begin() + begin * kN * kC, x.begin() + end * kN * kC}))};
    if (!ragged) return inputs;
    std::vector<int32_t> lengths;
    for (const int64_t length : {7, 2, 5}) {
      lengths.push_back(static_cast<int32_t>(std::clamp(length - begin, int64_t{0}, end - begin)));
    }
    inputs.push_back(Labels(lengths));
    inputs.push_back(Along(
        1, Labels(Shape{end - begin, kN}, {reset.begin() + begin * kN, reset.begin() + end * kN})));
    return inputs;
  };
  for (const char* config :
       {"rnn { hidden: 2 carry: true }", "gru { hidden: 2 layers: 2 carry: true }",
        "lstm { hidden: 2 layers: 2 carry: true }",
        "lstm { hidden: 3 projection: 2 carry: true }"}) {
    for (const bool ragged : {false, true}) {
      for (const DType compute : kRealTypes) {
        SCOPED_TRACE(std::string(config) + (ragged ? " ragged " : " ") +
                     std::string(DTypeName(compute)));
        // 16 bits: sums of products may be rounded apart.
        const double tolerance = compute == DType::kF64   ? 1e-14
                                 : compute == DType::kF32 ? 1e-6
                                 : compute == DType::kF16 ? 2e-3
                                                          : 1e-2;
        const RunResult whole = Ran({config, chunk(0, kT, ragged)}, {.compute = compute});
        LayerCase first{config, chunk(0, kCut, ragged), whole.parameters};
        const RunResult before = Ran(first, {.compute = compute});
        LayerCase second{config, chunk(kCut, kT, ragged), whole.parameters};
        second.carried = before.carried;
        const RunResult after = Ran(second, {.compute = compute});
        Doubles both = before.output;
        both.insert(both.end(), after.output.begin(), after.output.end());
        ExpectNear("y", both, whole.output, tolerance);
        ASSERT_EQ(after.carried.size(), whole.carried.size());
        for (size_t i = 0; i < after.carried.size(); ++i) {
          ExpectNear("carried", after.carried[i], whole.carried[i], tolerance);
        }
      }
    }
  }
}

// A shorter sample leaves what it would leave if all were as short.
TEST(Recurrent, CarriesTheStateOfTheLastStep) {
  const Doubles x = Distinct({4, 1, 2}, 1).values;
  for (const char* config : {"rnn { hidden: 2 carry: true }", "gru { hidden: 2 carry: true }",
                             "lstm { hidden: 2 layers: 2 carry: true }",
                             "lstm { hidden: 3 projection: 2 carry: true }"}) {
    for (const int length : {0, 1, 2, 4}) {
      SCOPED_TRACE(absl::StrCat(config, " ", length));
      const RunResult longer = Ran({config, {Along(1, Real({4, 1, 2}, x)), Labels({length})}});
      const int64_t steps = std::max(length, 1);
      const Doubles cut(x.begin(), x.begin() + 2 * steps);
      const RunResult alone =
          Ran({config, {Along(1, Real({steps, 1, 2}, cut)), Labels({length})}, longer.parameters});
      ASSERT_EQ(alone.carried.size(), longer.carried.size());
      for (size_t i = 0; i < alone.carried.size(); ++i) {
        ExpectNear("carried", longer.carried[i], alone.carried[i], 1e-14);
        EXPECT_NE(longer.carried[i], Doubles(longer.carried[i].size()));
      }
    }
  }
}

TEST(Recurrent, Contract) {
  const auto x = [](int axis) {
    return axis == 1 ? Along(1, Distinct({4, 3, 2}, 1)) : Distinct({3, 4, 2}, 1);
  };
  const TestInput lengths = Labels({4, 0, 2});
  const TestInput reset = Along(1, Labels(Shape{4, 3}, {0, 1, 0, 1, 0, 0, 0, 0, 1, 1, 1, 0}));
  for (const char* config : {"rnn { hidden: 2 }", "gru { hidden: 2 }", "lstm { hidden: 2 }",
                             "rnn { hidden: 3 nonlinearity: RELU }"}) {
    CheckContract({config, {x(0)}});
    CheckContract({config, {x(1), lengths, reset}});
  }
  CheckContract({"gru { hidden: 2 layers: 2 bidirectional: true last: true }", {x(0), lengths}});
  CheckContract({"rnn { hidden: 3 layers: 3 dropout: 0.3 }", {x(1), reset}});
  CheckContract({"lstm { hidden: 2 layers: 2 dropout: 0.5 last: true }", {x(0)}});
  CheckContract({"lstm { hidden: 3 projection: 2 bidirectional: true }", {x(1), lengths}});
  CheckContract({"lstm { hidden: 2 last: true }", {Along(1, Distinct({1, 3, 2}, 1))}});
  CheckContract({"rnn { hidden: 2 carry: true }", {Along(1, Distinct({1, 3, 2}, 1))}});
  CheckContract({"gru { hidden: 2 carry: true last: true }", {x(0), lengths}});
  CheckContract({"lstm { hidden: 3 projection: 2 layers: 2 carry: true }", {x(1), reset}});
}

// A net that is not trained may store weights as its products want them.
TEST(Recurrent, WeightsAreStoredPackedWithoutTraining) {
  const bool packs =
      NamedDevice() != DeviceKind::kCuda && CurrentInstructionSet() == InstructionSet::kAvx512;
  const auto layouts = [](const RunResult& result) {
    std::vector<std::string> tags;
    for (const StateSpec& state : result.spec.states) {
      if (state.name.starts_with("weight")) tags.push_back(state.layout);
    }
    return tags;
  };
  for (const std::string config :
       {"lstm { hidden: 13 layers: 2 bidirectional: true }", "lstm { hidden: 50 projection: 49 }",
        "gru { hidden: 16 layers: 2 }", "rnn { hidden: 1 }"}) {
    for (const int64_t times : {1, 3, 70}) {
      for (const int64_t samples : {1, 3}) {
        SCOPED_TRACE(absl::StrCat(config, " T ", times, " N ", samples));
        LayerCase layer{config, {Along(1, Distinct({times, samples, 5}, 1))}};
        if (samples == 3) layer.inputs.push_back(Labels({1, 0, static_cast<int32_t>(times)}));
        const RunOptions training{.compute = DType::kF32};
        const RunResult trained = Ran(layer, training),
                        stored = Ran(layer, {.compute = DType::kF32, .train = false});
        ExpectNear("h", stored.output, trained.output, 1e-6);
        EXPECT_EQ(stored.parameters, trained.parameters);
        for (const std::string& tag : layouts(trained)) EXPECT_EQ(tag, "");
        for (const std::string& tag : layouts(stored))
          EXPECT_EQ(tag, packs ? "strips of rows" : "");
        // Another shape, and one that the first one of a training binds.
        layer.inputs = {Along(1, Distinct({2, samples + 1, 5}, 1))};
        const auto layouts_after = [&](const RunResult& first) {
          return layouts(Ran(
              layer, {.compute = DType::kF32, .train = false, .same_parameters_as = &first.spec}));
        };
        EXPECT_EQ(layouts_after(trained), layouts(trained));
        EXPECT_EQ(layouts_after(stored), layouts(stored));
      }
    }
  }
  // Another layer may have the name, too.
  const LayerCase named{"rnn { hidden: 3 weight { name: \"w\" } }",
                        {Along(1, Distinct({2, 3, 5}, 1))}};
  for (const std::string& tag : layouts(Ran(named, {.compute = DType::kF32, .train = false}))) {
    EXPECT_EQ(tag, "");
  }
}

// The product of one sample's later rows of x runs beside steps, but not where it has a length.
TEST(Recurrent, RowsBesideStepsHaveTheirOwnBits) {
  const bool same = !NamedDevice() && CurrentInstructionSet() == InstructionSet::kAvx512;
  for (const char* config : {"lstm { hidden: 13 layers: 2 bidirectional: true last: true }",
                             "lstm { hidden: 50 projection: 7 carry: true }", "gru { hidden: 9 }",
                             "rnn { hidden: 70 layers: 2 carry: true }"}) {
    for (const int32_t times : {24, 25, 26, 36, 37, 70}) {
      for (const bool train : {false, true}) {
        SCOPED_TRACE(absl::StrCat(config, " T ", times, train ? " trained" : ""));
        LayerCase layer{config, {Along(1, Distinct({times, 1, 5}, 1))}};
        const RunOptions options{.threads = 2, .compute = DType::kF32, .train = train};
        const RunResult drawn = Ran(layer, options);
        layer.parameters = drawn.parameters, layer.carried = drawn.carried;
        const RunResult got = Ran(layer, options);
        layer.inputs.push_back(Labels({times}));
        ExpectNear("h", got.output, Ran(layer, options).output, same ? 0 : 1e-5);
      }
    }
  }
}

// Multipliers of 0, one after the other.
TEST(Recurrent, Frozen) {
  const TestInput x = Distinct({3, 4, 2}, 1);
  const std::string zero = " { learning_rate_multiplier: 0 } ";
  for (const char* type : {"gru", "lstm"}) {
    const std::string begin = std::string(type) + " { hidden: 2 layers: 2 ";
    for (const char* which : {"weight", "recurrent", "bias"}) {
      CheckContract({begin + which + zero + "}", {x}});
    }
    const std::string all = begin + "weight" + zero + "recurrent" + zero + "bias" + zero + "}";
    const RunResult result = Ran({all, {x}}, {.input_gradients = false});
    for (const StateSpec& state : result.spec.states) EXPECT_EQ(state.backward, kNone);
    EXPECT_EQ(result.spec.backward_flops, 0);
  }
}

TEST(Recurrent, ParametersAreNamedAsPyTorchNamesThem) {
  const RunResult result =
      Ran({"lstm { hidden: 5 projection: 2 layers: 2 bidirectional: true weight { name: \"w\" } }",
           {Distinct({3, 4, 7}, 1)}});
  std::string names;
  for (const StateSpec& state : result.spec.states) {
    if (state.kind != StateKind::kParameter) continue;
    names += state.name + state.shape.ToString() + state.shared_name + " ";
  }
  const auto of = [](const std::string& suffix, const std::string& inputs) {
    return "weight_ih_" + suffix + "[20, " + inputs + "]w_ih_" + suffix + " weight_hh_" + suffix +
           "[20, 2] bias_ih_" + suffix + "[20] bias_hh_" + suffix + "[20] weight_hr_" + suffix +
           "[2, 5] ";
  };
  EXPECT_EQ(names, of("l0", "7") + of("l0_reverse", "7") + of("l1", "4") + of("l1_reverse", "4"));
}

// Of the first layer, forwards: 2 T N 4 H (C + H); of the second C is H.
TEST(Recurrent, CountsProducts) {
  const TestInput x = Distinct({3, 4, 7}, 1);
  const RunResult result = Ran({"lstm { hidden: 5 layers: 2 }", {x}});
  const double first = 2 * 12 * 20 * 7, rest = 2 * 12 * 20 * 15;
  EXPECT_EQ(result.spec.forward_flops, first + rest);
  EXPECT_EQ(result.spec.backward_flops, 2 * (first + rest));
  const RunResult no_dx = Ran({"lstm { hidden: 5 layers: 2 }", {x}}, {.input_gradients = false});
  EXPECT_EQ(no_dx.spec.backward_flops, first + 2 * rest);
}

TEST(Recurrent, BadDataIsAFault) {
  const TestInput x = Along(1, Distinct({2, 3, 1}, 1));
  for (const auto& [lengths, bad] :
       {std::pair<std::vector<int32_t>, int>{{2, 3, -1}, 1}, {{0, 2, -1}, 2}}) {
    const RunResult result = Ran({"gru { hidden: 1 }", {x, Labels(lengths)}});
    EXPECT_EQ(result.fault.index(), bad);
    EXPECT_EQ(result.output[bad], 0);
  }
  const TestInput reset = Along(1, Labels(Shape{2, 3}, {0, 1, 1, 0, 2, -1}));
  for (const char* config : {"lstm { hidden: 1 }", "lstm { hidden: 1 bidirectional: true }"}) {
    EXPECT_EQ(Ran({config, {x, reset}}).fault.index(), 1);
  }
}

// A NaN stays in its sample, and behind it.
TEST(Recurrent, NaNStaysInItsSample) {
  for (const char* config : {"rnn { hidden: 1 }", "rnn { hidden: 1 nonlinearity: RELU }",
                             "gru { hidden: 1 }", "lstm { hidden: 1 }"}) {
    const RunResult result =
        Ran({config, {Along(1, Real({3, 2, 1}, {1, 1, 1, std::nan(""), 1, 1}))}});
    for (int i = 0; i < 6; ++i) {
      EXPECT_EQ(std::isnan(result.output[i]), i == 3 || i == 5) << config << i;
    }
  }
}

TEST(Recurrent, Errors) {
  const TestInput x = Distinct({2, 3, 4}, 1);
  const std::string plain = "lstm { hidden: 5 }";
  EXPECT_EQ(Refusal({"lstm {}", {x}}), "hidden: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"gru { hidden: -1 }", {x}}), "hidden: expected 1 or more, got -1");
  EXPECT_EQ(Refusal({"gru { hidden: 1000000000 }", {x}}),
            "gates: expected at most 2^31 - 1, got 3000000000");
  EXPECT_EQ(Refusal({"rnn { hidden: 1 layers: 0 }", {x}}), "layers: expected 1 to 1000, got 0");
  EXPECT_EQ(Refusal({"rnn { hidden: 1 layers: 1001 }", {x}}),
            "layers: expected 1 to 1000, got 1001");
  for (const char* bad : {"-0.1", "1", "nan"}) {
    EXPECT_EQ(Refusal({"rnn { hidden: 1 layers: 2 dropout: " + std::string(bad) + " }", {x}}),
              "dropout: expected at least 0 and below 1, got " + std::string(bad));
  }
  EXPECT_EQ(Refusal({"gru { hidden: 1 dropout: 0.5 }", {x}}),
            "dropout: is between layers, and there is one; expected 0, got 0.5");
  for (const char* bad : {"-1", "5"}) {
    EXPECT_EQ(
        Refusal({"lstm { hidden: 5 projection: " + std::string(bad) + " }", {x}}),
        "projection: expected less than the 5 of hidden, or 0 for none, got " + std::string(bad));
  }
  EXPECT_EQ(Refusal({"rnn { hidden: 1 carry: true bidirectional: true }", {x}}),
            "carry: expected false where the layer is bidirectional, since its other direction "
            "begins at the end, which the batch before does not know");
  EXPECT_EQ(Refusal({"rnn { hidden: 1 bias { learning_rate_multiplier: -1 } }", {x}}),
            "bias_ih_l0.learning_rate_multiplier: expected 0 or more, got -1");
  EXPECT_EQ(Refusal({plain, {}}), "expects 1 input (x), got 0");
  EXPECT_EQ(Refusal({plain, {x, x, x, x}}), "expects 3 inputs (x, lengths, reset), got 4");
  EXPECT_EQ(Refusal({plain, {Labels({1, 2})}}), "expects x of type F64, got I32");
  EXPECT_EQ(Refusal({plain, {x, x}}), "expects lengths of type I32, got F64");
  EXPECT_EQ(Refusal({plain, {x, Distinct({2, 3}, 1)}}), "expects reset of type I32, got F64");
  EXPECT_EQ(Refusal({plain, {Distinct({2, 12}, 1)}}),
            "expects x [T, N, C] or [N, T, C], got [2, 12] with samples along axis 0");
  EXPECT_EQ(Refusal({plain, {Along(2, x)}}),
            "expects x [T, N, C] or [N, T, C], got [2, 3, 4] with samples along axis 2");
  for (const Shape& shape : {Shape{2, 0, 4}, Shape{2, 3, 0}}) {
    EXPECT_EQ(Refusal({plain, {Distinct(shape, 1)}}),
              "expects sequences and columns of one or more, got x " + shape.ToString());
  }
  EXPECT_EQ(Refusal({plain, {x, Labels({1, 2, 3})}}),
            "expects lengths [2], one for each sample, got [3]");
  const TestInput reset = Labels(Shape{3, 2}, std::vector<int32_t>(6));
  EXPECT_EQ(
      Refusal({plain, {x, reset}}),
      "expects reset [2, 3] with samples along axis 0, as in x, got [3, 2] with samples along "
      "axis 0");
  EXPECT_EQ(
      Refusal(
          {plain, {Along(1, x), Labels({1, 2, 3}), Labels(Shape{2, 3}, std::vector<int32_t>(6))}}),
      "expects reset [2, 3] with samples along axis 1, as in x, got [2, 3] with samples along "
      "axis 0");
}

}  // namespace
}  // namespace gyre
