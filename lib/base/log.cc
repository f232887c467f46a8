#include "lib/base/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "lib/base/check.h"

namespace cantle::base {
namespace {

std::atomic<Level> g_level{Level::info};

bool plain(std::string_view value) {
  if (value.empty()) return false;
  for (const unsigned char c : value)
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7f) return false;
  return true;
}

void append_quoted(std::string& line, std::string_view value) {
  static constexpr char kHex[] = "0123456789abcdef";
  line += '"';
  for (const unsigned char c : value) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += static_cast<char>(c);
    } else if (c == '\n') {
      line += "\\n";
    } else if (c < ' ' || c == 0x7f) {
      line += "\\x";
      line += kHex[c >> 4];
      line += kHex[c & 15];
    } else {
      line += static_cast<char>(c);
    }
  }
  line += '"';
}

// UTC, for a file or a terminal; the journal puts its own before every line.
void append_time(std::string& line) {
  static const bool journal = std::getenv("JOURNAL_STREAM") != nullptr;
  if (journal) return;
  timespec now{};
  tm utc{};
  char text[40], milli[8];
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (::gmtime_r(&now.tv_sec, &utc) == nullptr || std::strftime(text, sizeof text, "%FT%T", &utc) == 0) return;
  std::snprintf(milli, sizeof milli, ".%03dZ ", static_cast<int>(now.tv_nsec / 1000000 % 1000));
  line.append(text).append(milli);
}

void write_all(std::string_view line) {
  while (!line.empty()) {
    const auto n = ::write(STDERR_FILENO, line.data(), line.size());
    if (n <= 0) return;  // Nobody listens; there is no other place to say it.
    line.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

void set_log_level(Level level) { g_level = level; }
bool log_enabled(Level level) { return level <= g_level.load(std::memory_order_relaxed); }

bool parse_level(std::string_view word, Level* level) {
  static constexpr std::pair<std::string_view, Level> kWords[] = {
      {"panic", Level::panic},   {"fatal", Level::fatal}, {"error", Level::error}, {"warn", Level::warn},
      {"notice", Level::notice}, {"info", Level::info},   {"debug", Level::debug}};
  for (const auto& [name, value] : kWords)
    if (name == word) {
      *level = value;
      return true;
    }
  return false;
}

void log(Level level, std::string_view event, std::initializer_list<Field> fields) {
  if (!log_enabled(level)) return;
  std::string line;
  line.reserve(128);
  line += '<';
  line += static_cast<char>('0' + static_cast<int>(level));
  line += '>';
  append_time(line);
  line += event;
  for (const auto& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    if (plain(field.value))
      line += field.value;
    else
      append_quoted(line, field.value);
  }
  line += '\n';
  write_all(line);
}

void check_failed(const char* what, const char* file, int line) {
  log(Level::panic, "check-failed", {{"what", what}, {"file", file}, {"line", line}});
  std::abort();
}

}  // namespace cantle::base
