// Service: the shell around the machine of a push server: it keeps bytes, threads, sockets and files, and does what
// proto::PushServer says. One a process.
//
//   service.cc        the parts, the start, the end
//   follow.cc         the coordination service: who lives, which tables there are, their maps
//   effects.cc        what the machine asked for
//   serve_write.cc    put, delete, batch
//   serve_read.cc     get, scan
//   serve_peer.cc     push.write, push.read, push.scan, bulk.*, digest, epochs, beacon
//   serve_admin.cc    route, status, hash, sample, drop, drain, mover.view, map.changed
//   lib/wire/client_request.h  requests as they stand on the wire, decoded by hand
//
// Use
//   Service service(loop, config);
//   TRY(service.open());                       // data directory, recovery: blocks for as long as that takes
//   service.start(on_ready, on_fail);          // then the loop
//   service.drain(done);
//
// Invariants
//   * Effects of a step are performed in order; what they lead to at once is queued, never stepped inside.
//   * A request's bytes are used during its own step only; what must wait is copied.
//   * After a failed sync or write nothing is acknowledged any more and the process ends (S61).
// Threads: the loop's; the store has threads of its own.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cmd/partd/config.h"
#include "cmd/partd/enroll.h"
#include "cmd/partd/kept_scans.h"
#include "cmd/partd/links.h"
#include "cmd/partd/quorum.h"
#include "cmd/partd/state_file.h"
#include "lib/client/md_client.h"
#include "lib/client/servers.h"
#include "lib/coord/registration.h"
#include "lib/coord/timers.h"
#include "lib/daemon/sockets.h"
#include "lib/io/loop.h"
#include "lib/io/timer.h"
#include "lib/proto/push_server.h"
#include "lib/rpc/server.h"
#include "lib/store/data_dir.h"
#include "lib/store/engine.h"
#include "lib/store/lmdb_index.h"
#include "lib/store/position_store.h"
#include "lib/wire/client_request.h"

namespace cantle::partd {

namespace push = proto::push;

constexpr base::Duration kStoreTickEvery = std::chrono::milliseconds(100);
constexpr base::Duration kPositionsEvery = std::chrono::milliseconds(500);
constexpr base::Duration kReconcileEvery = std::chrono::seconds(2);     // the slow timer behind every watch (R29)
constexpr base::Duration kRetryEvery = std::chrono::milliseconds(250);  // of what the coordination service did not take
constexpr base::Duration kForwardTimeout = std::chrono::seconds(30);
constexpr base::Duration kReadTimeout = std::chrono::seconds(2);     // of a peer's answer to push.read
constexpr base::Duration kLoopReads = std::chrono::milliseconds(2);  // of a turn; then reads go to the read threads
constexpr size_t kParkedMax = 4096;                                  // requests that wait for a newer map
constexpr size_t kParkedBytesMax = size_t{32} << 20;
constexpr base::Duration kUnknownWait = std::chrono::seconds(2);  // for the map of a table that was just made
constexpr base::Duration kDrainWrites = std::chrono::seconds(10);
constexpr base::Duration kHandOverMost = std::chrono::seconds(4);
// The replpush beside it asks for the view once a second. One whose connection is gone is missing after the first,
// one that hangs after the second.
constexpr base::Duration kPusherGone = std::chrono::seconds(3), kPusherLate = std::chrono::seconds(10);

class Service {
 public:
  Service(io::Loop& loop, Config config);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // identity errors (exit status 78) among others.
  base::Status open();
  void start(std::function<void()> on_ready, std::function<void(base::Error)> on_fail);
  void drain(std::function<void()> done);
  std::string status_line() const;
  bool healthy() const;

 private:
  using Raw = std::string;  // an encoded map
  struct Pending {          // a client's write
    rpc::Responder responder;
  };
  struct Call {  // a message of another server, or of a mover
    rpc::Responder responder;
    enum class Kind : uint8_t { write, bulk, drop } kind = Kind::write;
    std::string records;       // until it is appended
    model::PartitionId log{};  // bulk
  };
  struct Gathered {
    std::string payload;
    uint32_t count = 0;
    bool refused = false;  // the store did not take it: nothing is sent
  };
  struct Parked {
    base::Instant deadline;
    model::TxnSeq at_least;
    size_t bytes = 0;
    std::function<void()> again;
    std::function<void()> give_up;
  };
  struct Followed {
    std::unique_ptr<client::MapFollower> follower;
    model::Keyspace keyspace = model::Keyspace::range;
    model::TxnSeq observed_wanted, observed_done;  // observed/<server>
    bool publishing = false;
    model::TableUuid uuid;  // of the map in hand
    bool had_map = false, gone = false;
  };

  // service.cc
  base::Status open_dir(const model::ClusterUuid& cluster);
  base::Status open_store();
  store::EngineConfig engine_config() const;
  void on_coord(coord::Event event);
  void check_cluster();
  void cluster_known(const model::ClusterUuid& cluster);
  void enroll();
  void check_name(std::function<void(base::Status)> answer);
  void check_tables(std::vector<std::string> tables, std::function<void(base::Status)> answer);
  void enrolled(const Enrollment::Answer& answer);
  base::Status listen();
  void register_active();
  void update_active();
  void tick();
  void maybe_ready();
  void fail(base::Error error);
  void add_handlers();
  void wait_for_writes(base::Instant deadline, std::function<void()> done);
  void make_quorum(const std::vector<store::Tenure>& tenures);
  // Of a push or of a quorum table; null: unknown.
  std::shared_ptr<const model::Metadata> installed(std::string_view table) const;
  std::set<model::ServerId> partners() const;
  // A push table's or a quorum table's copy.
  std::vector<push::CopyStatus> copies() const;

  // the machine
  push::Now now();
  void input(const push::Input& in);
  void flush_soon();

  // follow.cc
  void read_live();
  void live_came();
  void read_tables();
  void tables_came(const std::vector<std::string>& names);
  void follow(const std::string& table, model::Keyspace keyspace);
  void map_came(const std::string& table, std::shared_ptr<const model::Metadata> map);
  void hint(const std::string& table, model::TxnSeq at_least);
  // As it is after a sync begun now.
  void read_map(const std::string& table,
                std::function<void(base::Result<std::shared_ptr<const model::Metadata>>)> done);
  void ask_about_dropped();
  void publish_observed(const std::string& table);
  void observed_failed(const std::string& table, const std::string& why);
  void read_positions();
  void notify_pusher(std::string_view method, std::string_view params);
  void park(const std::string& table, model::TxnSeq at_least, base::Instant deadline, size_t bytes,
            std::function<void()> again, std::function<void()> give_up);
  void unpark(const std::string& table);
  // A table that this server does not know may have been made a moment ago: it looks before it says so.
  void refuse_unknown(const std::string& table);
  void park_unknown(const std::string& table, base::Instant deadline, size_t bytes, std::function<void()> again,
                    std::function<void()> give_up);
  void expire_parked();
  void read_numbers();
  void publish_systems();
  void next_system();

  // effects.cc
  void perform(push::Gather& e);
  void perform(push::Append& e);
  void perform(push::Send& e);
  void perform(push::Forget& e);
  void perform(push::Reply& e);
  void perform(push::Forward& e);
  void perform(push::FetchMap& e);
  void perform(push::AppendReceived& e);
  void perform(push::Answer& e);
  void perform(push::Create& e);
  void perform(push::Divide& e);
  void perform(push::Merge& e);
  void perform(push::SetAside& e);
  void perform(push::Drop& e);
  void perform(push::MarkAvailable& e);
  void perform(push::PublishObserved& e);
  void perform(push::Index& e);
  void perform(push::MapShown& e);
  void perform(push::Remember& e);
  void remember();
  void perform(push::AskEpochs& e);
  void perform(push::SendBeacon& e);
  void perform(push::SetLive& e);
  void perform(push::ForgetLive& e);
  void perform(push::MarkWhole& e);
  void perform(push::Say& e);
  void perform(push::Exit& e);

  // serve_write.cc
  void serve_put(const rpc::Call& call, rpc::Responder responder);
  void serve_delete(const rpc::Call& call, rpc::Responder responder);
  void serve_batch(const rpc::Call& call, rpc::Responder responder);
  void serve_cas(const rpc::Call& call, rpc::Responder responder);
  void serve_append(const rpc::Call& call, rpc::Responder responder);
  void serve_incr(const rpc::Call& call, rpc::Responder responder);
  using DecodeWrite = base::Result<wire::WriteRequest> (*)(std::string_view params);
  void decode_write(const rpc::Call& call, rpc::Responder responder, DecodeWrite decode);
  void write(wire::WriteRequest& request, std::string_view method, DecodeWrite decode, rpc::Responder responder,
             bool parked = false);

  // serve_read.cc
  void serve_get(const rpc::Call& call, rpc::Responder responder);
  void get(std::string_view params, rpc::Responder responder, bool parked);
  void get_here(const wire::GetView& request, const push::Where& where, std::string_view params,
                rpc::Responder responder);
  void get_many(const wire::GetView& request, const push::Where& where, rpc::Responder responder);
  void serve_scan(const rpc::Call& call, rpc::Responder responder);
  void scan(std::string_view params, rpc::Responder responder, bool parked);
  struct ScanPlan;
  void scan_one(const ScanPlan& plan, rpc::Responder responder);
  void scan_anew(ScanPlan plan, rpc::Responder responder);
  void scan_kept(ScanPlan plan, const model::ScanCursor& cursor, std::string_view params, rpc::Responder responder);
  void scan_page(const ScanPlan& plan, rpc::Responder responder);
  void scan_quorum(ScanPlan plan, std::string_view params, rpc::Responder responder, bool has_map);
  static void fit(ScanPlan& plan, const model::Interval& interval);
  void scan_many(const ScanPlan& plan, const push::Where& where, rpc::Responder responder);
  void read_page(const model::PartitionId& log, store::ScanRange range,
                 std::function<void(base::Result<model::PushScanReply>)> done);
  void forward(const model::ServerId& to, std::string_view method, std::string_view params, model::TxnSeq txnseq,
               base::Duration timeout, rpc::Responder responder);
  // Reads on the loop while its turn is young; past that they go to the read threads, so that page faults cost nobody a
  // lease.
  // False: this turn has taken long enough, and for a get, because it waits for the disk: read on a thread.
  bool get_on_loop();
  bool scan_on_loop();
  bool turn_is_old();

  // serve_peer.cc
  void serve_push_write(const rpc::Call& call, rpc::Responder responder);
  void serve_push_read(const rpc::Call& call, rpc::Responder responder);
  void serve_push_scan(const rpc::Call& call, rpc::Responder responder);
  void serve_bulk_begin(const rpc::Call& call, rpc::Responder responder);
  void append_received(push::CallId id, const model::PartitionId& log);
  void append_waiting();
  void serve_bulk_block(const rpc::Call& call, rpc::Responder responder);
  std::string bulk_reply(const model::PartitionId& log, model::Lsn lsn) const;
  void serve_snapshot(std::shared_ptr<model::BulkBlock> message, rpc::Responder responder);
  void serve_bulk_end(const rpc::Call& call, rpc::Responder responder);
  void serve_digest(const rpc::Call& call, rpc::Responder responder);
  void serve_epochs(const rpc::Call& call, rpc::Responder responder);
  void serve_beacon(const rpc::Call& call);
  template <class Message>
  void admitted(std::shared_ptr<Message> message, push::Purpose purpose, rpc::Responder responder,
                std::function<void(const model::PartitionId&)> act, bool parked = false);
  // The machine answers by itself; only a map that is missing is waited for here.
  template <class Message, class Feed>
  void received(std::shared_ptr<Message> message, push::Purpose purpose, rpc::Responder responder, Feed feed,
                bool parked = false);

  // serve_admin.cc
  bool know(const std::string& table, const rpc::Call& call, const rpc::Responder& responder,
            void (Service::*serve)(const rpc::Call&, rpc::Responder));
  void serve_route(const rpc::Call& call, rpc::Responder responder);
  void serve_status(const rpc::Call& call, rpc::Responder responder);
  void serve_hash(const rpc::Call& call, rpc::Responder responder);
  void serve_sample(const rpc::Call& call, rpc::Responder responder);
  void serve_drop(const rpc::Call& call, rpc::Responder responder);
  void serve_drain(const rpc::Call& call, rpc::Responder responder);
  void serve_view(const rpc::Call& call, rpc::Responder responder);
  void serve_quorum_report(const rpc::Call& call, rpc::Responder responder);
  void serve_map_changed(const rpc::Call& call);
  model::RoutePartition route_of(const model::Partition& p) const;
  model::StatusReply status(const std::string& table);
  void tell_of_pusher(model::StatusReply& r) const;
  base::Result<model::SampleReply> sampled(const model::PartitionId& partition, uint32_t points,
                                           const std::vector<std::string>& keys);
  model::ServerNumber number_of(const model::ServerId& server) const;

  io::Loop& loop_;
  Config config_;
  model::ServerId self_;
  base::SystemRandom random_;
  base::Instant began_;

  store::RealDisk disk_;
  std::unique_ptr<store::DataDir> dir_;  // its lock is let go when the threads below have ended, not before
  store::ThreadExecutor executor_;
  std::unique_ptr<store::LmdbIndexFactory> indexes_;
  std::unique_ptr<store::LivePage> page_;
  std::unique_ptr<store::Engine> engine_;
  KeptScans kept_scans_{random_};
  std::unique_ptr<store::PositionStore> positions_;
  std::string positions_trouble_;  // why they cannot be read, as it was said
  StateFile state_;
  bool unremembered_ = false;  // the disk was full
  bool store_read_only_ = false;

  coord::Layout layout_;
  coord::LoopTimers timers_;
  std::unique_ptr<coord::Session> session_;
  std::unique_ptr<Enrollment> enrollment_;
  std::unique_ptr<coord::Registration> registration_;
  std::unique_ptr<client::CoordServers> servers_;
  std::unique_ptr<client::MdClient> md_;
  std::unique_ptr<Links> links_;
  rpc::Server server_;
  std::unique_ptr<rpc::Peer> pusher_;
  std::set<uint64_t> pusher_connections_;  // those that asked for mover.view
  std::optional<base::Instant> pusher_asked_;
  daemon::Listening listening_;
  model::ClusterUuid cluster_;
  bool checking_cluster_ = false, active_readonly_ = false, known_name_ = false;

  std::map<std::string, Followed> tables_;
  std::map<model::ServerId, model::Incarnation> live_told_;  // to the pusher
  bool tables_known_ = false, live_known_ = false, live_reading_ = false, live_again_ = false, tables_reading_ = false,
       tables_again_ = false;
  base::Instant reconcile_at_, store_tick_at_, positions_at_;
  std::map<std::string, std::deque<Parked>> parked_;
  size_t parked_count_ = 0, parked_bytes_ = 0;
  std::deque<std::pair<std::string, std::string>> systems_;  // path and text to write
  std::map<std::string, std::string> systems_done_;
  bool writing_system_ = false;
  struct Numbered {
    std::string instance;  // the data directory that had it
    model::ServerNumber number;
  };
  std::map<model::ServerId, Numbered> numbers_;  // of nodes/info
  std::set<model::ServerId> asking_number_;

  std::unique_ptr<proto::PushServer> machine_;
  std::unique_ptr<Quorum> quorum_;  // as soon as machine_
  std::deque<push::Input> inputs_;
  push::Effects effects_;
  bool stepping_ = false, flush_planned_ = false;
  uint64_t last_id_ = 0;
  std::unordered_map<push::RequestId, Pending> requests_;
  std::unordered_map<push::CallId, Call> calls_;
  std::unordered_map<push::BatchId, Gathered> batches_;
  const wire::WriteRequest* current_ = nullptr;  // the request whose step this is
  std::string_view current_method_;
  std::string answer_;  // answers are built here
  uint64_t read_turn_ = 0;
  uint32_t turn_reads_ = 0;
  base::Instant turn_began_;
  bool turn_old_ = false, turn_waits_ = false;
  uint64_t disk_waits_ = 0;
  struct {
    uint64_t gets = 0, scans = 0, writes = 0, received = 0, forwarded = 0, async_reads = 0;
  } counts_;

  // Movers' blocks for which the store has no room yet, in the order they came.
  struct WaitingBlock {
    push::CallId call = 0;
    model::PartitionId log;
    base::Instant until;
    size_t bytes = 0;
  };
  std::deque<WaitingBlock> waiting_blocks_;
  size_t waiting_block_bytes_ = 0;

  io::Timer tick_timer_, room_timer_;
  std::function<void()> on_ready_;
  std::function<void(base::Error)> on_fail_;
  bool ready_ = false, draining_ = false, failed_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace cantle::partd
