// Parses delimited text into columns of ids and numbers. One call parses whole lines: the caller cuts the stream at
// line ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace esd::text {

// The kind of a column; esd/native/text.pyi defines the valid values of each.
enum class Kind { kSkip, kId, kInteger, kDecimal, kFlag };

struct Column {
  Kind kind;
  bool optional;            // whether a number may be absent; then it becomes NaN
  std::uint64_t field_key;  // key with which an id column's values are hashed
};

struct Format {
  std::vector<Column> columns;
  std::string delimiter;  // one or two bytes
  bool quoted;            // whether fields may have CSV quotes: "a,b", with "" for a quote inside them
  std::string missing;    // text of an absent number, in addition to an empty field
  std::size_t max_line_bytes;
};

// The reason why one line is not a record.
struct Mistake {
  std::size_t line;    // counted from 0 within the block
  std::size_t column;  // counted from 1; 0 stands for the whole line
  std::string expected;
  std::string found;  // the field's text, cut to a readable length
  bool at_end;        // The line ended, so nothing was found.
};

// The content of a text. Of n records, the ids are [n, id columns] and the numbers [n, number columns], in column
// order; both vectors may be longer.
struct Block {
  std::vector<std::uint64_t> ids;
  std::vector<double> numbers;
  std::size_t records = 0;
  std::size_t lines = 0;
  std::vector<Mistake> mistakes;
};

class Parser {
 public:
  explicit Parser(Format format);

  // Parses all lines of the text; the last one need not end in a newline. Lines that are not records are left out and
  // reported. Parsing stops after `bad_allowed` + 1 of them.
  Block parse(std::string_view text, std::size_t bad_allowed) const;

  std::size_t id_columns() const { return id_columns_; }
  std::size_t number_columns() const { return number_columns_; }

 private:
  bool parse_line(std::string_view line, std::uint64_t* ids, double* numbers, Mistake& mistake) const;
  bool take_value(const Column& column, std::string_view value, std::uint64_t*& ids, double*& numbers,
                  Mistake& mistake) const;

  Format format_;
  std::size_t id_columns_ = 0;
  std::size_t number_columns_ = 0;
};

}  // namespace esd::text
