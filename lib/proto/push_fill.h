// Whether a replica that is being filled has everything, and what must be kept until it has (design/replication.md,
// reshape.md "Split" 5; S43, S54).
//
// Use
//   if (filled(map, partition, own, heard)) …        a replica of a partition
//   if (filled_child(map, parent, own, heard)) …     a child of a split, before its parent has ended
//
// Why. A write at `majority` is durable on a majority of the slots that there were when it was acknowledged, no more.
// Which writes a copy is sure to have follows from when it joined, that is when writers began to include it (it takes
// writes from then on, filled or not, and its slot counts for a write only if it confirmed that):
//   * since it joined: all that its slot counted for. That goes for a copy that is still being filled, too;
//   * before it joined: everything, once it has been filled; nothing for sure before that.
//   * The child of a split that goes on from its parent's copy on the same server joined when that copy did.
// So a copy has everything that was acknowledged before it joined when it has been sent, whole, the logs of
//   * one copy that was filled and joined at the same time or later; or
//   * a read quorum of the slots, every one for that time: of copies that were there when the partition began and of
//     such as were filled since; with what was acknowledged before the partition began, where that is its parent's
//     matter, heard of in the same way.
// What two were merged into begins anew: all of its copies were whole then, and each has what its server had of the
// two. Nothing older is asked for. What it was sent before a restart is forgotten, and sent again. So that there is
// always somebody to send it, even if a server is lost for good at the worst moment, with a split that ended when a
// majority of each child was complete:
//   * no copy that METADATA took away is given up while a partition that took over has a replica that is being filled
//     (model::being_filled);
//   * METADATA remembers a partition that ended as long as such a replica may have to know of it, by the same question;
//   * a replica that counts is not exchanged while another one is being filled (model::ops::Replace).
// With k replicas as many servers may be lost as leave a read quorum of the parent's.
//
// A copy that has been damaged (S62) says nothing before it has been compared with every replica that lives: its mover
// sends no bulk.end until then. One that is itself being filled is as good as one that joins now.
//
// Pure.
#pragma once

#include <set>

#include "lib/model/metadata.h"

namespace cantle::proto::push {

// From whom the copy has a bulk.end of the present life of its server: all that they had is here.
struct Heard {
  std::set<model::AssignmentId> whole;    // said as one that answers reads, or by a copy that METADATA took away
  std::set<model::AssignmentId> filling;  // said as one that was being filled itself
  bool damaged = false;                   // the own log may lack what it confirmed
};

bool filled(const model::Metadata& map, const model::Partition& partition, const model::Assignment& own,
            const Heard& heard);
bool filled_child(const model::Metadata& map, const model::Partition& parent, const model::AssignmentId& own,
                  const Heard& heard);

}  // namespace cantle::proto::push
