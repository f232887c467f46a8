// FileSession: a session of the embedded backend, `file:///dir`.
//
// Reads run on the loop, in LMDB read transactions, which wait for nobody. Changes go to the process's
// writer thread. Requests of one session take effect in the order they were made, as with ZooKeeper: a
// read waits for the changes before it. Watches compare what they saw with what is there, whenever the
// bell rings and once a heartbeat.
//
// Threads, ownership: as Session.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/coord/coord.h"
#include "lib/coord/file_liveness.h"
#include "lib/coord/file_tree.h"
#include "lib/coord/file_writer.h"
#include "lib/io/timer.h"

struct uv_poll_s;

namespace cantle::coord::file {

class FileSession final : public Session {
 public:
  static base::Result<std::unique_ptr<FileSession>> open(io::Loop& loop, const std::string& dir, base::Duration timeout,
                                                         base::Duration operation_timeout);
  ~FileSession() override;

  void get(std::string path, Watch watch, Done<Node> done) override;
  void exists(std::string path, Watch watch, Done<Stat> done) override;
  void children(std::string path, Watch watch, Done<Children> done) override;
  void create(std::string path, std::string value, CreateMode mode, Done<std::string> done) override;
  void set(std::string path, std::string value, int32_t version, Done<Stat> done) override;
  void remove(std::string path, int32_t version, Done<base::Nothing> done) override;
  void multi(std::vector<Op> ops, Done<std::vector<OpResult>> done) override;
  void sync(std::string path, Done<base::Nothing> done) override;

  void on_event(std::function<void(Event)> handler) override { handler_ = std::move(handler); }
  bool connected() const override { return connected_; }
  uint64_t session_id() const override { return last_id_; }
  base::Instant last_confirmed() const override { return last_confirmed_; }
  base::Duration timeout() const override { return timeout_; }

 private:
  // How the writer thread reaches the loop; emptied when the session dies.
  struct Port {
    std::mutex mutex;
    io::Loop* loop = nullptr;
    FileSession* session = nullptr;  // the loop's thread only
  };
  struct Request {
    uint64_t number = 0;
    base::Instant deadline;
    bool change = false;
    std::function<void()> look;                              // a read
    std::function<void(Editor&, uint64_t session)> run;      // a change
    std::function<void(std::optional<base::Error>)> answer;  // nullopt: with what run() left
    std::shared_ptr<Writer::Job> job;                        // once submitted
  };
  enum class Seen : uint8_t { node, children };
  struct WatchEntry {
    Seen what;
    std::string path;
    std::optional<Stat> stat;  // nullopt: it was not there
    Watch fire;
  };

  FileSession(io::Loop& loop, std::shared_ptr<Env> env, base::Duration timeout, base::Duration operation_timeout);
  base::Status start_listening();
  void stop_listening();
  void begin();
  void began(uint64_t id, std::optional<base::Error> failed);
  void expire();
  void beat();
  void hear();  // the bell, or a death
  void look_for_dead();
  void check_watches();
  bool has_fired(const Reader& reader, const WatchEntry& entry) const;
  base::Duration heartbeat() const;
  size_t watched_bytes() const;

  template <class T>
  void read(std::string path, Seen what, Watch watch, std::function<base::Result<T>(const Reader&)> look, Done<T> done);
  template <class T>
  void change(base::Status valid, std::function<base::Result<T>(Editor&, uint64_t session)> run, Done<T> done);
  template <class T>
  void answer(Done<T> done, base::Result<T> result);
  void enqueue(Request request);
  void pump();
  void submit(Request request);
  void finished(uint64_t number, std::optional<base::Error> failed);
  void check_deadlines();
  void arm_deadline();
  void deliver(std::function<void()> fn);
  void emit(Event event);
  base::Result<ReadTxn> snapshot();

  io::Loop& loop_;
  std::shared_ptr<Env> env_;
  base::Duration timeout_, operation_timeout_;
  base::SystemRandom random_;
  std::shared_ptr<Port> port_;
  std::unique_ptr<SessionFile> file_;
  bool connected_ = false;
  uint64_t last_id_ = 0;
  base::Instant last_confirmed_;
  std::function<void(Event)> handler_;
  std::deque<Request> waiting_;    // not begun, in order
  std::deque<Request> submitted_;  // changes with the writer, in order
  uint64_t next_number_ = 1;
  std::vector<WatchEntry> watches_;
  uint64_t seen_zxid_ = 0;
  bool sweeping_ = false;
  int inotify_ = -1;
  int sessions_watch_ = -1;
  uv_poll_s* poll_ = nullptr;
  io::Timer beat_timer_, deadline_timer_, retry_timer_;
};

}  // namespace cantle::coord::file
