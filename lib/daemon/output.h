// Output: what a tool prints on stdout, in the four forms of -o: one record a line.
//
//   Printer out(flags.format, {"id", "rack", "state", "lag"});
//   out.row({id, rack, state, lag});          // text, numbers, bools, Bytes, JsonValue
//   out.flush();                              // the table is aligned here; the destructor does it too
//
//   print_object(flags.format, {{"table", name}, {"records", n}});      // one thing, not a list
//
// table: aligned columns under headings (an object: "name  value" lines); json: one object a line; tsv: no
// headings, tab, newline and backslash as \t \n \\; name: the first column alone, for `xargs` and `-`.
// Bytes outside [!-~ ] in a table or a name are shown as %XX.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lib/base/result.h"

namespace cantle::daemon {

enum class Format : uint8_t { table, json, tsv, name };
base::Result<Format> parse_format(std::string_view word);  // usage

struct Bytes {  // keys and values of records
  std::string value;
};
struct JsonValue {  // nested in json; shown as it is elsewhere
  std::string json;
};
struct Missing {};  // null in json, "-" in a table, empty elsewhere

class Cell {
 public:
  Cell(std::string v) : v_(std::move(v)) {}
  Cell(std::string_view v) : v_(std::string(v)) {}
  Cell(const char* v) : v_(std::string(v)) {}
  Cell(bool v) : v_(v) {}
  Cell(double v) : v_(v) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Cell(T v) : v_(static_cast<uint64_t>(v)) {}
  template <std::signed_integral T>
  Cell(T v) : v_(static_cast<int64_t>(v)) {}
  Cell(Bytes v) : v_(std::move(v)) {}
  Cell(JsonValue v) : v_(std::move(v)) {}
  Cell(Missing v) : v_(v) {}

  std::string plain() const;  // as a person reads it
  bool numeric() const;
  const auto& value() const { return v_; }

 private:
  std::variant<std::string, bool, double, uint64_t, int64_t, Bytes, JsonValue, Missing> v_;
};

class Printer {
 public:
  Printer(Format format, std::vector<std::string> columns);
  ~Printer();
  Printer(const Printer&) = delete;
  Printer& operator=(const Printer&) = delete;
  void row(std::vector<Cell> cells);  // as many as there are columns
  void flush();
  size_t rows() const { return count_; }

 private:
  Format format_;
  std::vector<std::string> columns_;
  std::vector<std::vector<Cell>> waiting_;  // table: until the widths are known
  size_t count_ = 0;
};

void print_object(Format format, const std::vector<std::pair<std::string, Cell>>& members);
// One line on stdout; exits 1 when stdout is gone (a closed pipe is not an error of ours: exits 0).
void print_line(std::string_view line);

// For tests: what print_* writes goes to `to` instead; null: stdout again.
void capture_output(std::string* to);

// Colour is allowed on stderr / stdout: a terminal, and NO_COLOR not set.
bool colour_allowed(int fd);

}  // namespace cantle::daemon
