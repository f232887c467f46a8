// Log: one event a line on stderr, "key=value", a syslog severity in front for the journal.
//
//   log(Level::warn, "store", {{"at", "m2"}, {"txn", txn}, {"error", text}});
//   => <4>2026-11-28T03:20:39.123Z store at=m2 txn=… error="connection reset"     (the journal has the time itself)
//
// Levels: debug; info; notice: worth a line in normal operation; warn: we cope; error: an operator
// should look; fatal: cannot go on; panic: a bug.
// Threads: any; a line is written with one write(2). Values with spaces or quotes are quoted.
// It is the one global of the program.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace cantle::base {

enum class Level : uint8_t { panic = 0, fatal = 2, error = 3, warn = 4, notice = 5, info = 6, debug = 7 };

struct Field {
  std::string_view key;
  std::string value;
  Field(std::string_view k, std::string v) : key(k), value(std::move(v)) {}
  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : key(k), value(v) {}
  template <std::integral T>
  Field(std::string_view k, T v) : key(k), value(std::to_string(v)) {}
};

void log(Level level, std::string_view event, std::initializer_list<Field> fields = {});
// Lines less severe than `level` are dropped. Default: info.
void set_log_level(Level level);
bool log_enabled(Level level);
// "debug" … "panic"; false for a word that is none.
bool parse_level(std::string_view word, Level* level);

}  // namespace cantle::base
