// Codec: structs with CANTLE_FIELDS to MessagePack maps and back.
//
//   std::string bytes = wire::encode(message);
//   TRY_ASSIGN(const auto message, wire::decode<model::PushWrite>(bytes));
//
// | C++                                     | MessagePack          |
// |-----------------------------------------|----------------------|
// | struct with CANTLE_FIELDS               | map, keys str        |
// | base::Nothing                           | empty map            |
// | bool; unsigned; signed; double          | bool; uint; int; float |
// | enum, Number<> (Lsn, TxnSeq, …)         | uint                 |
// | std::string, Id128<>, Version, array<uint8_t, N>, Hash128 | bin |
// | ServerId, wire::Text                    | str                  |
// | vector; map<string, T>                  | array; map           |
// | optional                                | left out of a struct when empty, else nil or the value |
// | string_view, wire::Raw                  | decoding: a view into the input, which must outlive it |
//
// Invariants
//   * Unknown fields are passed over and counted (unknown_fields()); missing ones keep their default.
//   * str and bin are taken for one another. A wrong type, a number out of range, an id of a wrong length,
//     trailing bytes, more than kFieldsMax fields: malformed, with the path of the field in the text.
//   * A list of a type that has a kListMax is no longer than that: malformed, before any of it is kept.
//   * What an enum's number means is not checked here: its owner does.
//
// Include it in .cc files only. Another type gets overloads of put() and get() found through its namespace.
// Threads: any.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lib/base/bytes.h"
#include "lib/base/result.h"
#include "lib/model/ids.h"
#include "lib/model/version.h"
#include "lib/wire/msgpack.h"

namespace cantle::wire {

constexpr uint32_t kFieldsMax = 256;  // in one map that stands for a struct
constexpr size_t kReserveMax = 1024;  // elements reserved on a peer's word

// A string that is text: str on the wire.
struct Text {
  std::string value;
  friend bool operator==(const Text&, const Text&) = default;
};
// One encoded value, passed through as it is. Decoding: a view into the input.
struct Raw {
  std::string_view bytes;
};

// Fields ignored since the start, in this process.
uint64_t unknown_fields();

namespace codec {

struct AnyVisitor {
  template <class F>
  void operator()(const char*, F&) const {}
};
template <class T>
concept Fields = requires(T& t, AnyVisitor v) {
  t.each_field(v);
};

// A type that says how long a list of it may be.
template <class T>
concept Limited = requires {
  { T::kListMax } -> std::convertible_to<size_t>;
};

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

void count_unknown(uint64_t fields);

// Reads values and remembers the first thing that was wrong.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : in(bytes) {}
  Reader in;
  // Always false, so that callers can say `return d.wrong("…")`.
  bool wrong(std::string_view expected);
  bool bad(std::string text);
  bool inside(std::string_view name);  // puts "name." in front of the path of what was wrong
  base::Error error() const;

 private:
  std::string path_, text_;
};

// The fields of one map, in whatever order they come: those that come in the order asked are not stored.
class FieldFinder {
 public:
  // False: not a map, or too many fields.
  bool open(Decoder& d);
  // Moves `d.in` to the value of `name`; false when there is none, or when the input is broken.
  bool find(Decoder& d, std::string_view name, Reader* after);
  // Puts the position back where the map goes on.
  void close_value(Decoder& d, const Reader& after);
  bool finish(Decoder& d);
  bool broken() const { return broken_; }

 private:
  struct Aside {
    std::string_view key, value;
    bool taken = false;
  };
  bool find_aside(Decoder& d, std::string_view name, Reader* after);
  std::vector<Aside> aside_;
  uint32_t left_ = 0;
  bool from_aside_ = false;
  bool broken_ = false;
};

}  // namespace codec

// --- writing ------------------------------------------------------------------------------------

inline void put(Writer& w, bool v) { w.boolean(v); }
template <std::unsigned_integral T>
requires(!std::same_as<T, bool>) void put(Writer& w, T v) { w.uint(v); }
template <std::signed_integral T>
void put(Writer& w, T v) {
  w.sint(v);
}
inline void put(Writer& w, double v) { w.real(v); }
template <class T>
requires std::is_enum_v<T>
void put(Writer& w, T v) { w.uint(static_cast<uint64_t>(v)); }
inline void put(Writer& w, const std::string& v) { w.bin(v); }
inline void put(Writer& w, std::string_view v) { w.bin(v); }
inline void put(Writer& w, const Text& v) { w.str(v.value); }
inline void put(Writer& w, const Raw& v) { w.raw(v.bytes.empty() ? std::string_view("\xc0", 1) : v.bytes); }
inline void put(Writer& w, const model::ServerId& v) { w.str(v.name); }
inline void put(Writer& w, const model::Version& v) { w.bin(v.view()); }
template <class Tag>
void put(Writer& w, const model::Id128<Tag>& v) {
  w.bin(v.view());
}
template <class Tag, class Int>
void put(Writer& w, const model::Number<Tag, Int>& v) {
  w.uint(v.value);
}
template <size_t N>
void put(Writer& w, const std::array<uint8_t, N>& v) {
  w.bin({reinterpret_cast<const char*>(v.data()), N});
}
void put(Writer& w, const base::Hash128& v);
inline void put(Writer& w, const base::Nothing&) { w.map(0); }
template <class T>
void put(Writer& w, const std::optional<T>& v);
template <class T>
void put(Writer& w, const std::vector<T>& v);
template <class K, class T>
void put(Writer& w, const std::map<K, T>& v);
template <codec::Fields T>
void put(Writer& w, const T& v);

template <class T>
void put(Writer& w, const std::optional<T>& v) {
  if (v)
    put(w, *v);
  else
    w.nil();
}
template <class T>
void put(Writer& w, const std::vector<T>& v) {
  w.array(v.size());
  for (const auto& item : v) put(w, static_cast<const T&>(item));
}
template <class K, class T>
void put(Writer& w, const std::map<K, T>& v) {
  w.map(v.size());
  for (const auto& [key, value] : v) {
    put(w, key);
    put(w, value);
  }
}
template <codec::Fields T>
void put(Writer& w, const T& v) {
  size_t count = 0;
  v.each_field([&](const char*, const auto& field) {
    if constexpr (codec::is_optional<std::remove_cvref_t<decltype(field)>>)
      count += field.has_value() ? 1 : 0;
    else
      ++count;
  });
  w.map(count);
  v.each_field([&](const char* name, const auto& field) {
    if constexpr (codec::is_optional<std::remove_cvref_t<decltype(field)>>)
      if (!field) return;
    w.str(name);
    put(w, field);
  });
}

// --- reading ------------------------------------------------------------------------------------

template <class Int>
bool get_number(codec::Decoder& d, Int& v) {
  uint64_t wide = 0;
  if (!d.in.uint(&wide)) return d.wrong("unsigned integer");
  if (wide > std::numeric_limits<Int>::max()) return d.bad("number out of range: " + std::to_string(wide));
  v = static_cast<Int>(wide);
  return true;
}

bool get(codec::Decoder& d, bool& v);
bool get(codec::Decoder& d, double& v);
bool get(codec::Decoder& d, std::string& v);
bool get(codec::Decoder& d, std::string_view& v);
bool get(codec::Decoder& d, Text& v);
bool get(codec::Decoder& d, Raw& v);
bool get(codec::Decoder& d, model::ServerId& v);
bool get(codec::Decoder& d, base::Hash128& v);
bool get(codec::Decoder& d, base::Nothing& v);
bool get_bytes(codec::Decoder& d, uint8_t* to, size_t size);  // bin of exactly that size

template <std::unsigned_integral T>
requires(!std::same_as<T, bool>) bool get(codec::Decoder& d, T& v) { return get_number(d, v); }
template <std::signed_integral T>
bool get(codec::Decoder& d, T& v) {
  int64_t wide = 0;
  if (!d.in.sint(&wide)) return d.wrong("integer");
  if (wide < std::numeric_limits<T>::min() || wide > std::numeric_limits<T>::max())
    return d.bad("number out of range: " + std::to_string(wide));
  v = static_cast<T>(wide);
  return true;
}
template <class T>
requires std::is_enum_v<T>
bool get(codec::Decoder& d, T& v) {
  std::underlying_type_t<T> number{};
  if (!get_number(d, number)) return false;
  v = static_cast<T>(number);
  return true;
}
inline bool get(codec::Decoder& d, model::Version& v) { return get_bytes(d, v.bytes.data(), v.bytes.size()); }
template <class Tag>
bool get(codec::Decoder& d, model::Id128<Tag>& v) {
  return get_bytes(d, v.bytes.data(), v.bytes.size());
}
template <class Tag, class Int>
bool get(codec::Decoder& d, model::Number<Tag, Int>& v) {
  return get_number(d, v.value);
}
template <size_t N>
bool get(codec::Decoder& d, std::array<uint8_t, N>& v) {
  return get_bytes(d, v.data(), N);
}
template <class T>
bool get(codec::Decoder& d, std::optional<T>& v);
template <class T>
bool get(codec::Decoder& d, std::vector<T>& v);
template <class K, class T>
bool get(codec::Decoder& d, std::map<K, T>& v);
template <codec::Fields T>
bool get(codec::Decoder& d, T& v);

template <class T>
bool get(codec::Decoder& d, std::optional<T>& v) {
  if (d.in.nil()) {
    v.reset();
    return true;
  }
  return get(d, v.emplace());
}
template <class T>
bool get(codec::Decoder& d, std::vector<T>& v) {
  uint32_t count = 0;
  if (!d.in.array(&count)) return d.wrong("array");
  if constexpr (codec::Limited<T>)
    if (count > T::kListMax)
      return d.bad("a list of " + std::to_string(count) + "; the limit is " + std::to_string(T::kListMax));
  v.clear();
  v.reserve(count < kReserveMax ? count : kReserveMax);
  for (uint32_t i = 0; i < count; ++i) {
    T item{};
    if (!get(d, item)) return d.inside("[" + std::to_string(i) + "]");
    v.push_back(std::move(item));
  }
  return true;
}
template <class K, class T>
bool get(codec::Decoder& d, std::map<K, T>& v) {
  uint32_t count = 0;
  if (!d.in.map(&count)) return d.wrong("map");
  v.clear();
  for (uint32_t i = 0; i < count; ++i) {
    K key{};
    T value{};
    if (!get(d, key) || !get(d, value)) return d.inside("{" + std::to_string(i) + "}");
    if (!v.emplace(std::move(key), std::move(value)).second) return d.bad("a key stands there twice");
  }
  return true;
}
template <codec::Fields T>
bool get(codec::Decoder& d, T& v) {
  codec::FieldFinder finder;
  if (!finder.open(d)) return false;
  bool good = true;
  v.each_field([&](const char* name, auto& field) {
    if (!good) return;
    Reader after({});
    if (!finder.find(d, name, &after)) {
      good = !finder.broken();
      return;
    }
    if (!get(d, field)) {
      good = d.inside(name);
      return;
    }
    finder.close_value(d, after);
  });
  return good && finder.finish(d);
}

// --- the doors ----------------------------------------------------------------------------------

template <class T>
void encode_to(std::string& out, const T& value) {
  Writer w(out);
  put(w, value);
}
template <class T>
std::string encode(const T& value) {
  std::string out;
  encode_to(out, value);
  return out;
}
// An empty input stands for an empty map: a request without params.
template <class T>
base::Result<T> decode(std::string_view bytes) {
  codec::Decoder d(bytes.empty() ? std::string_view("\x80", 1) : bytes);
  base::Result<T> result(tl::in_place);
  if (!get(d, *result)) return base::fail(d.error());
  if (!d.in.done()) {
    d.bad("bytes behind the value");
    return base::fail(d.error());
  }
  return result;
}

}  // namespace cantle::wire
