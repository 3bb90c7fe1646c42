// The parser reads each line once, field by field, and writes ids and numbers straight to the columns of the block.
#include "text/parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "text/hash.h"

namespace esd::text {
namespace {

constexpr std::size_t kShown = 40;                             // the most bytes of a wrong value that a message shows
constexpr std::int64_t kExactInteger = std::int64_t{1} << 53;  // Numbers travel as float64.

// Records a mistake. Returns false, for the caller to return.
bool refuse(Mistake& mistake, std::string expected, std::string_view found, bool at_end = false) {
  mistake.expected = std::move(expected);
  mistake.found = std::string(found.substr(0, kShown));
  mistake.at_end = at_end;
  return false;
}

bool read_integer(std::string_view text, double& number) {
  std::int64_t value;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  number = static_cast<double>(value);
  return value >= -kExactInteger && value <= kExactInteger;
}

// The number must be finite as float32, too, which the features become.
bool read_decimal(std::string_view text, double& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() && std::isfinite(static_cast<float>(number));
}

// Iterates over the fields of one line.
class Fields {
 public:
  Fields(std::string_view line, const Format& format) : rest_(line), format_(format) {}

  bool ended() const { return ended_; }
  std::string_view rest() const { return rest_; }

  enum class Step { kField, kEnd, kOpenQuote, kTextAfterQuote };

  // Moves to the next field and points `value` to its text without quotes. After a mistake `value` is the text found.
  Step next(std::string_view& value) {
    if (ended_) return Step::kEnd;
    if (format_.quoted && !rest_.empty() && rest_.front() == '"') return next_quoted(value);
    const std::size_t length = find_delimiter();
    value = rest_.substr(0, length);
    return leave(length);
  }

 private:
  std::size_t find_delimiter() const {
    if (format_.delimiter.size() > 1) {
      const std::size_t at = rest_.find(format_.delimiter);
      return at == std::string_view::npos ? rest_.size() : at;
    }
    // Fields are a few bytes long: a plain loop beats a call of memchr.
    const char delimiter = format_.delimiter.front();
    std::size_t at = 0;
    while (at < rest_.size() && rest_[at] != delimiter) ++at;
    return at;
  }

  Step next_quoted(std::string_view& value) {
    unquoted_.clear();
    std::size_t at = 1;
    while (true) {
      const std::size_t quote = rest_.find('"', at);
      value = rest_;
      if (quote == std::string_view::npos) return Step::kOpenQuote;
      unquoted_.append(rest_, at, quote - at);
      at = quote + 1;
      if (at == rest_.size() || rest_[at] != '"') break;
      unquoted_.push_back('"');
      ++at;
    }
    if (rest_.substr(at, format_.delimiter.size()) != format_.delimiter && at != rest_.size()) {
      return Step::kTextAfterQuote;
    }
    value = unquoted_;
    return leave(at);
  }

  Step leave(std::size_t length) {
    ended_ = length == rest_.size();
    if (!ended_) rest_.remove_prefix(length + format_.delimiter.size());
    return Step::kField;
  }

  std::string_view rest_;
  const Format& format_;
  std::string unquoted_;
  bool ended_ = false;
};

}  // namespace

Parser::Parser(Format format) : format_(std::move(format)) {
  for (const Column& column : format_.columns) {
    if (column.kind == Kind::kId) {
      ++id_columns_;
    } else if (column.kind != Kind::kSkip) {
      ++number_columns_;
    }
  }
}

Block Parser::parse(std::string_view text, std::size_t bad_allowed) const {
  // There are at most this many records; a line that turns out not to be a record uses one row more.
  std::size_t rows = 1;
  for (char c : text) rows += c == '\n';
  const std::size_t shortest_line = std::max<std::size_t>(format_.columns.size(), 1);  // its delimiters and a newline
  rows = std::min(rows, text.size() / shortest_line + 1) + 1;

  Block block;
  block.ids.resize(rows * id_columns_);
  block.numbers.resize(rows * number_columns_);
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);

    Mistake mistake{block.lines++, 0, {}, {}, false};
    if (parse_line(line, block.ids.data() + block.records * id_columns_,
                   block.numbers.data() + block.records * number_columns_, mistake)) {
      ++block.records;
      continue;
    }
    block.mistakes.push_back(std::move(mistake));
    if (block.mistakes.size() > bad_allowed) break;
  }
  return block;
}

bool Parser::parse_line(std::string_view line, std::uint64_t* ids, double* numbers, Mistake& mistake) const {
  if (line.size() > format_.max_line_bytes) {
    return refuse(mistake, "a line of at most " + std::to_string(format_.max_line_bytes) + " bytes", line);
  }
  Fields fields(line, format_);
  std::string_view value;
  for (const Column& column : format_.columns) {
    ++mistake.column;
    switch (fields.next(value)) {
      case Fields::Step::kField:
        if (!take_value(column, value, ids, numbers, mistake)) return false;
        break;
      case Fields::Step::kEnd: return refuse(mistake, std::to_string(format_.columns.size()) + " columns", {}, true);
      case Fields::Step::kOpenQuote: return refuse(mistake, "a closing quote on the same line", value);
      case Fields::Step::kTextAfterQuote: return refuse(mistake, "the end of the field after its closing quote", value);
    }
  }
  if (fields.ended()) return true;
  ++mistake.column;
  return refuse(mistake, "the line to end after " + std::to_string(format_.columns.size()) + " columns", fields.rest());
}

bool Parser::take_value(const Column& column, std::string_view value, std::uint64_t*& ids, double*& numbers,
                        Mistake& mistake) const {
  if (column.kind == Kind::kSkip) return true;
  if (column.kind == Kind::kId) {
    *ids++ = hash_text(column.field_key, value.data(), value.size());
    return true;
  }
  double& number = *numbers++;
  if (column.optional && (value.empty() || value == format_.missing)) {
    number = std::numeric_limits<double>::quiet_NaN();
    return true;
  }
  switch (column.kind) {
    case Kind::kInteger: return read_integer(value, number) || refuse(mistake, "an integer within +-2^53", value);
    case Kind::kDecimal: return read_decimal(value, number) || refuse(mistake, "a finite number", value);
    default: number = value == "1"; return value == "0" || value == "1" || refuse(mistake, "0 or 1", value);
  }
}

}  // namespace esd::text
