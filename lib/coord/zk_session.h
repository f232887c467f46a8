// ZkSession: a session with a ZooKeeper ensemble, `zk://h1:p,h2:p[/chroot]`.
//
// Requests wait here until the session is connected, are handed to the library in order, and answered
// once. A read whose reply was lost is asked again until its deadline. A change whose reply was lost is
// outcome_unknown (S27): the library cannot say whether it was sent, so neither can we.
//
// The session is its own lease clock: ZooKeeper says "expired" only when it is reached again, so a cheap
// read every sixth of the timeout keeps last_confirmed(), and a handle that finds no server for twice
// the timeout is replaced, with the same session.
//
// Threads, ownership: as Session.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/coord/coord.h"
#include "lib/coord/zk_hosts.h"
#include "lib/coord/zk_link.h"
#include "lib/io/timer.h"

namespace cantle::coord::zk {

class ZkSession final : public Session, private LinkOwner {
 public:
  // `target`: the URL without zk://.
  static base::Result<std::unique_ptr<ZkSession>> open(io::Loop& loop, std::string_view target, base::Duration timeout,
                                                       base::Duration operation_timeout);
  ~ZkSession() override;

  void get(std::string path, Watch watch, Done<Node> done) override;
  void exists(std::string path, Watch watch, Done<Stat> done) override;
  void children(std::string path, Watch watch, Done<Children> done) override;
  void create(std::string path, std::string value, CreateMode mode, Done<std::string> done) override;
  void set(std::string path, std::string value, int32_t version, Done<Stat> done) override;
  void remove(std::string path, int32_t version, Done<base::Nothing> done) override;
  void multi(std::vector<Op> ops, Done<std::vector<OpResult>> done) override;
  void sync(std::string path, Done<base::Nothing> done) override;

  void on_event(std::function<void(Event)> handler) override { handler_ = std::move(handler); }
  bool connected() const override { return online_; }
  uint64_t session_id() const override { return last_id_; }
  base::Instant last_confirmed() const override { return last_confirmed_; }
  base::Duration timeout() const override { return granted_; }

 private:
  // What the library hands a completion, whatever its kind.
  struct Reply {
    int rc = 0;
    const char* data = nullptr;  // value or path
    int length = 0;
    const ::Stat* stat = nullptr;
    const String_vector* names = nullptr;
  };
  // The library's side of a request; freed by its completion, which comes exactly once.
  struct Call {
    ZkSession* session;
    uint64_t number;
    base::Instant sent;
  };
  using Send = std::function<int(zhandle_t*, Call*)>;
  struct Request {
    uint64_t number = 0;
    base::Instant deadline;
    bool change = false;
    Watch watch;  // becomes a watch of ours when the library has set it
    uint64_t watch_id = 0;
    bool waits_for_missing = false;  // exists(): set also where there is no znode
    size_t watch_bytes = 0;
    Send send;
    std::function<void(const Reply&)> answer;
    std::function<void(base::Error)> refuse;
    bool answered = false;  // the deadline was first; kept until the library is done with it
  };
  struct WatchEntry {
    Watch fire;
    size_t bytes = 0;
  };
  struct Multi;

  ZkSession(io::Loop& loop, Target target, base::Duration timeout, base::Duration operation_timeout);

  void link_connected() override;
  void link_lost() override;
  void link_expired() override;
  void link_watch_fired(uint64_t watch) override;

  void resolve_and_start(bool resume);
  void go_offline();
  void greet();
  void make_chroot(size_t upto);
  void go_online();
  void tick();
  void ping();
  void confirm(base::Instant sent);

  template <class T>
  void answer(Done<T> done, base::Result<T> result);
  void deliver(std::function<void()> fn);
  void emit(Event event);
  template <class T>
  using Convert = std::function<T(const Reply&)>;
  template <class T>
  Request make(bool change, const std::string& path, Convert<T> convert, Done<T> done);
  template <class T>
  void read(const std::string& path, Watch watch, std::function<Send(std::string full, void* watch)> send,
            Convert<T> convert, Done<T> done);
  template <class T>
  void change(const std::string& path, base::Status valid, Send send, Convert<T> convert, Done<T> done);
  void enqueue(Request request);
  void pump();
  void completed(Call* call, const Reply& reply);
  void requeue(Request request);
  void settle(Request request, const Reply& reply);
  bool hand_over(Request& request);
  void make_internal(std::function<int(zhandle_t*, Call*)> send, std::function<void(const Reply&, base::Instant)> then);
  void fire_all_watches();
  void check_deadlines();
  void arm_deadline();

  std::string full(const std::string& path) const {
    return target_.chroot.empty() ? path : path == "/" ? target_.chroot : target_.chroot + path;
  }
  std::string stripped(std::string path) const { return path.substr(target_.chroot.size()); }

  static void on_void(int rc, const void* data);
  static void on_stat(int rc, const ::Stat* stat, const void* data);
  static void on_data(int rc, const char* value, int length, const ::Stat* stat, const void* data);
  static void on_strings(int rc, const String_vector* names, const ::Stat* stat, const void* data);
  static void on_string(int rc, const char* value, const void* data);
  static void on_reply(const void* data, const Reply& reply);

  io::Loop& loop_;
  Target target_;
  base::Duration timeout_, granted_, operation_timeout_;
  std::function<void(Event)> handler_;
  bool online_ = false;
  uint64_t last_id_ = 0;
  std::optional<clientid_t> identity_;  // of the session, to go on with it through another handle
  base::Instant last_confirmed_;
  base::Instant offline_since_;
  std::deque<Request> waiting_;                                                    // not handed over, by number
  std::map<uint64_t, Request> sent_;                                               // with the library
  std::map<uint64_t, std::function<void(const Reply&, base::Instant)>> internal_;  // our own calls, likewise
  uint64_t next_number_ = 1;
  std::map<uint64_t, WatchEntry> watches_;
  size_t watch_bytes_ = 0;
  uint64_t next_watch_ = 1;
  std::shared_ptr<void> resolving_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  io::Timer tick_timer_, deadline_timer_, retry_timer_;
  Link link_;  // last: its end answers what is outstanding
};

}  // namespace cantle::coord::zk
