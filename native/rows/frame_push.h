// Stores the pushes of a frame in a table in memory: the rows, then the partial gradients.
//
// The semantics are those of ps_server/core/table.py, which applies the frames that are refused here, and explains why.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "common/initial_rows.h"
#include "common/worker_sets.h"
#include "rows/changed_rows.h"
#include "rows/checks.h"
#include "rows/exact_pulls.h"
#include "rows/optimizers.h"
#include "rows/partial_gradients.h"
#include "rows/pre_images.h"
#include "rows/row_table.h"
#include "rows/waiting_rows.h"
#include "wire/answer_writer.h"
#include "wire/frame_reader.h"

namespace esd::rows {

struct Optimizer {
  enum class Kind : std::uint8_t { kSgd = 0, kRowwiseAdagrad = 1, kAdam = 2 };

  Kind kind;
  double epsilon, beta1, beta2;
  double max_norm;  // 0: any

  // Takes the optimizer step with this number on one row, at its learning rate, and limits the norm of its values.
  void step(float* row, const float* gradient, std::int64_t number, float rate, std::size_t dimension) const {
    switch (kind) {
      case Kind::kSgd: sgd(row, gradient, 1, dimension, rate); break;
      case Kind::kRowwiseAdagrad:
        rowwise_adagrad(row, gradient, 1, dimension, rate, static_cast<float>(epsilon));
        break;
      case Kind::kAdam: adam(row, gradient, &number, 1, dimension, {rate, epsilon, beta1, beta2}); break;
    }
    limit_norm(row, dimension, max_norm);
  }
};

// The constants of a table.
struct TableFacts {
  InitialRows initial;
  Optimizer optimizer;
  ShardShare shard;
};

// The state of a table in memory.
struct TableParts {
  RowTable& rows;
  PartialGradients& partials;
  PreImages* pre_images;  // null: none are kept
  WaitingRows& waiting;
  ChangedRows* changed;  // null: no reader follows the table

  bool write_newer(std::uint64_t id, std::int64_t version, const void* row) const {
    const bool is_new = rows.write_newer(id, version, row, pre_images);
    if (is_new && changed) changed->add(id);
    return is_new;
  }
};

using Woken = std::vector<WaitingRows::Ticket>;

// The rows that a frame pushes. Both steps return false for an invalid frame.
class RowPush {
 public:
  RowPush(const wire::FrameView::Rows& rows, const TableFacts& facts)
      : facts_(facts), ids_(rows.ids.column<std::uint64_t>()), versions_(rows.versions.column<std::int64_t>()) {
    good_ = are_numbers(rows.ids, ids_.size()) && are_numbers(rows.versions, ids_.size()) &&
            are_rows(rows.rows, ids_.size(), facts.initial.width) && distinct(ids_) && versions_between(versions_, 1) &&
            facts.shard.has(ids_);
    rows_ = rows.rows.data;
  }

  bool good() const { return good_; }

  // Stores nothing if a row would make pending gradients void.
  bool store(const TableParts& parts, wire::Stored& stored, Woken& woken) const {
    {
      const std::lock_guard lock(parts.partials.mutex());
      if (parts.partials.gradients() > 0 && !make_way(parts)) return false;
    }
    const std::size_t row_bytes = facts_.initial.width * sizeof(float);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const bool is_new = parts.write_newer(ids_[i], versions_[i], rows_ + i * row_bytes);
      ++(is_new ? stored.newly_stored : stored.already_known);
    }
    for (std::size_t i = 0; i < ids_.size(); ++i) parts.waiting.announce(ids_[i], versions_[i], woken);
    return true;
  }

 private:
  // Discards pending gradients of earlier lives; returns false if a row would make other pending gradients void.
  bool make_way(const TableParts& parts) const {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const std::int64_t target = parts.partials.split(ids_[i]).target;
      if (target > 0 && target < at_birth(versions_[i])) parts.partials.discard(ids_[i]);
    }
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const std::int64_t target = parts.partials.split(ids_[i]).target;
      if (target == 0 || target > versions_[i]) continue;
      std::int64_t version = 0;
      parts.rows.versions(&ids_[i], 1, &version);
      if (version < target) return false;
    }
    return true;
  }

  const TableFacts& facts_;
  std::vector<std::uint64_t> ids_;
  std::vector<std::int64_t> versions_;
  const std::uint8_t* rows_;
  bool good_;
};

// The partial gradients that a frame pushes.
class GradientPush {
 public:
  GradientPush(const wire::FrameView::Gradients& block, const TableFacts& facts)
      : facts_(facts),
        ids_(block.ids.column<std::uint64_t>()),
        targets_(block.targets.column<std::int64_t>()),
        contributors_(block.contributors.column<std::uint64_t>()),
        steps_(block.steps.column<std::uint32_t>()),
        rates_(block.rates.column<float>()),
        gradients_(block.gradients.data),
        worker_(block.worker) {
    const std::size_t n = ids_.size();
    good_ = are_numbers(block.ids, n) && are_numbers(block.targets, n) &&
            are_numbers(block.contributors, n * sets().words) && block.steps.size == 4 * n &&
            block.rates.size == 4 * n && are_rows(block.gradients, n, facts.initial.dimension) &&
            worker_ < kMostWorkers && distinct(ids_) && versions_between(targets_, 1) && facts.shard.has(ids_);
    for (std::size_t i = 0; good_ && i < n; ++i) {
      good_ =
          sets()[i].contains(static_cast<int>(worker_)) && steps_[i] >= 1 && std::isfinite(rates_[i]) && rates_[i] >= 0;
    }
  }

  bool good() const { return good_; }

  // Keeps the gradients, and trains the rows for which this is the last contribution. Keeps nothing if a gradient skips
  // a version or disagrees with the pending ones.
  bool store(const TableParts& parts, wire::Stored& stored, Woken& woken) const {
    const std::lock_guard lock(parts.partials.mutex());
    std::vector<Arrival> arrivals;
    if (!classify(parts, arrivals)) return false;
    std::vector<float> gradient(facts_.initial.dimension);
    const std::size_t gradient_bytes = gradient.size() * sizeof(float);
    const RowTrainer trainer(facts_, parts);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      ++(arrivals[i] == Arrival::kRepeated ? stored.already_known : stored.newly_stored);
      if (arrivals[i] == Arrival::kRepeated) continue;
      if (gradient_bytes > 0) std::memcpy(gradient.data(), gradients_ + i * gradient_bytes, gradient_bytes);
      if (arrivals[i] == Arrival::kWaits) {
        parts.partials.add(ids_[i], split(i), worker_, gradient.data());
      } else {
        trainer.train(ids_[i], split(i), rates_[i], worker_, gradient.data());
      }
    }
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const bool made = arrivals[i] != Arrival::kWaits && parts.partials.split(ids_[i]).target == 0;
      if (made) parts.waiting.announce(ids_[i], targets_[i], woken);
    }
    return true;
  }

 private:
  // Sums gradients, takes the optimizer's step and stores the row.
  class RowTrainer {
   public:
    RowTrainer(const TableFacts& facts, const TableParts& parts)
        : facts_(facts), parts_(parts), row_(facts.initial.width), sum_(facts.initial.dimension) {}

    void train(std::uint64_t id, const PartialGradients::Split& split, float rate, unsigned worker,
               const float* gradient) const {
      const std::int64_t birth = at_birth(split.target - 1);
      bool trained = false;
      parts_.rows.look_up(id, [&](std::int64_t version, const std::byte* floats) {
        trained = version > birth || (version > 0 && continues(birth));
        if (trained) std::memcpy(row_.data(), floats, row_.size() * sizeof(float));
      });
      if (!trained) fill_initial(facts_.initial, id, row_.data());
      parts_.partials.sum(id, worker, gradient, sum_.data());
      facts_.optimizer.step(row_.data(), sum_.data(), split.step, rate, sum_.size());
      parts_.write_newer(id, split.target, row_.data());
      parts_.partials.discard(id);
    }

   private:
    const TableFacts& facts_;
    const TableParts& parts_;
    mutable std::vector<float> row_;
    mutable std::vector<float> sum_;
  };

  WorkerSets sets() const {
    return {contributors_.data(), ids_.size(), contributors_.size() == ids_.size() ? std::size_t{1} : std::size_t{2}};
  }

  PartialGradients::Split split(std::size_t i) const { return {targets_[i], steps_[i], sets()[i]}; }

  // Classifies each gradient, after discarding pending ones of earlier lives and of versions that exist already.
  bool classify(const TableParts& parts, std::vector<Arrival>& arrivals) const {
    const std::size_t n = ids_.size();
    std::vector<std::int64_t> versions(n);
    parts.rows.versions(ids_.data(), n, versions.data());
    arrivals.resize(n);
    for (std::size_t i = 0; i < n; ++i) {
      const std::int64_t pending = parts.partials.split(ids_[i]).target;
      if (pending > 0 && (pending < at_birth(targets_[i]) || pending <= versions[i])) parts.partials.discard(ids_[i]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      const std::int64_t birth = at_birth(targets_[i]);
      if (targets_[i] > std::max(versions[i], birth) + 1) return false;
      arrivals[i] = parts.partials.inspect(ids_[i], split(i), worker_);
      if (targets_[i] <= versions[i]) arrivals[i] = Arrival::kRepeated;
      if (arrivals[i] == Arrival::kConflict) return false;
    }
    return true;
  }

  const TableFacts& facts_;
  std::vector<std::uint64_t> ids_;
  std::vector<std::int64_t> targets_;
  std::vector<std::uint64_t> contributors_;  // the words of the sets
  std::vector<std::uint32_t> steps_;
  std::vector<float> rates_;
  const std::uint8_t* gradients_;
  unsigned worker_;
  bool good_;
};

}  // namespace esd::rows
