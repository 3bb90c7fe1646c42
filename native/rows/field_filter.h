// The fields of the Redis store that may hold rows: a Bloom filter of addresses without their last byte, 2 to 8 bytes
// per row. A field that was added is always found; of a thousand others up to five are found, too. It is thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "common/mix64.h"
#include "rows/records.h"

namespace esd::rows {

class FieldFilter {
 public:
  // Adds the fields of ids; writes for each whether it is surely new.
  void add(const std::uint64_t* ids, std::size_t count, bool* is_new) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) prefetch(hash_of(ids[i + kAhead]));
      const std::uint64_t hash = hash_of(ids[i]);
      is_new[i] = !has(hash);
      if (!is_new[i]) continue;
      make_room();
      layers_.back().add(hash);
    }
  }

  // Writes for each id whether its field may hold rows.
  void has(const std::uint64_t* ids, std::size_t count, bool* is_there) const {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) prefetch(hash_of(ids[i + kAhead]));
      is_there[i] = has(hash_of(ids[i]));
    }
  }

  std::size_t memory_bytes() const {
    const std::lock_guard lock(mutex_);
    std::size_t bytes = 0;
    for (const Layer& layer : layers_) bytes += layer.blocks.size() * sizeof(Block);
    return bytes;
  }

 private:
  static constexpr std::size_t kAhead = 8;
  static constexpr std::size_t kWords = 8;
  // A field takes 16 bits of a block, of which it sets one per word.
  static constexpr std::size_t kFieldsPerBlock = 16;
  static constexpr std::size_t kFirstBlocks = std::size_t{1} << 12;
  static constexpr unsigned kGrowthBits = 2;
  // The layers have room for 89 million fields in 179 MB; later fields are added to the last one, which then finds more
  // fields that were never added.
  static constexpr std::size_t kMostLayers = 6;

  struct alignas(kWords * sizeof(std::uint32_t)) Block {
    std::array<std::uint32_t, kWords> words{};
  };

  // A layer is full when it has so many fields that more would be found in vain; the next one has four times its room.
  struct Layer {
    std::vector<Block> blocks;
    std::size_t fields;

    bool has(std::uint64_t hash) const {
      const Block& block = blocks[place(hash)];
      std::uint32_t absent = 0;
      for (std::size_t i = 0; i < kWords; ++i) absent |= bit(hash, i) & ~block.words[i];
      return absent == 0;
    }

    void add(std::uint64_t hash) {
      Block& block = blocks[place(hash)];
      for (std::size_t i = 0; i < kWords; ++i) block.words[i] |= bit(hash, i);
      ++fields;
    }

    bool is_full() const { return fields >= kFieldsPerBlock * blocks.size(); }

    std::size_t place(std::uint64_t hash) const { return hash >> 32 & (blocks.size() - 1); }

    // The bit in a word: 5 bits of a product, as in the filters of Parquet files.
    static std::uint32_t bit(std::uint64_t hash, std::size_t word) {
      constexpr std::array<std::uint32_t, kWords> kFactors = {0x47b6137bU, 0x44974d91U, 0x8824ad5bU, 0xa2b7289dU,
                                                              0x705495c7U, 0x2df1424bU, 0x9efc4947U, 0x5c6bfb31U};
      return std::uint32_t{1} << (static_cast<std::uint32_t>(hash) * kFactors[word] >> 27);
    }
  };

  static std::uint64_t hash_of(std::uint64_t id) { return mix64(Address::of(id).beside(0).bits); }

  void make_room() {
    if (layers_.empty() || (layers_.back().is_full() && layers_.size() < kMostLayers)) {
      layers_.push_back({std::vector<Block>(kFirstBlocks << kGrowthBits * layers_.size()), 0});
    }
  }

  bool has(std::uint64_t hash) const {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      if (layer->has(hash)) return true;
    }
    return false;
  }

  void prefetch(std::uint64_t hash) const {
    for (const Layer& layer : layers_) __builtin_prefetch(&layer.blocks[layer.place(hash)]);
  }

  mutable std::mutex mutex_;
  std::vector<Layer> layers_;
};

}  // namespace esd::rows
