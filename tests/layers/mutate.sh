#!/bin/bash
# Puts one fault at a time into every backward formula, into 16-bit arithmetic, into what layers
# declare, and into the loss's scale, sequences and metrics, and shows that a test fails: a test that
# cannot fail tests nothing.  Works on a copy of the tree.  Takes minutes; not part of CI.
#
#   tests/layers/mutate.sh [PATTERN]        only faults whose line in the table matches PATTERN
#   BAZEL_STARTUP, BAZEL_FLAGS              extra options, such as --output_base=..., --disk_cache=...
set -euo pipefail
cd "$(dirname "$0")/../.."

# file | test, of the layers or FOLDER:TEST | text, whose every place is replaced | text with the fault
# A | in a text is written \|.
faults() {
  cat <<'TABLE'
layers/relu.cc|relu|!(in.y <= 0) ? v : slope > 0 ? slope * v : 0)|!(in.y < 0) ? v : slope > 0 ? slope * v : 0)
layers/relu.cc|relu|!(in.y <= 0) ? v : slope > 0 ? slope * v : 0)|!(in.y <= 0) ? v : slope > 0 ? v : 0)
layers/relu.cc|relu|!(in.y <= 0) ? v : slope > 0 ? slope * v : 0)|!(in.y <= 0) ? v : 0 * v)
layers/relu.cc|relu|!(in.y <= 0) ? v : slope > 0 ? slope * v : 0)|!(in.y <= 0) ? v : static_cast<T>(slope) * v)
layers/relu.cc|relu|!(in.y <= 0) ? v : slope > 0 ? slope * v : 0)|!(in.y <= 0) ? v : slope * v)
layers/relu.cc|relu|!(in.y <= 0) ? v : slope > 0 ? slope * v : 0)|in.y > 0 ? v : slope > 0 ? slope * v : 0)
layers/relu.cc|relu|in.y >= max|in.y > max
layers/relu.cc|relu|static_cast<T>(static_cast<AccumulateType<T>>(max_))|static_cast<AccumulateType<T>>(max_)
layers/relu.cc|relu|InBackward(input, kRead)|kNone
layers/activation.cc|activation|return y * (1 - y);|return y * (1 + y);
layers/activation.cc|activation|return 1 - y * y;|return 1 - y;
layers/activation.cc|activation|return s + x * s * (1 - s);|return s + x * s;
layers/activation.cc|activation|return NormalCdf(x) + x * kDensity|return NormalCdf(x) + kDensity
layers/activation.cc|activation|x * s * (1 - s) * static_cast<A>(kScale)|x * s * static_cast<A>(kScale)
layers/activation.cc|activation|read(!Formula::kOfOutput)|kNone
layers/attention/attention_rows.h|attention|seen.scale * static_cast<A>(probabilities[at]) * (dp[at] - v)|seen.scale * static_cast<A>(probabilities[at]) * (dp[at] - 0 * v)
layers/attention/attention_rows.h|attention|seen.scale * static_cast<A>(probabilities[at]) * (dp[at] - v)|static_cast<A>(probabilities[at]) * (dp[at] - v)
layers/attention/attention_rows.h|attention|MatrixOf(row) * queries + first_row|MatrixOf(row) * rows
layers/attention/attention_rows.h|attention|1 / sum + (seen.largest[whole] - seen.largest[whole])|1 / sum
layers/attention/attention_rows.h|attention|causal * (t + 1)|causal * (t + 2)
layers/attention/attention_rows.h|attention|length < seen ? length : seen|seen
layers/attention/attention_rows.h|attention_rows|a < b \|\| b != b ? b : a|a < b ? b : a
layers/attention/attention_plan.cc|attention|spec.accumulate = !first|spec.accumulate = false
layers/attention/attention_plan.cc|attention|(tile + plan.width_tiles) * rows|tile * rows + 1
layers/attention/attention_plan.cc|attention|is_slice ? role * plan.columns : 0|is_slice * 0
layers/attention/attention_plan.cc|attention|is_slice ? 3 * plan.columns : plan.columns|plan.columns
layers/attention.cc|attention|g.dscores, q, nullptr, g.gradient|g.dscores, dy, nullptr, g.gradient
layers/attention.cc|attention|g.dscores, k, nullptr|g.dscores, v, nullptr
layers/common/dropped.h|recurrent|Philox(key, position->step, first|Philox(key, position->step + (from == to), first
layers/recurrent/recurrent_cells.h|recurrent|reverse ? t + 1 : t;  // of|t;  // of
layers/recurrent/recurrent_cells.h|recurrent|s == 0 && !carried|s == 0 && carried
layers/recurrent/recurrent_cells.h|recurrent|t == (reverse ? 0 : length - 1)|t == (reverse ? 0 : rows.times - 1)
layers/recurrent/recurrent_cells.h|recurrent|(alive && fresh) * kFresh|fresh * kFresh
layers/recurrent/recurrent_cells.h|recurrent|kept = alive ? h : before|kept = h
layers/recurrent/recurrent_cells.h|recurrent|f * before + i * g : before|f * before + i * g : A{0}
layers/recurrent/recurrent_cells.h|recurrent|store(n, j, c + z * (before - c))|store(n, j, before + z * (c - before))
layers/recurrent/recurrent_cells.h|recurrent|c_before = fresh ? A{0} : kept|c_before = kept
layers/recurrent/recurrent_cells.h|recurrent|back = fresh ? A{0} : dc * f|back = dc * f
layers/recurrent/recurrent_cells.h|recurrent|going_on = next_fresh ? A{0} : of_next|going_on = of_next
layers/recurrent/recurrent_cells.h|recurrent|later = is_last ? of_last : going_on|later = going_on
layers/recurrent/recurrent_cells.h|recurrent|static_cast<T>(step.IsAlive(n, j) ? d : A{0})|static_cast<T>(d)
layers/recurrent/recurrent_cells.h|recurrent|gates.OfState(n, j, 2, dc * r)|gates.OfState(n, j, 2, dc)
layers/recurrent/recurrent_cells.h|recurrent|cell[at] = static_cast<T>(o * tanh_c)|cell[at] = static_cast<T>(tanh_c)
layers/recurrent/recurrent_cells.h|recurrent|return y <= 0 ? A{0} : A{1};|return y <= 0 ? A{1} : A{1};
layers/recurrent/recurrent_cells.h|recurrent|gradient(n, j) + straight|gradient(n, j)
layers/recurrent.cc|recurrent|d == 0 ? *products.dinput : *products.add_dinput|*products.dinput
layers/recurrent.cc|recurrent|RETURN_IF_ERROR(swap());|
layers/recurrent.cc|recurrent|if (s == 0 && options_.carry) {|if (s < 0 && options_.carry) {
layers/recurrent/recurrent_rows.h|recurrent|to.first[length(n)]++|to.first[length(n)]
layers/recurrent/recurrent_base.h|recurrent|packed.outer,|packed.packed,
layers/recurrent/recurrent_cells.h|recurrent|reverse && t == length - 1|reverse && t == length
layers/recurrent.cc|recurrent|carry(states.hidden, width, arrays.hidden)|absl::OkStatus()
layers/recurrent.cc|recurrent|s == 0 ? plan_.rows.times : s - 1|s
engine/runtime/primitives/blocked/packed.cc|recurrent|*place(k + i, j)|*place(k + i, columns - 1 - j)
layers/embedding.cc|embedding|sum[row * width + column] +=|sum[row * width + column] =
layers/embedding.cc|embedding|rows, width, {sum, width}|rows, width, {sum + 1, width}
layers/embedding.cc|embedding|row < vocabulary ? row : -1|row
layers/embedding.cc|embedding|if (i >= times * width) return 0;|
layers/embedding.cc|embedding|(i / width * samples + n)|(n * times + i / width)
layers/combine.cc|combine|if (k != of)|if (k == of)
layers/combine.cc|combine|InBackward(input, multiplies_ ? kRead : kNone)|kNone
layers/dropout.cc|dropout|Apply(context, context.gradients[kY], context.gradients[kX])|Apply(context, context.gradients[kX], context.gradients[kX])
layers/dense.cc|dense|weight.trained() ? kRead : kNone|kNone
layers/conv2d.cc|conv2d|} else if (bias_ >= 0 && gradients[bias_]) {|} else if (false) {
layers/common/global_mean.cc|softmax_cross_entropy|summed_after = 0|summed_after = -1
layers/common/dropped.h|dropout|kept = scale * from[at]|kept = 1 * from[at]
layers/noise.cc|noise|position->first_sample + static_cast|static_cast
layers/noise.cc|noise|Philox(key, position->step,|Philox(key, 0,
layers/noise.cc|noise|Put(normals.second|Put(normals.first
layers/noise.cc|noise|return Fill(context.stream, 0, context.gradients[kX]);|return absl::OkStatus();
layers/noise.cc|noise|dims = {x[BatchAxis(input, kX)]}|dims = {x[0]}
layers/common/dropped.h|dropout|kept = scale * from[at]|kept = static_cast<T>(scale) * from[at]
layers/common/dropped.h|dropout|Philox(key, position->step, first|Philox(key, position->step + (from == to), first
layers/common/dropped.h|dropout|position->first_sample * |0 * 
layers/common/dropped.h|dropout|(e / inner * samples + sample) * inner + e % inner|sample * sample_elements + e
layers/reshape.cc|reshape|.must = true|.must = false
engine/runtime/parallel/column_sum.h|dense|from[row * columns + column]|from[row * columns + 0 * column]
engine/runtime/parallel/parallel.h|dense|return a + b|return a
layers/dense.cc|dense|weight.transpose_a = true|weight.transpose_b = true
layers/dense.cc|dense|Run(context.stream, dy, states[kX].data|Run(context.stream, states[kX].data, dy
layers/dense.cc|dense|.accumulate = slice.first > 0|.accumulate = false
layers/dense.cc|dense|ColumnsOf(slice, gradients[kY])|ColumnsOf(slices_[0], gradients[kY])
layers/dense.cc|dense|data_gradient ? kRead : kNone|kNone
layers/dense.cc|dense|forward.activation = HasBound(input) ? Activation::kNone : input.output_activation;|
layers/conv2d.cc|conv2d|states[kX].data, dy,|states[kX].data, context.states[kX].data,
layers/conv2d.cc|conv2d|BackwardData(context.stream, dy|BackwardData(context.stream, gradients[kX].data
layers/conv2d.cc|conv2d|data_gradient ? kRead : kNone|data_gradient ? kNone : kNone
layers/conv2d.cc|conv2d|.activation = HasBound(input) ? Activation::kNone : input.output_activation,|
layers/pool2d.cc|pool2d|pool_->Backward(context.stream, context.gradients[kY].data|pool_->Backward(context.stream, context.gradients[kX].data
layers/pool2d.cc|pool2d|InBackward(input, kRead)|kNone
layers/softmax_cross_entropy.cc|softmax_cross_entropy|- targets.Of(n, c)|+ targets.Of(n, c)
layers/softmax_cross_entropy.cc|softmax_cross_entropy|mass * std::exp(log)|mass * log
layers/softmax_cross_entropy.cc|softmax_cross_entropy|mass * std::exp(log)|std::exp(log)
layers/softmax_cross_entropy.cc|softmax_cross_entropy|scale * slope|(1 + 0 * scale) * slope
layers/softmax_cross_entropy.cc|softmax_cross_entropy|slope / static_cast<A>(normaliser())|slope
layers/softmax_cross_entropy.cc|softmax_cross_entropy|targets.Counts(n) ? targets.Mass|!targets.Bad(n) ? targets.Mass
layers/softmax_cross_entropy.cc|softmax_cross_entropy|c == labels.labels[n]|c + 1 == labels.labels[n]
layers/softmax_cross_entropy.cc|softmax_cross_entropy|((1 - smoothing) * share +|(share +
layers/softmax_cross_entropy.cc|softmax_cross_entropy|-scale * weight * log|scale * weight * log
layers/softmax_cross_entropy.cc|softmax_cross_entropy|weight * of_class};|weight};
layers/common/global_mean.h|sample_weights|weight * score(n, labels.labels[n])|score(n, labels.labels[n])
layers/common/global_mean.h|sample_weights|\|\| weights.Of(n) == 0|
layers/mean_over_elements.cc|sample_weights|weight * (static_cast<A>(dy[0])|(static_cast<A>(dy[0])
layers/common/global_mean.cc|softmax_cross_entropy|scores.elements(0, axis) * inner_|1
layers/mean_over_elements.cc|mean_over_elements|return 2 * (x - t);|return x - t;
layers/mean_over_elements.cc|mean_over_elements|return 2 * (t - x);|return 2 * (x - t);
layers/mean_over_elements.cc|mean_over_elements|return Logistic(x) - t;|return Logistic(x) + t;
layers/mean_over_elements.cc|mean_over_elements|static_cast<double>(sample_elements)|2 * static_cast<double>(sample_elements)
layers/mean_over_elements.cc|mean_over_elements|t > most ? most : t|t
layers/mean_over_elements.cc|mean_over_elements|return !(t < 0);|return t == t;
layers/binary_loss.cc|binary_loss|return -Logistic(-m);|return -Logistic(m);
layers/binary_loss.cc|binary_loss|: -formula.Slope(-x)|: formula.Slope(-x)
layers/binary_loss.cc|binary_loss|if (equal) return a.position < b.position ? a : b;|if (equal) return b;
layers/binary_loss.cc|binary_loss|a_is_nan \|\| a.score > b.score|a.score > b.score
layers/binary_loss.cc|binary_loss|(k / inner * samples + n)|(n * inner + k)
layers/binary_loss.cc|binary_loss|if (peak[n] < 0) return {0, 0};|
layers/binary_loss.cc|binary_loss|.by_sample = kBySample}|.by_sample = false}
layers/records.cc|records|(i / inner % samples * outer + i / (samples * inner))|(i / inner)
layers/records.cc|records|labels.Counts(i) ? labels.labels[i] : -1|labels.labels[i]
layers/records.cc|records|begins < 0 \|\| begins > 1|begins > 1
layers/common/window.cc|conv2d|values.Get(0), values.Get(values.size() - 1)}|values.Get(0), values.Get(0)}
layers/common/window.cc|conv2d|images.set_groups(config.groups());|
layers/common/window.cc|pool2d|images.set_kind(config.kind());|
layers/hinge.cc|hinge|? -sum :|? sum :
layers/hinge.cc|hinge|squared ? 2 * z|squared ? z
layers/hinge.cc|hinge|(scale * slope) / static_cast<A>(normaliser())|(scale * slope)
layers/softmax.cc|softmax|(static_cast<A>(dy[i]) - sum)|(static_cast<A>(dy[i]) + sum)
layers/layer_norm.cc|layer_norm| - n * means.second| + n * means.second
layers/layer_norm.cc|layer_norm|return {g * norm.Normalised(row, column), g};|return {g, g};
layers/layer_norm.cc|layer_norm|data_gradient ? kRead : kNone|kNone
layers/lrn.cc|lrn|scale * static_cast<A>(x[i]) * others|scale * others
layers/lrn.cc|lrn|2 * config_.alpha() * config_.beta()|2 * config_.alpha()
layers/common/global_mean.h|softmax_cross_entropy|count != nullptr ? count[0] :|
layers/common/global_mean.cc|softmax_cross_entropy|kRead \| kWrite, InBackward(input, kRead)|kRead \| kWrite, kNone
engine/runtime/primitives/blocked/conv2d.cc|conv2d|i * group_channels_ * taps_|i * taps_
engine/runtime/primitives/blocked/conv2d.cc|conv2d|padded_row - kernel_row * spec_.window.dilation_h|padded_row - kernel_row
engine/runtime/primitives/blocked/conv2d.cc|conv2d|spec_.w % spec_.h + spec_.window.padding_top|spec_.w % spec_.h + spec_.window.padding_bottom
engine/runtime/primitives/blocked/conv2d.cc|conv2d|left % spec_.window.stride_w != 0|false
engine/runtime/primitives/blocked/conv2d.cc|conv2d|+ g * group_filters_|+ 0 * g
engine/runtime/primitives/blocked/conv2d.cc|conv2d|first_filter + filter, channel0, tap|0 * first_filter + filter, channel0, tap
engine/runtime/primitives/blocked/conv2d.cc|conv2d|first_filter + filter, channel, tap)] =|filter, channel, tap)] =
engine/runtime/primitives/reference/pool2d.cc|pool2d|sum[j] += static_cast<A>(gradient[k].v[j]);|sum[j] = static_cast<A>(gradient[k].v[j]);
engine/runtime/primitives/reference/pool2d.cc|pool2d|sum[j] += static_cast<A>(gradient.v[j]) / pixels|sum[j] += static_cast<A>(gradient.v[j]) * pixels
engine/runtime/primitives/reference/pool2d.cc|pool2d|value != value|false
engine/runtime/primitives/blocked/pool2d.cc|pool2d|(value > best[c]) \| (value != value)|(value > best[c])
engine/runtime/primitives/blocked/pool2d.cc|pool2d|to[c] += at[c] == here|to[c] = at[c] == here
engine/runtime/primitives/blocked/pool2d.cc|pool2d|share[c] = from[c] / pixels|share[c] = from[c] * pixels
engine/runtime/primitives/onednn/conv2d.cc|conv2d|if (pass.reorder.has_value()) Reorder|if (false) Reorder
engine/runtime/primitives/onednn/conv2d.cc|conv2d|WantedWeights(bound, backward_data_, weights, scratch)|Memory(stored_, weights)
layers/interface/layer.h|batch_norm|*due_after == phase|*due_after >= 0
layers/common/global_mean.cc|softmax_cross_entropy|spec.metric = metric_;|spec.metric = metric_, spec.states[metric_].summed_after = counted.empty() ? -1 : 0;
layers/common/global_mean.h|softmax_cross_entropy|if (context.recompute) return absl::OkStatus();|
layers/batch_norm.cc|batch_norm|context.phase == 0 && !context.recompute|context.phase == 0
layers/batch_norm.cc|batch_norm|context.recompute ? none : states[kRunningMean].as<A>()|states[kRunningMean].as<A>()
layers/interface/infer.cc|softmax|input.compute, kWrite, backward|input.compute, kRead, backward
layers/interface/infer.cc|batch_norm|input.compute, kWrite, backward|input.compute, kRead, backward
engine/training/step/update_gate.cc|training/step:update_gate|static_cast<double>(state->skipped)|0.0
engine/training/step/update_gate.cc|training/step:update_gate|sqrt(total) / scale|sqrt(total)
engine/training/step/update_gate.cc|training/step:update_gate|clip_norm / norm : 1) / scale|clip_norm / norm : 1)
engine/training/step/update_gate.cc|training/step:update_gate|state->scale /= 2|state->scale /= 4
engine/training/step/update_gate.cc|training/step:update_gate|++state->skipped;|
engine/training/step/update_gate.cc|training/step:update_gate|good_steps >= growth_interval|good_steps > growth_interval
engine/training/step/update_gate.cc|training/step:update_gate|if (state->scale <= kMostLossScale / 2)|
engine/training/step/update_gate.cc|training/run:loss_scale|update->skip = bad >= 0|update->skip = bad > 0
engine/training/step/training_step.cc|training/run:loss_scale|found.loss_scale.scale >= kLeastLossScale|true
engine/training/step/gradient_sync.cc|training/run:loss_scale|bucket.squares += squares|bucket.squares += squares < 0 ? squares : 0
engine/training/run/run_state.cc|training/run:loss_scale|!state.has_loss_scale()) return;|true) return;
engine/training/run/run_state.cc|training/run:loss_scale|saved.skipped()|0
engine/training/run/run_state.cc|end_to_end/runs:carried|saved.good_steps()|0
engine/training/run/run_start.cc|end_to_end/runs:series|RETURN_IF_ERROR(CheckFit(options, FitOf(state), /*starts=*/false));|
engine/training/run/run_start.cc|end_to_end/runs:series|RETURN_IF_ERROR(Annotate(CheckFit(options, weights.fit, /*starts=*/true), weights.path));|
engine/training/run/run_state.cc|end_to_end/runs:carried|RETURN_IF_ERROR(Annotate(model.LoadCarried(stream, from.carried), start_.path));|
engine/training/run/run_length.cc|training/run:run_length|static_cast<double>(epoch)|static_cast<double>(epoch + 1)
engine/training/run/run_length.cc|training/run:run_length|1 + workers /|1 + (workers - 1) /
engine/training/run/run_length.cc|training/run:run_length|epoch = PositionAt(step) / epoch_samples_|epoch = step / epoch_samples_
engine/training/metrics/metrics.cc|training/metrics:record_metrics|std::exp(metric.value())|std::exp2(metric.value())
engine/training/metrics/metrics.cc|training/metrics:record_metrics|metric.value() / std::numbers::ln2|metric.value()
engine/training/metrics/record_metrics.cc|training/metrics:record_metrics|(2 * below + equal[0])|(2 * below)
engine/training/metrics/record_metrics.cc|training/metrics:record_metrics|IsAtMost(step.time, config.earliest())|step.time < config.earliest()
engine/training/metrics/record_metrics.cc|training/metrics:record_metrics|!IsAtMost(alarm->time, config.earliest())|alarm->time >= config.earliest()
engine/training/metrics/record_metrics.cc|training/metrics:record_metrics|!IsAtLeast(alarm->time, config.latest())|alarm->time <= config.latest()
engine/training/metrics/record_metrics.cc|training/metrics:record_metrics|step.score > config.threshold()|step.score >= config.threshold()
engine/training/metrics/record_metrics.cc|training/metrics:record_metrics|!IsAtLeast(step.time, before)|step.time <= before
engine/training/metrics/record_metrics.cc|training/metrics:record_metrics|{0.03, 0.07|{0.04, 0.07
engine/training/metrics/record_metrics.cc|training/metrics:record_metrics|"_auc"), config.latest()|"_auc"), 0
engine/training/metrics/record_metrics.cc|training/metrics:record_metrics|if (HasNaN(sequences))|if (HasNaN(sequences) && false)
engine/data/batches/sample_writer.cc|training/feed:data_feed|if (sample.begins &&|if (false && begins &&
engine/data/sets/text_dataset.cc|data:series|next.push_back(kIgnored)|next.push_back(0)
engine/data/sets/review_dataset.cc|data:series|words.end() - kept, words.end()|words.begin(), words.begin() + kept
engine/data/sets/shot_dataset.cc|data:shots|IsAtMost(until, config.warning())|until < config.warning()
engine/data/sets/shot_dataset.cc|data:series|values.size() % 2 == 1|values.size() > 0
engine/data/sets/shot_file.cc|data:series|std::ranges::upper_bound|std::ranges::lower_bound
engine/data/batches/sample_order.cc|data:sample_order|RandomWord(among_equals, epoch, index)|RandomWord(among_equals, epoch, 0 * index)
engine/data/batches/sample_order.cc|data:sample_order|RandomWord(in_row, epoch, index)|RandomWord(in_row, epoch, 0 * index)
engine/data/batches/sample_order.cc|data:sample_order|return RandomWord(key, epoch, batch);|return RandomWord(key, epoch, 0 * batch);
engine/data/batches/sample_order.cc|data:sample_order|return length(a) < length(b);|return length(a) < 0 * b;
TABLE
}

copy="$(mktemp -d)"
trap '(cd "$copy" && bazel ${BAZEL_STARTUP:-} shutdown) >/dev/null 2>&1 || true; rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy"
survived=0
while IFS=$'\x1f' read -r file test text fault; do
  [[ $test == *:* ]] || test="layers:$test"
  cp "$file" "$copy/$file"
  TEXT="$text" FAULT="$fault" perl -0pi -e \
    '$n = s/\Q$ENV{TEXT}\E/$ENV{FAULT}/g; END { exit($n ? 0 : 1) }' "$copy/$file" ||
    { echo "ABSENT   $file: $text"; survived=1; continue; }
  code=0
  # Bazel exits with 3 if and only if everything was built and a test failed.
  (cd "$copy" && bazel ${BAZEL_STARTUP:-} test ${BAZEL_FLAGS:-} "//tests/${test}_test") \
    > "$copy/log" 2>&1 < /dev/null || code=$?
  cp "$file" "$copy/$file"
  case "$code" in
    3) verdict=caught ;;
    0) verdict=SURVIVED survived=1 ;;
    *) verdict="ERROR-$code" survived=1 && tail -20 "$copy/log" ;;
  esac
  printf '%-8s %-45s %s  ->  %s\n' "$verdict" "$file" "$text" "$fault"
done < <(faults | grep -e "${1:-}" | sed -e 's/\\|/\x1e/g' -e 's/|/\x1f/g' -e 's/\x1e/|/g')
exit "$survived"
