// The Hungarian algorithm on the k x k matrix, one thread: the serial column of Table 2 of the ESD paper.
//
// Its steps are those of the paper's Chinese edition, §3.4: reduce rows and columns, star zeros, cover the columns of
// stars; prime zeros that are not covered until a path of primes and stars can be augmented; adjust the matrix where
// there is no such zero. A zero is looked for where one can have appeared only: in rows and columns that were uncovered,
// and in the pass that adjusts the matrix. So an augmentation without adjustments takes O(k^2), and each adjustment as
// much.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace esd {

class Hungarian {
 public:
  // `costs` [k, k] row by row; it is taken apart.
  Hungarian(std::vector<double> costs, int k)
      : k_(k),
        costs_(std::move(costs)),
        star_of_row_(k, kNone),
        star_of_column_(k, kNone),
        prime_of_row_(k, kNone),
        row_covered_(k),
        column_covered_(k) {}

  // Returns the column of each row.
  const std::vector<int>& solve() {
    reduce();
    star();
    for (int stars = cover(); stars < k_; stars = cover()) augment(find_path());
    return star_of_row_;
  }

 private:
  static constexpr int kNone = -1;
  using Zero = std::pair<int, int>;  // row and column

  double& at(int row, int column) { return costs_[static_cast<std::size_t>(row) * k_ + column]; }

  void reduce() {
    std::vector<double> least(k_, std::numeric_limits<double>::infinity());
    for (int i = 0; i < k_; ++i) {
      const double smallest = *std::min_element(&at(i, 0), &at(i, 0) + k_);
      for (int j = 0; j < k_; ++j) least[j] = std::min(least[j], at(i, j) -= smallest);
    }
    for (int i = 0; i < k_; ++i) {
      for (int j = 0; j < k_; ++j) at(i, j) -= least[j];
    }
  }

  void star() {
    for (int i = 0; i < k_; ++i) {
      for (int j = 0; j < k_; ++j) {
        if (at(i, j) != 0 || star_of_column_[j] != kNone) continue;
        star_of_row_[i] = j;
        star_of_column_[j] = i;
        break;
      }
    }
  }

  // Covers the columns of stars, nothing else; returns how many.
  int cover() {
    std::fill(row_covered_.begin(), row_covered_.end(), false);
    std::fill(prime_of_row_.begin(), prime_of_row_.end(), kNone);
    int covered = 0;
    for (int j = 0; j < k_; ++j) covered += column_covered_[j] = star_of_column_[j] != kNone;
    zeros_.clear();
    scanned_ = 0;
    return covered;
  }

  void scan_row(int i) {
    for (int j = 0; j < k_; ++j) {
      if (!column_covered_[j] && at(i, j) == 0) zeros_.emplace_back(i, j);
    }
  }

  // Primes zeros until one lies in a row without a star.
  Zero find_path() {
    for (;;) {
      while (!zeros_.empty()) {
        const auto [row, column] = zeros_.back();
        zeros_.pop_back();
        if (row_covered_[row] || column_covered_[column]) continue;
        prime_of_row_[row] = column;
        const int starred = star_of_row_[row];
        if (starred == kNone) return {row, column};
        row_covered_[row] = true;
        column_covered_[starred] = false;
        for (int i = 0; i < k_; ++i) {
          if (!row_covered_[i] && at(i, starred) == 0) zeros_.emplace_back(i, starred);
        }
      }
      if (scanned_ < k_) {
        scan_row(scanned_++);
      } else {
        adjust();
      }
    }
  }

  // Takes the least cost that is not covered from all that are not, and adds it to what is covered twice.
  void adjust() {
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < k_; ++i) {
      if (row_covered_[i]) continue;
      for (int j = 0; j < k_; ++j) {
        if (!column_covered_[j]) least = std::min(least, at(i, j));
      }
    }
    for (int i = 0; i < k_; ++i) {
      for (int j = 0; j < k_; ++j) {
        if (row_covered_[i] && column_covered_[j]) at(i, j) += least;
        if (row_covered_[i] || column_covered_[j]) continue;
        if ((at(i, j) -= least) == 0) zeros_.emplace_back(i, j);
      }
    }
  }

  // Turns the primes of a path into stars, and the stars into nothing.
  void augment(Zero end) {
    auto [row, column] = end;
    for (;;) {
      const int starred = std::exchange(star_of_column_[column], row);
      star_of_row_[row] = column;
      if (starred == kNone) return;
      row = starred;
      column = prime_of_row_[row];
    }
  }

  const int k_;
  std::vector<double> costs_;
  std::vector<int> star_of_row_, star_of_column_, prime_of_row_;
  std::vector<char> row_covered_, column_covered_;
  int scanned_ = 0;          // rows whose zeros were looked for since the last augmentation
  std::vector<Zero> zeros_;  // that were not covered when they were found, and are still zeros
};

}  // namespace esd
