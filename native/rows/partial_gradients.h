// Partial gradients of split rows, which wait for the gradients of the row's other contributors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/worker_sets.h"

namespace esd::rows {

// The effect of one worker's gradient on the pending gradients.
enum class Arrival : std::uint8_t {
  kWaits = 0,      // It is new, and others are still missing.
  kCompletes = 1,  // It is new, and the last missing one.
  kRepeated = 2,   // This worker's gradient is pending already.
  kConflict = 3,   // It disagrees with the others on target version, contributors or step.
};

// The pending gradients by row. The caller holds `mutex()`.
class PartialGradients {
 public:
  // The properties on which all contributors of a split row agree.
  struct Split {
    std::int64_t target;  // the version that the sum makes
    std::int64_t step;    // the optimizer step
    WideWorkerSet contributors;

    bool operator==(const Split& other) const {
      return target == other.target && contributors == other.contributors && step == other.step;
    }
  };

  explicit PartialGradients(std::size_t dimension) : dimension_(dimension) {}

  std::size_t dimension() const { return dimension_; }

  // Returns the effect that the worker's gradient would have; changes nothing.
  Arrival inspect(std::uint64_t id, const Split& split, unsigned worker) const {
    const auto self = WideWorkerSet::only(static_cast<int>(worker));
    const auto found = pending_.find(id);
    if (found == pending_.end()) return split.contributors == self ? Arrival::kCompletes : Arrival::kWaits;
    const Pending& pending = found->second;
    if (!(pending.split == split)) return Arrival::kConflict;
    if (!(pending.arrived & self).empty()) return Arrival::kRepeated;
    return (pending.arrived | self) == split.contributors ? Arrival::kCompletes : Arrival::kWaits;
  }

  // Keeps a copy of a gradient that the caller has inspected: it is new and agrees with the others.
  void add(std::uint64_t id, const Split& split, unsigned worker, const float* gradient) {
    std::unique_ptr<float[]> copy(new float[dimension_]);
    std::copy_n(gradient, dimension_, copy.get());
    Pending& pending = pending_.try_emplace(id, Pending{split, {}, {}}).first->second;
    const auto next = std::find_if(pending.parts.begin(), pending.parts.end(),
                                   [worker](const Part& part) { return part.worker > worker; });
    pending.parts.insert(next, Part{worker, std::move(copy)});
    pending.arrived.add(static_cast<int>(worker));
    ++gradients_;
  }

  // Writes the sum of the pending gradients and this one, added in worker order, to `out` [dimension].
  void sum(std::uint64_t id, unsigned worker, const float* gradient, float* out) const {
    const auto found = pending_.find(id);
    bool first = true;
    const auto add = [&](const float* part) {
      if (first) {
        std::copy_n(part, dimension_, out);
      } else {
        for (std::size_t c = 0; c < dimension_; ++c) out[c] += part[c];
      }
      first = false;
    };
    bool own_is_due = true;
    if (found != pending_.end()) {
      for (const Part& part : found->second.parts) {
        if (own_is_due && worker < part.worker) {
          add(gradient);
          own_is_due = false;
        }
        add(part.gradient.get());
      }
    }
    if (own_is_due) add(gradient);
  }

  // Drops the pending gradients of the row.
  void discard(std::uint64_t id) {
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    gradients_ -= found->second.parts.size();
    pending_.erase(found);
  }

  // The split of the row's pending gradients; zeros if none is pending.
  Split split(std::uint64_t id) const {
    const auto found = pending_.find(id);
    return found == pending_.end() ? Split{0, 0, {}} : found->second.split;
  }

  // The number of pending gradients, over all rows.
  std::size_t gradients() const { return gradients_; }

  std::size_t memory_bytes() const {
    return pending_.bucket_count() * sizeof(void*) + pending_.size() * (sizeof(Pending) + 3 * sizeof(void*)) +
           gradients_ * (dimension_ * sizeof(float) + sizeof(Part));
  }

  std::mutex& mutex() const { return mutex_; }

 private:
  struct Part {
    unsigned worker;
    std::unique_ptr<float[]> gradient;
  };

  struct Pending {
    Split split;
    WideWorkerSet arrived;
    std::vector<Part> parts;  // ascending by worker
  };

  std::size_t dimension_;
  std::size_t gradients_ = 0;
  std::unordered_map<std::uint64_t, Pending> pending_;
  mutable std::mutex mutex_;
};

}  // namespace esd::rows
