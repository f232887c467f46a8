#include "lib/wire/frame.h"

#include <optional>

#include "lib/base/check.h"
#include "lib/base/utf8.h"
#include "lib/model/fields.h"
#include "lib/wire/codec.h"

namespace cantle::wire {
namespace {

constexpr uint32_t kRequestElements = 4;  // also of a response
constexpr uint32_t kNotificationElements = 3;

bool is_text(const Head& head) { return head.kind == Kind::str || head.kind == Kind::bin; }

struct WireError {
  Text code, text;
  std::optional<uint64_t> txnseq;
  std::optional<uint32_t> retry_after_ms;
  std::optional<std::string> detail;
  CANTLE_FIELDS(code, text, txnseq, retry_after_ms, detail)
};

// What a peer may react to; the rest is between this process and its operator.
base::Code code_on_wire(base::Code code) { return code >= base::Code::io_error ? base::Code::faulted : code; }

}  // namespace

// Field by field: this is done for every message, and most of the object is scratch.
void FrameScanner::reset() {
  position_ = 0;
  owed_ = 1;
  depth_ = 0;
  left_[0] = 1;
  elements_ = seen_ = 0;
  msgid_ = 0;
  problem_ = {};
}

Scan FrameScanner::malformed(std::string_view problem) {
  problem_ = problem;
  return Scan::malformed;
}

// The head of the frame itself.
bool FrameScanner::check_outer(const Head& head) {
  if (head.kind != Kind::array) return false;
  elements_ = static_cast<uint32_t>(head.value);
  return head.value == kRequestElements || head.value == kNotificationElements;
}

// The head of one of its elements: refused as soon as it is seen.
bool FrameScanner::check_element(const Head& head) {
  switch (seen_) {
    case 0:
      if (head.kind != Kind::uint || head.value > 2) return false;
      type_ = static_cast<Frame::Type>(head.value);
      return (type_ == Frame::Type::notification) == (elements_ == kNotificationElements);
    case 1:
      if (type_ == Frame::Type::notification) return is_text(head) && head.value <= kMethodMax;
      if (head.kind != Kind::uint || head.value > UINT32_MAX) return false;
      msgid_ = static_cast<uint32_t>(head.value);
      return true;
    case 2:
      if (type_ == Frame::Type::request) return is_text(head) && head.value <= kMethodMax;
      if (type_ == Frame::Type::notification) return head.kind == Kind::array;
      return true;
    default: return type_ != Frame::Type::request || head.kind == Kind::array;
  }
}

Scan FrameScanner::scan(std::string_view buffer, Frame* out) {
  if (!problem_.empty()) return Scan::malformed;
  // In locals, and back at the end: this loop runs for every value of every message.
  size_t at = position_;
  uint64_t owed = owed_;
  int depth = depth_;
  const auto stop = [&](Scan outcome) {
    position_ = at;
    owed_ = owed;
    depth_ = depth;
    return outcome;
  };
  while (owed > 0) {
    if (at >= buffer.size()) return stop(Scan::incomplete);
    const auto head = parse_head(buffer.data() + at, buffer.size() - at);
    if (head.kind == Kind::bad) return malformed("not MessagePack");
    if (head.bytes == 0) return stop(Scan::incomplete);
    if (depth <= 1) {
      if (depth == 0 ? !check_outer(head) : !check_element(head)) return malformed("not a MessagePack-RPC message");
      if (depth == 1) starts_[seen_++] = at;
    }
    at += head.bytes;
    --owed;
    --left_[depth];
    if (head.kind >= Kind::array) {
      const uint64_t values = head.kind == Kind::map ? head.value * 2 : head.value;
      if (head.value > kElementsMax) return malformed("too many elements");
      if (depth == kDepthMax) return malformed("nested too deeply");
      left_[++depth] = values;
      owed += values;
    } else if (head.kind >= Kind::str) {  // str, bin, ext: at most 2^32 bytes, so this cannot overflow
      at += head.value;
    }
    // Each value that is owed has at least one byte.
    if (at + owed > kFrameMax) return malformed("larger than a frame may be");
    while (depth > 0 && left_[depth] == 0) --depth;
  }
  stop(Scan::incomplete);
  return at > buffer.size() ? Scan::incomplete : finish(buffer, out);  // it may end inside its last string
}

Scan FrameScanner::finish(std::string_view buffer, Frame* out) const {
  const auto element = [&](uint32_t i) {
    const auto end = i + 1 < seen_ ? starts_[i + 1] : position_;
    return std::string_view(buffer.data() + starts_[i], end - starts_[i]);
  };
  *out = Frame{};
  out->type = type_;
  out->msgid = msgid_;
  out->size = position_;
  if (type_ == Frame::Type::response) {
    const auto error = element(2);
    out->error = Reader(error).nil() ? std::string_view{} : error;
    out->result = element(3);
    return Scan::complete;
  }
  const uint32_t method = type_ == Frame::Type::request ? 2 : 1;
  CHECK(Reader(element(method)).text(&out->method));
  Reader params(element(method + 1));
  uint32_t count = 0;
  CHECK(params.array(&count));
  out->params_ok = count == 0 || (count == 1 && params.peek() == Kind::map);
  if (count == 1 && out->params_ok) out->params = params.rest();
  return Scan::complete;
}

void append_request(std::string& out, uint32_t msgid, std::string_view method, std::string_view params) {
  Writer w(out);
  w.array(kRequestElements);
  w.uint(static_cast<uint8_t>(Frame::Type::request));
  w.uint(msgid);
  w.str(method);
  w.array(1);
  if (params.empty())
    w.map(0);
  else
    w.raw(params);
}

void append_notification(std::string& out, std::string_view method, std::string_view params) {
  Writer w(out);
  w.array(kNotificationElements);
  w.uint(static_cast<uint8_t>(Frame::Type::notification));
  w.str(method);
  w.array(1);
  if (params.empty())
    w.map(0);
  else
    w.raw(params);
}

void append_result(std::string& out, uint32_t msgid, std::string_view result) {
  Writer w(out);
  w.array(kRequestElements);
  w.uint(static_cast<uint8_t>(Frame::Type::response));
  w.uint(msgid);
  w.nil();
  if (result.empty())
    w.map(0);
  else
    w.raw(result);
}

void append_error(std::string& out, uint32_t msgid, const base::Error& error) {
  Writer w(out);
  w.array(kRequestElements);
  w.uint(static_cast<uint8_t>(Frame::Type::response));
  w.uint(msgid);
  w.raw(encode_error(error));
  w.nil();
}

std::string encode_error(const base::Error& error) {
  WireError wire;
  wire.code.value = base::code_name(code_on_wire(error.code));
  wire.text.value = base::make_utf8(error.text);  // str: strict clients refuse other bytes
  if (error.txnseq != 0) wire.txnseq = error.txnseq;
  if (error.retry_after_ms != 0) wire.retry_after_ms = error.retry_after_ms;
  if (!error.detail.empty()) wire.detail = error.detail;
  return encode(wire);
}

base::Error decode_error(std::string_view encoded) {
  std::string_view text;
  if (Reader(encoded).text(&text)) return {base::Code::faulted, std::string(text)};
  auto wire = decode<WireError>(encoded);
  if (!wire) return {base::Code::faulted, "the server failed and said so in a form not understood"};
  base::Error error(base::code_from_name(wire->code.value), std::move(wire->text.value));
  error.txnseq = wire->txnseq.value_or(0);
  error.retry_after_ms = wire->retry_after_ms.value_or(0);
  error.detail = std::move(wire->detail).value_or("");
  return error;
}

}  // namespace cantle::wire
