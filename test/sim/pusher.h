// PushNode: the shell of a replpush in the simulated world: one life of the process, beside a partd.
//
// The same parts as cmd/replpush: Mover decides; JournalReader, DirectReader and LivePage read what the
// partd writes on the shared disk; PositionStore keeps the marks; the network carries.
#pragma once

#include <deque>
#include <memory>

#include "lib/proto/mover.h"
#include "lib/store/direct_reader.h"
#include "lib/store/journal_reader.h"
#include "lib/store/live_page.h"
#include "lib/store/position_store.h"
#include "test/sim/cluster.h"

namespace cantle::sim {

class PushNode {
 public:
  PushNode(Cluster& cluster, Host& host);
  ~PushNode();
  PushNode(const PushNode&) = delete;

  proto::mover::Mover& mover() { return mover_; }
  bool all_done() const { return attached_ && !mover_.paused() && mover_.all_done(); }
  // Why it is not: one line, for the report of a run that does not end.
  std::string why(Instant now) const;

 private:
  void attach();
  void tick();
  void refresh_view();
  void look_at_journal();
  void logs_seen(uint64_t measure);
  void live_seen();
  void input(proto::mover::Input in);
  void pump();

  void perform(proto::mover::LoadMark& e);
  void perform(proto::mover::RecordMark& e);
  void perform(proto::mover::ForgetMark& e);
  void perform(proto::mover::Measure& e);
  void perform(proto::mover::RefreshView& e);
  void perform(proto::mover::ReadLog& e);
  void perform(proto::mover::OpenSnapshot& e);
  void perform(proto::mover::ReadSnapshot& e);
  void perform(proto::mover::SendBegin& e);
  void perform(proto::mover::SendBlock& e);
  void perform(proto::mover::SendDigest& e);
  void perform(proto::mover::SendEnd& e);
  void perform(proto::mover::ReadProof& e);
  void perform(proto::mover::AskProof& e);
  void perform(proto::mover::Drop& e);
  void perform(proto::mover::Note& e);
  // Runs it a little later, as a reading thread would.
  void soon(Fn fn);
  proto::mover::LogRead read_log(proto::mover::ReadLog ask);
  Instant now() { return process_.now(); }

  Cluster& cluster_;
  Host& host_;
  Process& process_;
  SimDisk disk_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  proto::mover::Mover mover_;
  store::MemIndexFactory positions_factory_, index_factory_;
  std::unique_ptr<store::Index> positions_index_, index_;
  std::unique_ptr<store::PositionStore> positions_;
  std::unique_ptr<store::DirectReader> direct_;
  std::unique_ptr<store::LivePage> page_;
  std::unique_ptr<store::JournalReader> journal_;
  bool attached_ = false, asking_view_ = false, ask_again_ = false, looking_ = false, pumping_ = false, listed_ = false;
  std::deque<proto::mover::Input> inputs_;
  proto::mover::View view_;
  model::Incarnation page_incarnation_;
  store::JournalPosition seen_;
  Instant view_at_{};
};

}  // namespace cantle::sim
