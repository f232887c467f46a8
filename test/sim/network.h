// Network: requests, answers and notifications between simulated processes, and what goes wrong.
//
// It behaves as MessagePack-RPC over stream sockets does: one connection from a process to an address,
// messages on it in order, a connection that breaks takes everything on it along. Messages are values
// in a std::any, copied once.
//
// Use
//   net.listen(p, [](const std::string& from, const std::any& request, Network::Reply reply) { ... });
//   net.call(q, "p1/partd", PushWrite{…}, 300ms, [](Result<std::any> r) { ... });
//   net.faults().lose = 0.01;  net.cut("p1", "p2");  net.heal();
//
// Invariants
//   * `done` of a call runs exactly once unless the caller dies first: with the answer; or unavailable: it
//     was never sent; or outcome_unknown: sent, and the connection broke or the time ran out.
//   * A handler sees a request at most once, except by `duplicate`, and a late one by `late` (S25).
//   * Nothing is delivered to a later life of a process than the one the connection was made to.
//   * Processes of one host are not cut from each other, and lose nothing.
//
// Threads: one. Ownership: processes must outlive the network's use of them; the network unlistens at death.
#pragma once

#include <any>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lib/base/result.h"
#include "test/sim/process.h"

namespace cantle::sim {

// `detail` of an error that comes from the network itself and not from whoever was asked.
constexpr const char* kLinkError = "link";

class Network {
 public:
  using Answer = base::Result<std::any>;
  using Reply = std::function<void(Answer)>;  // may be kept and called later; calls after the first do nothing
  using Handler = std::function<void(const std::string& from, const std::any& request, Reply reply)>;

  struct Faults {
    Duration delay_min = 50us, delay_max = 500us;
    double slow = 0;  // a message takes up to slow_max
    Duration slow_max = 50ms;
    double lose = 0;         // the connection breaks and this message is lost
    double lose_answer = 0;  // the request is delivered, then the connection breaks
    double late = 0;         // the connection breaks, and the message comes out up to late_max later
    Duration late_max = 3s;
    double duplicate = 0;  // delivered twice, the second up to late_max later
    double reorder = 0;    // overtakes what was sent before it
  };

  explicit Network(Scheduler& scheduler) : scheduler_(scheduler) {}
  Network(const Network&) = delete;

  Faults& faults() { return faults_; }
  // Messages that are never delivered twice: requests whose sender takes a refusal for the end of it. No transport
  // that we have doubles a request; what is doubled here stands for senders that repeat.
  void never_double(std::function<bool(const std::any&)> which) { never_double_ = std::move(which); }

  // Until the process dies. Replaces an earlier handler of this process.
  void listen(Process& process, Handler handler);
  void call(Process& from, const std::string& to, std::any request, Duration timeout, Reply done);
  void notify(Process& from, const std::string& to, std::any message);

  // From host `a` to host `b` nothing passes any more (one way); "*" is every other host.
  void cut(const std::string& a, const std::string& b);
  void cut_both(const std::string& a, const std::string& b) { cut(a, b), cut(b, a); }
  void heal();
  bool passes(const std::string& from_host, const std::string& to_host) const;

  uint64_t messages() const { return messages_; }

 private:
  struct Listener {
    Process* process;
    Handler handler;
  };
  struct Call;
  // A connection of one process to one address. Never forgotten: calls point to it.
  struct Link {
    uint64_t generation = 1;  // +1 when it breaks
    Instant last_forth{}, last_back{};
    std::map<uint64_t, std::shared_ptr<Call>> waiting;  // sent, not yet ended
  };
  struct Call {
    uint64_t number = 0;
    Process* from = nullptr;
    uint64_t from_life = 0;
    std::string to;
    Process* target = nullptr;  // who was there when it was sent
    uint64_t target_life = 0;
    std::any request;
    Reply done;  // null for a notification
    EventId timer;
    Link* link = nullptr;  // null: there was none to send on
    uint64_t link_generation = 0;
    bool ended = false;  // `done` was called
    bool answered = false;
  };
  using LinkKey = std::pair<std::string, std::string>;  // names, so that iteration never depends on addresses

  Link& link(Process& from, const std::string& to);
  void break_link(Link& link);
  void watch_death(Process& process);
  void forget(const Process& process);
  void transmit(const std::shared_ptr<Call>& call);
  void deliver(const std::shared_ptr<Call>& call, bool duplicate);
  void answer(const std::shared_ptr<Call>& call, Answer result);
  void finish(const std::shared_ptr<Call>& call, Answer result);
  Duration draw_delay(bool local);
  Instant in_order(Instant& last, Duration delay, bool reorder);

  Scheduler& scheduler_;
  Faults faults_;
  std::map<std::string, Listener, std::less<>> listeners_;
  std::map<LinkKey, Link> links_;
  std::set<std::string> watched_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::function<bool(const std::any&)> never_double_;
  uint64_t messages_ = 0, calls_ = 0;
};

}  // namespace cantle::sim
