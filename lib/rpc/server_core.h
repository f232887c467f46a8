// The inside of a Server, shared by its sessions. Internal to lib/rpc.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lib/io/listener.h"
#include "lib/io/log_gate.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"
#include "lib/rpc/server.h"
#include "lib/rpc/session.h"

namespace cantle::rpc {

struct MethodHash {
  using is_transparent = void;
  size_t operator()(std::string_view method) const { return std::hash<std::string_view>{}(method); }
};
template <class T>
using MethodMap = std::unordered_map<std::string, T, MethodHash, std::equal_to<>>;

struct Server::Core {
  Core(io::Loop& l, Identity i, ServerLimits limits_given);
  ~Core();

  io::Loop& loop;
  Identity identity;
  ServerLimits limits;
  Counters counters;
  MethodMap<Handler> handlers;
  MethodMap<NotifyHandler> notify_handlers;
  std::function<void(uint64_t)> gone;
  std::vector<std::unique_ptr<io::Listener>> listeners;
  std::map<uint64_t, std::shared_ptr<Session>> sessions;
  std::shared_ptr<std::vector<std::shared_ptr<Session>>> ready =
      std::make_shared<std::vector<std::shared_ptr<Session>>>();
  uint64_t next_number = 1;
  size_t inflight = 0;
  size_t input_bytes = 0;  // of unfinished frames
  io::Timer sweeper, drain_timer;
  std::function<void()> drained;
  bool draining = false;
  io::LogGate malformed_gate;

  base::Status add_listener(const std::function<base::Status(io::Listener&)>& open);
  void accept(std::unique_ptr<io::Conn> conn);
  void closed(Session& session);
  // When all have been read of whom something came. A system call between two requests costs the second what the first
  // had brought near: with 64 connections, a third of a get.
  void serve_later(std::shared_ptr<Session> session);
  void sweep();
  void begin_drain(base::Duration limit, std::function<void()> done);
  void answered();  // a request has its answer
  void check_drained();
  void end_drain();
};

}  // namespace cantle::rpc
