// What a worker still has to push of what it has trained, whether or not anybody needs it: in a flush, and where every
// trained row is pushed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/memory/sort_by_id.h"
#include "engine/plan/plan.h"

namespace esd {

struct OwedPushes {
  std::vector<TransferRow> rows, gradients;  // rows it trained alone; its partial gradients of the others

  bool empty() const { return rows.empty() && gradients.empty(); }

  // Strikes out what leaves the table. `forgotten` ascends.
  void forget(const std::vector<std::uint64_t>& forgotten) {
    for (std::vector<TransferRow>* owed : {&rows, &gradients}) {
      const auto leaves = [&](const TransferRow& row) {
        return std::binary_search(forgotten.begin(), forgotten.end(), row.id);
      };
      owed->erase(std::remove_if(owed->begin(), owed->end(), leaves), owed->end());
    }
  }

  void sort(SorterById<std::vector<TransferRow>>& sorter) {
    sorter.sort(rows);
    sorter.sort(gradients);
  }

  // Moves everything into the columns of a plan, in the order in which it lies here.
  void write(Arena& arena, TransferSpans& row_columns, TransferSpans& gradient_columns) {
    row_columns = append_rows(arena, rows.data(), rows.size());
    gradient_columns = append_gradients(arena, gradients.data(), gradients.size());
    rows.clear();
    gradients.clear();
  }
};

}  // namespace esd
