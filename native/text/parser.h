// Delimited text -> columns. One call parses whole lines; the caller cuts the stream at line ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace esd::text {

enum class Kind { kSkip, kId, kInteger, kDecimal, kFlag };

struct Column {
  Kind kind;
  bool optional;            // a number may be absent: it becomes NaN
  std::uint64_t field_key;  // of an id column
};

struct Format {
  std::vector<Column> columns;
  std::string delimiter;  // one or two bytes
  bool quoted;            // CSV quotes: "a,b" and "" inside them
  std::string missing;    // an absent number is written like this, or as nothing
  std::size_t max_line_bytes;
};

// Why one line is not a record.
struct Mistake {
  std::size_t line;    // from 0 within the block
  std::size_t column;  // from 1; 0: the whole line
  std::string expected;
  std::string found;  // the field's text, cut to a readable length
  bool at_end;        // nothing was found: the line ended
};

// n records: ids [n, id columns] and numbers [n, number columns], row by row, in column order.
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

  // Parses all lines of the text; the last one need not end in a newline. Lines that are no records are left
  // out and reported; after `bad_allowed` + 1 of them parsing stops.
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
