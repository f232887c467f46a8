// lincheck: is the history that a bench has written linearizable? (test/support/linear.h)
//
//   lincheck [--states N] FILE...        - is stdin; several files are one history
//
// One operation a line, as JSON; `partc bench --history FILE` writes such files:
//
//   {"process":3,"op":"put","key":"k1","value":"v","begin_ns":1,"end_ns":2,"outcome":"ok"}
//
//   op        get, put, del, cas, incr, append
//   value     put, cas: the value; append: what is added; incr: the number added, as a number or as text; get: what was
//             read, or null for absence, if there is no `result`
//   expect    cas: the value that it asked for, null for absence. One by version cannot be checked
//   result    get: what was read, null for absence; incr: the new number, as a number or as text, null if it is not
//   known;
//             cas: false if it was refused because the record was not as expected, otherwise true, null or not there
//   outcome   ok, fail (it did not happen) or unknown (it may have, or will: end_ns and result mean nothing)
//
// Bytes that are not UTF-8 stand in base64 in key_b64, value_b64, expect_b64, result_b64, and count instead of the
// member without the suffix. Other members are not looked at. An operation that was begun and has no answer must be
// there, as unknown; what was in the store before must be there as puts that ended before the rest.
//
// Exit: 0 linearizable, 1 not, 2 bad input or usage (which file and line, and what), 3 undecided (--states, of one
// key).
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "lib/client/json.h"
#include "test/support/linear.h"

namespace {

using cantle::base::Code;
using cantle::base::fail;
using cantle::base::Result;
using cantle::base::Status;
using cantle::client::JsonMember;
using cantle::linear::Kind;
using cantle::linear::Operation;
using cantle::linear::Outcome;
using cantle::linear::Verdict;

constexpr int kExitLinearizable = 0, kExitViolated = 1, kExitBadInput = 2, kExitUndecided = 3;

template <class T>
std::optional<T> number(const std::string& text) {
  T n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return n;
}

class Line {
 public:
  static Result<Line> parse(const std::string& text) {
    Line line;
    TRY_ASSIGN(line.members_, cantle::client::parse_json_object(text));
    for (size_t i = 0; i < line.members_.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (line.members_[i].name == line.members_[j].name)
          return fail(Code::invalid, line.members_[i].name + " stands there twice");
    return line;
  }

  Result<Operation> operation() const {
    Operation o;
    TRY_ASSIGN(o.op, word<Kind>("op", {"get", "put", "del", "cas", "incr", "append"}));
    TRY_ASSIGN(o.outcome, word<Outcome>("outcome", {"ok", "fail", "unknown"}));
    TRY_ASSIGN(const auto key, text("key"));
    if (!key) return fail(Code::invalid, "key is null");
    o.key = *key;
    TRY_ASSIGN(o.process, integer<uint64_t>("process"));
    TRY_ASSIGN(o.begin, integer<int64_t>("begin_ns"));
    o.end = std::numeric_limits<int64_t>::max();
    if (o.outcome != Outcome::unknown) {
      TRY_ASSIGN(o.end, integer<int64_t>("end_ns"));
      if (o.end < o.begin) return fail(Code::invalid, "end_ns is before begin_ns");
    }
    TRY(fill(&o));
    return o;
  }

 private:
  const JsonMember* find(const std::string& name) const {
    for (const auto& m : members_)
      if (m.name == name) return &m;
    return nullptr;
  }
  bool has(const std::string& name) const { return find(name) != nullptr || find(name + "_b64") != nullptr; }
  static tl::unexpected<cantle::base::Error> wrong(const std::string& name, const std::string& what) {
    return fail(Code::invalid, name + " " + what);
  }

  template <class T>
  Result<T> word(const std::string& name, const std::vector<std::string>& words) const {
    const auto* m = find(name);
    if (m == nullptr) return wrong(name, "is missing");
    std::string all;
    for (size_t i = 0; i < words.size(); ++i) {
      if (m->kind == JsonMember::Kind::string && m->text == words[i]) return static_cast<T>(i);
      all += (i == 0 ? "" : ", ") + words[i];
    }
    return wrong(name, "is none of " + all);
  }
  template <class T>
  Result<T> integer(const std::string& name) const {
    const auto* m = find(name);
    if (m == nullptr) return wrong(name, "is missing");
    const auto n = number<T>(m->text);
    if (m->kind != JsonMember::Kind::number || !n) return wrong(name, "is no whole number that fits");
    return *n;
  }
  // Bytes, or none for null.
  Result<std::optional<std::string>> text(const std::string& name) const {
    if (const auto* m = find(name + "_b64")) {
      if (m->kind != JsonMember::Kind::string) return wrong(m->name, "is no text");
      auto bytes = cantle::client::from_base64(m->text);
      if (!bytes) return wrong(m->name, "is " + bytes.error().text);
      return std::optional(std::move(*bytes));
    }
    const auto* m = find(name);
    if (m == nullptr) return wrong(name, "is missing");
    if (m->kind == JsonMember::Kind::null) return std::optional<std::string>();
    if (m->kind != JsonMember::Kind::string) return wrong(name, "is neither text nor null");
    return std::optional(m->text);
  }
  // A signed 64-bit number, or none for null.
  Result<std::optional<std::string>> number_text(const std::string& name) const {
    const auto* m = find(name);
    if (m == nullptr) return wrong(name, "is missing");
    if (m->kind == JsonMember::Kind::null) return std::optional<std::string>();
    const auto n = number<int64_t>(m->text);
    if ((m->kind != JsonMember::Kind::number && m->kind != JsonMember::Kind::string) || !n)
      return wrong(name, "is no whole number that fits");
    return std::optional(std::to_string(*n));
  }

  Status fill(Operation* o) const {
    const bool answered = o->outcome == Outcome::ok;
    switch (o->op) {
      case Kind::get:
        if (answered) {
          TRY_ASSIGN(o->result, text(has("result") ? "result" : "value"));
        }
        break;
      case Kind::del: break;
      case Kind::cas: TRY(fill_cas(o)); [[fallthrough]];
      case Kind::put:
      case Kind::append: {
        TRY_ASSIGN(auto value, text("value"));
        if (!value) return wrong("value", "is null");
        o->input = std::move(*value);
        break;
      }
      case Kind::incr: {
        TRY_ASSIGN(auto by, number_text("value"));
        if (!by) return wrong("value", "is null");
        o->input = std::move(*by);
        if (answered && has("result")) {
          TRY_ASSIGN(o->result, number_text("result"));
        }
      }
    }
    return cantle::base::ok();
  }
  Status fill_cas(Operation* o) const {
    TRY_ASSIGN(o->expected, text("expect"));
    const auto* result = find("result");
    if (o->outcome != Outcome::ok || result == nullptr || result->kind == JsonMember::Kind::null)
      return cantle::base::ok();
    if (result->kind != JsonMember::Kind::boolean) return wrong("result", "of a cas is none of true, false, null");
    o->refused = result->text == "false";
    return cantle::base::ok();
  }

  std::vector<JsonMember> members_;
};

// The error begins with the file and the line.
Status read(const std::string& path, std::istream& in, std::vector<Operation>* history) {
  std::string text;
  for (uint64_t n = 1; std::getline(in, text); ++n) {
    const auto bad = [&](const std::string& what) {
      return fail(Code::invalid, path + ":" + std::to_string(n) + ": " + what);
    };
    if (in.eof()) return bad("the line does not end: the file was cut");
    const auto line = Line::parse(text);
    if (!line) return bad(line.error().text);
    auto o = line->operation();
    if (!o) return bad(o.error().text);
    history->push_back(std::move(*o));
  }
  if (in.bad()) return fail(Code::io_error, path + ": cannot be read: " + std::strerror(errno));
  return cantle::base::ok();
}

Status read_file(const std::string& path, std::vector<Operation>* history) {
  if (path == "-") return read("stdin", std::cin, history);
  std::ifstream in(path, std::ios::binary);
  if (!in) return fail(Code::io_error, path + ": cannot be opened: " + std::strerror(errno));
  return read(path, in, history);
}

int usage(const std::string& what) {
  std::fprintf(stderr, "lincheck: %s\nusage: lincheck [--states N] FILE...\n", what.c_str());
  return kExitBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files;
  cantle::linear::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--states") {
      const auto n = i + 1 < argc ? number<uint64_t>(argv[++i]) : std::nullopt;
      if (!n || *n == 0) return usage("--states: a number, at least 1");
      options.states_max = *n;
    } else if (word.size() > 1 && word[0] == '-') {
      return usage("unknown flag " + word);
    } else {
      files.push_back(word);
    }
  }
  if (files.empty()) return usage("no file");
  std::vector<Operation> history;
  for (const auto& path : files)
    if (const auto done = read_file(path, &history); !done) {
      std::fprintf(stderr, "lincheck: %s\n", done.error().text.c_str());
      return kExitBadInput;
    }
  const auto verdict = cantle::linear::check(history, options);
  switch (verdict.kind) {
    case Verdict::Kind::linearizable:
      std::printf("linearizable: %zu operations, %zu keys, %llu states\n", history.size(), verdict.keys,
                  static_cast<unsigned long long>(verdict.states));
      return kExitLinearizable;
    case Verdict::Kind::violated: std::printf("not linearizable: %s\n", verdict.text.c_str()); return kExitViolated;
    case Verdict::Kind::undecided: std::printf("undecided: %s\n", verdict.text.c_str()); return kExitUndecided;
  }
}
