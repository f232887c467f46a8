// Session: one connection of a Server: finds the frames in what comes, calls the handlers, takes the answers.
// Internal to lib/rpc.
//
// Invariants
//   * `pending_` begins where a frame begins; `scanner` has looked at a prefix of it.
//   * While `held_` nothing is read or parsed; resume() goes on.
// Ownership: the Server's table and the Responders share it; `core` is null once the Server is gone, `conn_`
// once the connection is.
#pragma once

#include <memory>
#include <string>

#include "lib/io/conn.h"
#include "lib/rpc/server.h"
#include "lib/wire/frame.h"

namespace cantle::rpc {

struct Responder::Pending {
  Pending(std::shared_ptr<Session> s, uint32_t id) : session(std::move(s)), msgid(id) {}
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending();
  std::shared_ptr<Session> session;  // null once answered
  uint32_t msgid;
};

struct Session final : io::ConnHandler, std::enable_shared_from_this<Session> {
  Session(Server::Core& server, uint64_t number, std::unique_ptr<io::Conn> connection);

  void start() { conn_->start(*this); }
  bool connected() const { return conn_ && !conn_->finishing(); }
  void answer(uint32_t msgid, std::string_view result);
  void answer_error(uint32_t msgid, const base::Error& error);
  void notify(std::string_view method, std::string_view params);
  void sweep(base::Instant now);  // ends it when half a frame, or its answers, took too long
  void finish();                  // answers are sent, then it closes
  void drop();                    // at once
  void shut_if_idle();            // for a drain

  void serve();  // what it has read in this turn

  void on_bytes(io::Conn& conn, std::string_view bytes) override;
  void on_eof(io::Conn& conn) override;
  void on_drained(io::Conn& conn) override;
  void on_closed(io::Conn& conn, const base::Error& why) override;

  Server::Core* core;
  Caller caller;
  size_t inflight = 0;

 private:
  size_t consume(std::string_view bytes);  // how many bytes of whole frames were taken
  void consume_pending();
  void keep(std::string_view rest);
  bool must_wait();
  void hold();
  void resume();
  void resume_later();
  void dispatch(const wire::Frame& frame);
  void request(const wire::Frame& frame);
  void hello(const wire::Frame& frame);
  void reject(std::string_view problem);
  void say_last(const base::Error& error);
  void answered();
  void account();

  std::unique_ptr<io::Conn> conn_;
  wire::FrameScanner scanner_;
  std::string pending_;
  uint64_t bytes_swept_ = 0;  // in and out at the last sweep: without change the buffers are given back
  size_t accounted_ = 0;      // bytes of pending_ in the server's total
  base::Instant eof_since_{};
  base::Instant partial_since_{};  // when the frame in pending_ began to arrive
  bool partial_ = false;
  bool ready_ = false;  // will be served in this turn
  bool held_ = false, consuming_ = false, resume_queued_ = false, eof_ = false;
  uint64_t turn_ = 0;
  size_t turn_calls_ = 0;
};

}  // namespace cantle::rpc
