// etcd's protocol, as much of it as a put and a linearizable range of one key take: gRPC over HTTP/2 (by nghttp2), its
// messages written by hand. Of its KV service:
//
//   PutRequest    1: bytes key, 2: bytes value
//   RangeRequest  1: bytes key                       (not serializable: linearizable)
//   RangeResponse 2: repeated KeyValue kvs
//   Maintenance.StatusResponse  1: header {2: member_id}, 4: leader
#include <nghttp2/nghttp2.h>

#include <cstring>
#include <memory>
#include <utility>

#include "test/peers/protocols.h"

namespace cantle::peers {
namespace {

constexpr int32_t kWindow = 1 << 24;
constexpr std::string_view kPut = "/etcdserverpb.KV/Put", kRange = "/etcdserverpb.KV/Range";

void append_varint(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out.push_back(static_cast<char>(v | 0x80));
  out.push_back(static_cast<char>(v));
}
void append_bytes_field(std::string& out, uint32_t field, std::string_view bytes) {
  append_varint(out, field << 3 | 2);
  append_varint(out, bytes.size());
  out.append(bytes);
}

// One call under way: a message out, a message in.
struct Call {
  uint32_t tag = 0;
  std::string out;  // with gRPC's five bytes in front
  size_t sent = 0;
  std::string in;
  std::string status;  // gRPC's, from the trailers
};

// Calls over one connection; bytes in, bytes out.
class Grpc {
 public:
  Grpc() {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_client_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindow},
                                               {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}};
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, 2);
    nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kWindow);
  }
  ~Grpc() { nghttp2_session_del(session_); }
  Grpc(const Grpc&) = delete;
  Grpc& operator=(const Grpc&) = delete;

  void begin(Call& call, std::string_view path, std::string_view message) {
    call.out.assign(1, '\0');  // not compressed
    for (int shift = 24; shift >= 0; shift -= 8) call.out.push_back(static_cast<char>(message.size() >> shift));
    call.out.append(message);
    call.sent = 0;
    call.in.clear();
    call.status.clear();
    const nghttp2_nv headers[] = {
        pair(":method", "POST"),           pair(":scheme", "http"), pair(":path", path),
        pair(":authority", "127.0.0.1"),   pair("te", "trailers"),  pair("content-type", "application/grpc"),
        pair("user-agent", "cantle-peers")};
    nghttp2_data_provider body{};
    body.source.ptr = &call;
    body.read_callback = read_body;
    nghttp2_submit_request(session_, nullptr, headers, sizeof headers / sizeof headers[0], &body, &call);
  }
  void write(std::string* out) {
    const uint8_t* data = nullptr;
    for (ssize_t n = 0; (n = nghttp2_session_mem_send(session_, &data)) > 0;)
      out->append(reinterpret_cast<const char*>(data), static_cast<size_t>(n));
  }
  // Calls that ended.
  base::Result<std::vector<Call*>> read(std::string_view bytes) {
    const auto n = nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    if (n < 0) return base::fail(base::Code::malformed, std::string("etcd: ") + nghttp2_strerror(static_cast<int>(n)));
    return std::exchange(ended_, {});
  }

 private:
  static nghttp2_nv pair(std::string_view name, std::string_view value) {
    const auto bytes = [](std::string_view s) { return reinterpret_cast<uint8_t*>(const_cast<char*>(s.data())); };
    return {bytes(name), bytes(value), name.size(), value.size(),
            NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
  }
  static Call* call_of(nghttp2_session* session, int32_t stream) {
    return static_cast<Call*>(nghttp2_session_get_stream_user_data(session, stream));
  }
  static ssize_t read_body(nghttp2_session*, int32_t, uint8_t* to, size_t room, uint32_t* flags,
                           nghttp2_data_source* source, void*) {
    auto& call = *static_cast<Call*>(source->ptr);
    const size_t n = std::min(room, call.out.size() - call.sent);
    std::memcpy(to, call.out.data() + call.sent, n);
    call.sent += n;
    if (call.sent == call.out.size()) *flags |= NGHTTP2_DATA_FLAG_EOF;
    return static_cast<ssize_t>(n);
  }
  static int on_header(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
                       const uint8_t* text, size_t text_size, uint8_t, void*) {
    if (std::string_view(reinterpret_cast<const char*>(name), name_size) != "grpc-status") return 0;
    if (auto* call = call_of(session, frame->hd.stream_id))
      call->status.assign(reinterpret_cast<const char*>(text), text_size);
    return 0;
  }
  static int on_data(nghttp2_session* session, uint8_t, int32_t stream, const uint8_t* data, size_t size, void*) {
    if (auto* call = call_of(session, stream)) call->in.append(reinterpret_cast<const char*>(data), size);
    return 0;
  }
  static int on_close(nghttp2_session* session, int32_t stream, uint32_t, void* self) {
    if (auto* call = call_of(session, stream)) static_cast<Grpc*>(self)->ended_.push_back(call);
    return 0;
  }

  nghttp2_session* session_ = nullptr;
  std::vector<Call*> ended_;
};

base::Result<std::string_view> message_of(const Call& call) {
  if (call.status != "0") return base::fail(base::Code::unavailable, "etcd: gRPC status '" + call.status + "'");
  if (call.in.size() < 5) return base::fail(base::Code::malformed, "etcd: an answer without a message");
  return std::string_view(call.in).substr(5);
}

class Etcd final : public Protocol {
 public:
  void begin(std::string* out) override { grpc_.write(out); }

  void request(Op op, uint64_t key, uint32_t tag, std::string*) override {
    while (calls_.size() <= tag) calls_.push_back(std::make_unique<Call>());
    auto& call = *calls_[tag];
    call.tag = tag;
    key_.clear();
    append_key(key_, key);
    message_.clear();
    append_bytes_field(message_, 1, key_);
    if (op == Op::put) append_bytes_field(message_, 2, value_);
    get_ = op == Op::get;
    grpc_.begin(call, get_ ? kRange : kPut, message_);
  }
  void sent(std::string* out) override { grpc_.write(out); }

  base::Status take(std::string_view bytes, std::vector<uint32_t>* done, std::string* out) override {
    TRY_ASSIGN(const auto ended, grpc_.read(bytes));
    for (const auto* call : ended) {
      TRY_ASSIGN(const auto message, message_of(*call));
      if (get_ && message.size() < kValueSize) return base::fail(base::Code::not_found, "etcd: no such key");
      done->push_back(call->tag);
    }
    grpc_.write(out);
    return base::ok();
  }

 private:
  Grpc grpc_;
  std::vector<std::unique_ptr<Call>> calls_;  // by tag
  const std::string value_ = std::string(kValueSize, 'v');
  std::string key_, message_;
  bool get_ = false;
};

}  // namespace

MakeProtocol etcd_protocol() {
  return [] { return std::make_unique<Etcd>(); };
}

std::optional<std::string> etcd_call(uint16_t port, const std::string& path) {
  Grpc grpc;
  Call call;
  grpc.begin(call, path, "");
  std::string out;
  grpc.write(&out);
  bool ended = false;
  size_t seen = 0;
  exchange(port, out, 1, [&](std::string_view in) {
    const auto done = grpc.read(in.substr(seen));
    seen = in.size();
    ended = done && !done->empty();
    return !done || ended;
  });
  const auto message = message_of(call);
  if (!ended || !message) return std::nullopt;
  return std::string(*message);
}

std::optional<uint64_t> proto_number(std::string_view message, uint32_t field, uint32_t within) {
  const auto varint = [&]() -> uint64_t {
    uint64_t v = 0;
    for (int shift = 0; !message.empty() && shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(message[0]);
      message.remove_prefix(1);
      v |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) break;
    }
    return v;
  };
  while (!message.empty()) {
    const uint64_t key = varint();
    if ((key & 7) == 0) {
      const uint64_t v = varint();
      if (within == 0 && key >> 3 == field) return v;
    } else if ((key & 7) == 2) {
      const auto size = std::min<uint64_t>(varint(), message.size());
      if (within != 0 && key >> 3 == within) return proto_number(message.substr(0, size), field);
      message.remove_prefix(size);
    } else {
      break;  // not in what we ask for
    }
  }
  return std::nullopt;
}

}  // namespace cantle::peers
