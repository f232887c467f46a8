// Service: replpush itself: a mover between the data directory, the own partd and the targets.
//
//   Service service(loop, config);
//   service.start([&] { life.ready(); }, [&](base::Error e) { life.fail(e); });
//
// It waits for the partd's first start before it does anything, pauses while the partd does not answer, and opens
// everything anew when another life of it answers.
//
// Threads: the loop's. Ownership: destroy it before the loop.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "cmd/replpush/links.h"
#include "cmd/replpush/source.h"
#include "lib/base/random.h"
#include "lib/io/timer.h"
#include "lib/proto/mover.h"
#include "lib/rpc/server.h"

namespace cantle::replpush {

struct Config {
  model::ServerId id;  // none: the one that the data directory names
  std::string data_dir, index_dir;
  std::string partd;  // address; empty: looked up
  std::string coord, cluster, token;
};

class Service {
 public:
  Service(io::Loop& loop, Config config);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  void start(std::function<void()> ready, std::function<void(base::Error)> failed);
  void add_methods(rpc::Server& server);
  void stop(std::function<void()> done);  // positions are durable then

  std::string status_line() const;
  bool all_done() const { return attached_ && mover_.all_done(); }
  const mv::Mover& mover() const { return mover_; }
  std::string trouble() const;  // why nothing moves at all; empty: it does

 private:
  // service.cc
  void attach_soon();
  base::Status attach();
  void refresh_view();
  void view_answered(base::Result<std::string_view> answer);
  base::Status take_view(std::string_view bytes);
  void lost(const base::Error& error);
  void show(mv::View view);
  void moved();
  void look_at_logs();
  void show_live();
  void tick();

  // service_perform.cc
  void feed(mv::Input input);
  void perform(mv::LoadMark& e);
  void perform(mv::RecordMark& e);
  void perform(mv::ForgetMark& e);
  void perform(mv::Measure& e);
  void perform(mv::RefreshView& e);
  void perform(mv::ReadLog& e);
  void perform(mv::OpenSnapshot& e);
  void perform(mv::ReadSnapshot& e);
  void perform(mv::SendBegin& e);
  void perform(mv::SendBlock& e);
  void perform(mv::SendDigest& e);
  void perform(mv::SendEnd& e);
  void perform(mv::ReadProof& e);
  void perform(mv::AskProof& e);
  void perform(mv::Drop& e);
  void perform(mv::Note& e);

  // service_rpc.cc
  std::string status() const;
  base::Result<std::string> list(std::string_view params) const;
  base::Result<std::string> asked(mv::Verb verb, std::string_view params);

  io::Loop& loop_;
  Config config_;
  base::SystemRandom random_;
  mv::Mover mover_;
  Source source_;
  PartdLink partd_;
  TargetLinks targets_;
  io::Timer tick_, view_timer_, attach_timer_, look_timer_;
  std::function<void()> ready_;
  std::function<void(base::Error)> failed_;
  base::Instant started_;

  bool opened_ = false;    // identity and positions
  bool attached_ = false;  // journal, index and page of attached_to_
  bool attaching_ = false;
  model::Incarnation attached_to_;
  std::string waits_for_ = "the partition server's first start";
  store::Identity identity_;
  model::ClusterUuid cluster_;

  bool asking_view_ = false, ask_view_again_ = false;
  int view_failures_ = 0;
  std::map<std::string, std::shared_ptr<const model::Metadata>> maps_;  // as shown last
  mv::View view_;

  bool looking_ = false, look_again_ = false;
  uint64_t measure_ = 0;
  base::Instant looked_at_, live_at_;
  std::deque<mv::Input> inputs_;
  bool stepping_ = false;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace cantle::replpush
