// Frames of MessagePack-RPC: [0, msgid, method, [params]], [1, msgid, error, result], [2, method, [params]].
//
// The protocol has no length in front: the end of a message is found by walking over it. FrameScanner does
// that on a buffer that grows, goes on where it stopped (a byte at a time costs a byte at a time), and
// refuses what is too large before anybody has to hold it.
//
//   switch (scanner.scan(buffer, &frame)) {   // `buffer` begins where the frame begins
//     case Scan::complete:   handle(frame); buffer.remove_prefix(frame.size); scanner.reset(); ...
//     case Scan::incomplete: keep the buffer, append, scan again
//     case Scan::malformed:  scanner.problem()
//
// Invariants
//   * No allocation, whatever the input. A frame that declares more than kFrameMax is malformed at once.
//   * Views in a Frame point into `buffer`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/result.h"
#include "lib/wire/msgpack.h"

namespace cantle::wire {

constexpr size_t kFrameMax = size_t{8} << 20;
constexpr size_t kMethodMax = 64;

struct Frame {
  enum class Type : uint8_t { request = 0, response = 1, notification = 2 };
  Type type = Type::request;
  uint32_t msgid = 0;
  std::string_view method;
  std::string_view params;  // the one map; empty for []
  bool params_ok = true;    // false: well formed, but not [] or [map]
  std::string_view error;   // response: the encoded value; empty for nil
  std::string_view result;  // response: the encoded value
  size_t size = 0;          // bytes of the whole frame
};

enum class Scan : uint8_t { complete, incomplete, malformed };

class FrameScanner {
 public:
  FrameScanner() { left_[0] = 1; }
  Scan scan(std::string_view buffer, Frame* out);
  void reset();
  // The frame has at least this many bytes; grows while it is scanned.
  size_t size_at_least() const { return position_ + owed_; }
  std::string_view problem() const { return problem_; }
  // The id to answer a malformed request with; 0 when it did not come so far.
  uint32_t msgid() const { return msgid_; }

 private:
  Scan malformed(std::string_view problem);
  bool check_outer(const Head& head);
  bool check_element(const Head& head);
  Scan finish(std::string_view buffer, Frame* out) const;

  size_t position_ = 0;  // first byte not looked at; beyond the buffer inside a long string
  uint64_t owed_ = 1;    // values still to come, at all depths
  int depth_ = 0;
  uint64_t left_[kDepthMax + 1];  // of these at each depth; valid up to depth_
  uint32_t elements_ = 0;         // of the outer array
  size_t starts_[5];              // where those seen begin; one more, for the compiler to see that it fits
  uint32_t seen_ = 0;
  Frame::Type type_ = Frame::Type::request;
  uint32_t msgid_ = 0;
  std::string_view problem_;
};

// Appends whole frames. `params` and `result` are encoded maps; empty stands for an empty one.
void append_request(std::string& out, uint32_t msgid, std::string_view method, std::string_view params);
void append_notification(std::string& out, std::string_view method, std::string_view params);
void append_result(std::string& out, uint32_t msgid, std::string_view result);
void append_error(std::string& out, uint32_t msgid, const base::Error& error);

// The map {code, text, txnseq?, retry_after_ms?, detail?}. Codes local to a process become FAULTED.
std::string encode_error(const base::Error& error);
// Of any server: what is not our map becomes `faulted` with a text.
base::Error decode_error(std::string_view encoded);

}  // namespace cantle::wire
