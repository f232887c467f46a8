// Messages of a quorum table's write pipeline: from the leader of a partition to its replicas, and their
// acknowledgements (design/replication.md, "the write pipeline", "Taking over").
//
// Every message of a leader names the epoch of its government and the generation of its pipes; that is what a replica
// compares with its promise. The epoch in a block's header orders the log only: a new leader sends old blocks byte for
// byte. A generation begins with pipe.open and is told to be over by the next one: what a former one still carries is
// dropped.
//
//   pipe.open     who leads from now on; answered with where the replica's log stands, once all of that is durable
//   pipe.cut      cut what lies behind `keep`, if the log still ends at `end`; answered like pipe.open
//   pipe.block    one block; goes on to the first of `route`, with the rest of it. Acknowledged by pipe.ack
//   pipe.commit   the commit notice when no block follows; acknowledged by pipe.ack
//   pipe.ack      a notification to the leader, whoever the block came from
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/model/block.h"
#include "lib/model/fields.h"
#include "lib/model/ids.h"
#include "lib/model/messages.h"
#include "lib/model/quorum.h"

namespace cantle::model {

constexpr size_t kRouteMax = 32;  // replicas that one block goes through: voters, and who is to become one

// One replica of a partition.
struct Hop {
  static constexpr size_t kListMax = kRouteMax;
  ServerId server;
  AssignmentId assignment;
  CANTLE_FIELDS(server, assignment)
  auto operator<=>(const Hop&) const = default;
};

struct PipeOpen {
  Envelope envelope;
  Epoch epoch;
  uint64_t generation = 0;
  Lsn commit;
  CANTLE_FIELDS(envelope, epoch, generation, commit)
};
struct PipeOpenReply {
  Epoch refused;  // not 0: it promised this epoch; nothing else is said then
  Incarnation incarnation;
  LogPoint end;  // durable, and nothing behind it
  Lsn commit;    // that it knows of
  std::vector<EpochStart> epochs;
  bool faulted = false;  // it wants an operator: it would have to cut what was committed
  CANTLE_FIELDS(refused, incarnation, end, commit, epochs, faulted)
};

struct PipeCut {
  Envelope envelope;
  Epoch epoch;
  uint64_t generation = 0;
  LogPoint end, keep;
  CANTLE_FIELDS(envelope, epoch, generation, end, keep)
};

struct PipeBlock {
  Envelope envelope;  // the leader's; whoever passes it on changes to_assignment alone
  Epoch epoch;
  uint64_t generation = 0;
  Lsn commit;
  std::vector<Hop> route;  // who gets it after the receiver
  uint64_t urgent = 1;     // the receiver and those after it: so many sync at once, the others soon
  std::string block;       // header and payload (lib/wire/block.h)
  CANTLE_FIELDS(envelope, epoch, generation, commit, route, urgent, block)
};

struct PipeCommit {
  Envelope envelope;
  Epoch epoch;
  uint64_t generation = 0;
  Lsn commit;
  LogPoint agreed;     // up to here the receiver's log is known to be the leader's
  bool quiet = false;  // is not answered if all is well: the next block's acknowledgement says it, too
  CANTLE_FIELDS(envelope, epoch, generation, commit, agreed, quiet)
};

struct PipeAck {
  Envelope envelope;
  Epoch epoch;  // of the message that it answers
  uint64_t generation = 0;
  Epoch refused;      // not 0: it promised this epoch
  bool gap = false;   // a block is missing behind `durable`, or the pipe is not open
  std::string error;  // the replica cannot take blocks: a full disk, a bad checksum
  LogPoint durable;   // as far as its log is the leader's
  Lsn commit;         // that it knows of
  CANTLE_FIELDS(envelope, epoch, generation, refused, gap, error, durable, commit)
};

}  // namespace cantle::model
