// The serial Hungarian algorithm as a library for benchmarks/yardsticks.py.
#include "yardsticks/hungarian.h"

#include <cstddef>
#include <cstdint>
#include <vector>

// Writes the column of each row of the costs [k, k] to `columns` [k].
extern "C" void esd_hungarian(const double* costs, std::int32_t k, std::int32_t* columns) {
  esd::Hungarian problem(std::vector<double>(costs, costs + static_cast<std::size_t>(k) * k), k);
  const std::vector<int>& chosen = problem.solve();
  for (std::int32_t i = 0; i < k; ++i) columns[i] = chosen[i];
}
