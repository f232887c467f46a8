#include "lib/daemon/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "lib/base/bytes.h"
#include "lib/base/check.h"
#include "lib/daemon/exit.h"
#include "lib/daemon/json.h"

namespace cantle::daemon {
namespace {

std::string* g_capture = nullptr;

void write_stdout(std::string_view text) {
  if (g_capture) {
    g_capture->append(text);
    return;
  }
  while (!text.empty()) {
    const auto n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    // Whoever reads has seen enough: `| head` is no failure. Anything else is.
    if (n < 0) std::_Exit(errno == EPIPE ? kExitDone : kExitFailed);
    text.remove_prefix(static_cast<size_t>(n));
  }
}

std::string shown(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    if (c >= ' ' && c <= '~' && c != '%')
      out += c;
    else
      out += base::escape(std::string_view(&c, 1));
  }
  return out;
}

std::string tsv(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\t')
      out += "\\t";
    else if (c == '\n')
      out += "\\n";
    else if (c == '\\')
      out += "\\\\";
    else
      out += c;
  }
  return out;
}

// Characters, not bytes, so that columns of UTF-8 text align.
size_t width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

void json_member(Json& j, std::string_view name, const Cell& cell) {
  std::visit(Overloaded{[&](const std::string& v) { j.member(name, v); }, [&](bool v) { j.member(name, v); },
                        [&](double v) { j.member(name, v); }, [&](uint64_t v) { j.member(name, v); },
                        [&](int64_t v) { j.member(name, v); }, [&](const Bytes& v) { j.bytes(name, v.value); },
                        [&](const JsonValue& v) { j.key(name).raw(v.json); }, [&](Missing) { j.key(name).null(); }},
             cell.value());
}

bool missing(const Cell& cell) { return std::holds_alternative<Missing>(cell.value()); }

std::string tsv_cell(const Cell& cell) {
  if (const auto* bytes = std::get_if<Bytes>(&cell.value())) return tsv(bytes->value);
  return missing(cell) ? "" : tsv(cell.plain());
}

std::string table_cell(const Cell& cell) { return missing(cell) ? "-" : cell.plain(); }

std::string padded(const std::string& text, size_t to, bool right) {
  const auto w = width(text);
  const std::string fill(to > w ? to - w : 0, ' ');
  return right ? fill + text : text + fill;
}

}  // namespace

base::Result<Format> parse_format(std::string_view word) {
  if (word == "table") return Format::table;
  if (word == "json") return Format::json;
  if (word == "tsv") return Format::tsv;
  if (word == "name") return Format::name;
  return base::fail(base::Code::usage, "output form '" + std::string(word) + "': one of table, json, tsv, name");
}

std::string Cell::plain() const {
  return std::visit(
      Overloaded{[](const std::string& v) { return v; }, [](bool v) { return std::string(v ? "yes" : "no"); },
                 [](double v) {
                   char buffer[32];
                   std::snprintf(buffer, sizeof buffer, "%.6g", v);
                   return std::string(buffer);
                 },
                 [](uint64_t v) { return std::to_string(v); }, [](int64_t v) { return std::to_string(v); },
                 [](const Bytes& v) { return shown(v.value); }, [](const JsonValue& v) { return v.json; },
                 [](Missing) { return std::string(); }},
      v_);
}

bool Cell::numeric() const {
  return std::holds_alternative<uint64_t>(v_) || std::holds_alternative<int64_t>(v_) ||
         std::holds_alternative<double>(v_);
}

Printer::Printer(Format format, std::vector<std::string> columns) : format_(format), columns_(std::move(columns)) {}
Printer::~Printer() { flush(); }

void Printer::row(std::vector<Cell> cells) {
  CHECK(cells.size() == columns_.size());
  ++count_;
  switch (format_) {
    case Format::table: waiting_.push_back(std::move(cells)); return;
    case Format::json: {
      Json j;
      j.object();
      for (size_t i = 0; i < cells.size(); ++i) json_member(j, columns_[i], cells[i]);
      return print_line(j.end().str());
    }
    case Format::tsv: {
      std::string line;
      for (size_t i = 0; i < cells.size(); ++i) line += (i == 0 ? "" : "\t") + tsv_cell(cells[i]);
      return print_line(line);
    }
    case Format::name: return print_line(cells.front().plain());
  }
}

void Printer::flush() {
  if (waiting_.empty()) return;
  std::vector<size_t> widths;
  for (const auto& name : columns_) widths.push_back(width(name));
  for (const auto& cells : waiting_)
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], width(table_cell(cells[i])));
  std::string text;
  const auto add_line = [&](const auto& cell, const auto& is_right) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) line += (i == 0 ? "" : "  ") + padded(cell(i), widths[i], is_right(i));
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  const auto& first = waiting_.front();
  add_line([&](size_t i) { return columns_[i]; }, [&](size_t i) { return first[i].numeric(); });
  for (const auto& cells : waiting_)
    add_line([&](size_t i) { return table_cell(cells[i]); }, [&](size_t i) { return cells[i].numeric(); });
  waiting_.clear();
  write_stdout(text);
}

void print_object(Format format, const std::vector<std::pair<std::string, Cell>>& members) {
  switch (format) {
    case Format::json: {
      Json j;
      j.object();
      for (const auto& [name, cell] : members) json_member(j, name, cell);
      return print_line(j.end().str());
    }
    case Format::name:
      if (!members.empty()) print_line(members.front().second.plain());
      return;
    case Format::tsv:
      for (const auto& [name, cell] : members) print_line(tsv(name) + "\t" + tsv_cell(cell));
      return;
    case Format::table: {
      size_t longest = 0;
      for (const auto& [name, cell] : members) longest = std::max(longest, width(name));
      for (const auto& [name, cell] : members) print_line(padded(name, longest, false) + "  " + table_cell(cell));
    }
  }
}

void print_line(std::string_view line) { write_stdout(std::string(line) + "\n"); }
void capture_output(std::string* to) { g_capture = to; }

bool colour_allowed(int fd) {
  const char* no = std::getenv("NO_COLOR");
  return isatty(fd) == 1 && (no == nullptr || *no == '\0');
}

}  // namespace cantle::daemon
