// Commands in the protocol of Redis, with many values from arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace esd::rows {

class RedisCommands {
 public:
  explicit RedisCommands(std::size_t most_bytes) { packed_.reserve(most_bytes); }

  void begin(std::size_t words) { header('*', words); }

  void word(const void* data, std::size_t size) {
    header('$', size);
    packed_.append(static_cast<const char*>(data), size);
    packed_.append("\r\n", 2);
  }

  const std::string& packed() const { return packed_; }

  // The most bytes that a word takes beside its own.
  static constexpr std::size_t kFrame = 24;

 private:
  void header(char kind, std::size_t number) {
    char digits[kFrame];
    char* at = digits + sizeof digits;
    *--at = '\n';
    *--at = '\r';
    do {
      *--at = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    *--at = kind;
    packed_.append(at, static_cast<std::size_t>(digits + sizeof digits - at));
  }

  std::string packed_;
};

}  // namespace esd::rows
