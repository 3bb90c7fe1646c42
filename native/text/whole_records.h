// Where the last whole record of a part of a CSV file ends: a quoted value may have the ends of lines in it.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

namespace esd::text {

inline bool ends_record(char letter) { return letter == '\n' || letter == '\r'; }

// Returns how many bytes the whole records at the beginning of a text have, with the ends of their lines (LF, CR LF or
// CR). A quote opens a value at its beginning alone, and is doubled inside of it, as pyarrow reads it.
inline std::size_t whole_records(std::string_view text, char delimiter) {
  if (text.find('"') == std::string_view::npos) {
    const std::size_t last = text.find_last_of("\r\n");
    return last == std::string_view::npos ? 0 : last + 1;
  }
  std::size_t at = 0;
  std::size_t whole = 0;
  while (at < text.size()) {  // at the beginning of a value
    if (text[at] == '"') {
      do {  // also after a doubled quote
        const std::size_t quote = text.find('"', at + 1);
        if (quote == std::string_view::npos) return whole;
        at = quote + 1;
      } while (at < text.size() && text[at] == '"');
    }
    while (at < text.size() && text[at] != delimiter && !ends_record(text[at])) ++at;
    if (at == text.size()) return whole;
    ++at;
    if (text[at - 1] == delimiter) continue;
    if (text[at - 1] == '\r' && at < text.size() && text[at] == '\n') ++at;
    whole = at;
  }
  return whole;
}

}  // namespace esd::text
