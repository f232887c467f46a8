#include "lib/wire/codec.h"

#include <atomic>

namespace cantle::wire {
namespace {

std::atomic<uint64_t> g_unknown_fields{0};

}  // namespace

uint64_t unknown_fields() { return g_unknown_fields.load(std::memory_order_relaxed); }

namespace codec {

void count_unknown(uint64_t fields) { g_unknown_fields.fetch_add(fields, std::memory_order_relaxed); }

bool Decoder::wrong(std::string_view expected) {
  const auto kind = in.peek();
  const auto what = std::string(expected);
  // The right type, and refused all the same: it promises more than there is, or than may be.
  if (kind == Kind::bad || expected.find(kind_name(kind)) != std::string_view::npos)
    return bad("expected " + what + ", and it is cut short or too large");
  return bad("expected " + what + ", not " + std::string(kind_name(kind)));
}

bool Decoder::bad(std::string text) {
  if (text_.empty()) text_ = std::move(text);
  return false;
}

bool Decoder::inside(std::string_view name) {
  const bool join = !path_.empty() && path_[0] != '[' && path_[0] != '{';
  path_ = std::string(name) + (join ? "." : "") + path_;
  return false;
}

base::Error Decoder::error() const {
  return {base::Code::malformed, path_.empty() ? text_ : "field " + path_ + ": " + text_};
}

bool FieldFinder::open(Decoder& d) {
  if (!d.in.map(&left_)) return d.wrong("map");
  if (left_ > kFieldsMax) return d.bad("too many fields: " + std::to_string(left_));
  return true;
}

bool FieldFinder::find_aside(Decoder& d, std::string_view name, Reader* after) {
  for (auto& entry : aside_) {
    if (entry.taken || entry.key != name) continue;
    entry.taken = true;
    from_aside_ = true;
    *after = d.in;
    d.in = Reader(entry.value);
    return true;
  }
  return false;
}

bool FieldFinder::find(Decoder& d, std::string_view name, Reader* after) {
  if (!aside_.empty() && find_aside(d, name, after)) return true;
  while (left_ > 0) {
    std::string_view key;
    if (!d.in.text(&key)) {
      broken_ = true;
      return d.wrong("the name of a field");
    }
    --left_;
    if (key == name) {
      from_aside_ = false;
      return true;
    }
    Aside entry{key, {}};
    if (!d.in.skip(&entry.value)) {
      broken_ = true;
      d.bad("a value that is broken or nested too deeply");
      return d.inside(base::escape(key.substr(0, 64)));
    }
    aside_.push_back(entry);
  }
  return false;
}

void FieldFinder::close_value(Decoder& d, const Reader& after) {
  if (from_aside_) d.in = after;
}

bool FieldFinder::finish(Decoder& d) {
  uint64_t unknown = left_;
  for (const auto& entry : aside_) unknown += entry.taken ? 0 : 1;
  for (; left_ > 0; --left_) {
    std::string_view key;
    if (!d.in.text(&key)) return d.wrong("the name of a field");
    if (!d.in.skip()) return d.bad("a value that is broken or nested too deeply");
  }
  if (unknown > 0) count_unknown(unknown);
  return true;
}

}  // namespace codec

void put(Writer& w, const base::Hash128& v) {
  std::string bytes;
  base::put_u64_be(bytes, v.high);
  base::put_u64_be(bytes, v.low);
  w.bin(bytes);
}

bool get(codec::Decoder& d, bool& v) { return d.in.boolean(&v) || d.wrong("bool"); }
bool get(codec::Decoder& d, double& v) { return d.in.real(&v) || d.wrong("number"); }
bool get(codec::Decoder& d, std::string_view& v) { return d.in.text(&v) || d.wrong("bin or str"); }

bool get(codec::Decoder& d, std::string& v) {
  std::string_view view;
  if (!get(d, view)) return false;
  v.assign(view);
  return true;
}

bool get(codec::Decoder& d, Text& v) { return get(d, v.value); }
bool get(codec::Decoder& d, model::ServerId& v) { return get(d, v.name); }

bool get(codec::Decoder& d, Raw& v) {
  return d.in.skip(&v.bytes) || d.bad("a value that is broken or nested too deeply");
}

bool get(codec::Decoder& d, base::Nothing&) {
  uint32_t count = 0;
  if (!d.in.map(&count)) return d.wrong("map");
  for (uint32_t i = 0; i < count; ++i)
    if (!d.in.skip() || !d.in.skip()) return d.bad("a value that is broken or nested too deeply");
  codec::count_unknown(count);
  return true;
}

bool get_bytes(codec::Decoder& d, uint8_t* to, size_t size) {
  std::string_view view;
  if (!get(d, view)) return false;
  if (view.size() != size)
    return d.bad("expected " + std::to_string(size) + " bytes, not " + std::to_string(view.size()));
  std::memcpy(to, view.data(), size);
  return true;
}

bool get(codec::Decoder& d, base::Hash128& v) {
  uint8_t bytes[16];
  if (!get_bytes(d, bytes, sizeof bytes)) return false;
  v.high = base::get_u64_be(bytes);
  v.low = base::get_u64_be(bytes + 8);
  return true;
}

}  // namespace cantle::wire
