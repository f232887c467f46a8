#include "cmd/partc/msgpack_json.h"

#include <algorithm>

#include "lib/base/bytes.h"
#include "lib/daemon/json.h"
#include "lib/wire/msgpack.h"

namespace cantle::partc {

namespace {

bool printable(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

bool convert(wire::Reader& in, daemon::Json& out, int depth) {
  if (depth > wire::kDepthMax) return false;
  bool flag = false;
  uint64_t u = 0;
  int64_t i = 0;
  double d = 0;
  std::string_view text;
  uint32_t n = 0;
  switch (in.peek()) {
    case wire::Kind::nil:
      in.nil();
      out.null();
      return true;
    case wire::Kind::boolean:
      if (!in.boolean(&flag)) return false;
      out.boolean(flag);
      return true;
    case wire::Kind::uint:
      if (!in.uint(&u)) return false;
      out.number(u);
      return true;
    case wire::Kind::sint:
      if (!in.sint(&i)) return false;
      out.number(i);
      return true;
    case wire::Kind::real:
      if (!in.real(&d)) return false;
      out.real(d);
      return true;
    case wire::Kind::str:
      if (!in.text(&text)) return false;
      out.text(text);
      return true;
    case wire::Kind::bin:
      if (!in.text(&text)) return false;
      out.text(printable(text) ? std::string(text) : base::to_hex(text));
      return true;
    case wire::Kind::array:
      if (!in.array(&n)) return false;
      out.array();
      for (; n > 0; --n)
        if (!convert(in, out, depth + 1)) return false;
      out.end();
      return true;
    case wire::Kind::map:
      if (!in.map(&n)) return false;
      out.object();
      for (; n > 0; --n) {
        if (!in.text(&text)) return false;
        out.key(text);
        if (!convert(in, out, depth + 1)) return false;
      }
      out.end();
      return true;
    case wire::Kind::ext:
    case wire::Kind::bad: return false;
  }
  return false;
}

}  // namespace

base::Result<std::string> msgpack_to_json(std::string_view bytes) {
  wire::Reader in(bytes);
  daemon::Json out;
  if (!convert(in, out, 0) || !in.done())
    return base::fail(base::Code::malformed, "the answer is not readable MessagePack");
  return out.str();
}

}  // namespace cantle::partc
