// GroupState is one group of this rank: its channel, its schedules, and its operations in flight. Collectives run one
// after the other in issue order; sends and receives run beside them. Threads: prepare() and settings by the thread
// that holds issuing(); submit() to fail() under the engine's lock.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/comm/device_collectives.h"
#include "herd/comm/failure_domain.h"
#include "herd/comm/host_copies.h"
#include "herd/comm/outstanding_transfers.h"
#include "herd/comm/packing.h"
#include "herd/comm/progress_engine.h"
#include "herd/comm/region_table.h"
#include "herd/comm/schedule_cache.h"
#include "herd/comm/schedule_executor.h"

namespace herd::comm {

struct GroupSettings {
  std::string name = "world";
  uint64_t id = 1;            // the same on all members, and different from that of any other group of this rank
  std::vector<Rank> members;  // transport ranks, in group order
  std::chrono::milliseconds deadline{60000};
  std::shared_ptr<FailureDomain> domain;  // domain of the group that it was split off; a world has one of its own
  ScheduleSource schedules;
  // Tells the control plane which operation this rank is in: at some operations, and while one waits. May be empty.
  std::function<void(uint64_t sequence, const std::string& text)> show_status = {};
};

struct CollectiveCall;

class GroupState {
 public:
  GroupState(std::shared_ptr<ProgressEngine> engine, std::shared_ptr<const RegionTable> regions,
             GroupSettings settings);
  ~GroupState();

  const GroupSettings& settings() const { return settings_; }
  void set_deadline(std::chrono::milliseconds deadline);  // REQUIRES issuing() held, and more than 0 ms
  // Returns the deadline of an operation that asks for this one; 0 = the group's. One of years is one of a year, which
  // the clock can count. Throws kBadConfig for less than 0 ms.
  std::chrono::milliseconds deadline_of(std::chrono::milliseconds asked) const;
  const std::vector<int>& hosts() const { return hosts_; }
  Rank rank() const { return channel_->rank(); }
  // Returns the rank in the job, which reports name.
  Rank job_rank(Rank member) const { return settings_.members[static_cast<size_t>(member)]; }
  int size() const { return channel_->size(); }
  ProgressEngine& engine() { return *engine_; }
  transport::Channel& channel() { return *channel_; }
  ScheduleExecutor& executor() { return executor_; }
  DeviceLanesTable& collective_lanes() { return collective_lanes_; }
  DeviceLanesTable& transfer_lanes() { return transfer_lanes_; }
  // Null: this group's operations on a device are staged.
  DeviceCollectives* device_collectives() const { return device_collectives_.get(); }
  void set_device_collectives(std::shared_ptr<DeviceCollectives> engine) { device_collectives_ = std::move(engine); }
  bool failed() const { return failure_.has_value(); }  // by the calling thread, between operations
  std::vector<AlgorithmUse> algorithms_used() const { return schedules_.uses(); }  // holding issuing()

  // Threads that issue collectives hold this from prepare() to submit(): their order is the group's order.
  std::unique_lock<std::mutex> issuing() { return std::unique_lock(issuing_); }
  void prepare(PendingOp& pending, CollectiveCall& call);  // writes the operation of the call; throws kBadConfig

  void submit(PendingOp& pending);
  bool poll();  // advances all operations in flight by what can be done at once; returns true if any moved
  bool idle() const { return current_ == nullptr && transfers_.empty() && loading_.empty() && storing_.empty(); }
  // Checks for deadlines that have passed, ranks that are dead and ranks that run another program. Returns when to
  // check again.
  SteadyTime check_health();
  void fail(Code code, const std::string& text);  // fails on all ranks, with all groups of the domain
  // Waits, for 200 ms at most, until the peers have finished what this rank has finished: a failure that it causes now
  // takes no collective from them that has ended here.
  void let_peers_finish();

  // FailureDomain calls the next three. publish_failure() writes the cause on the group's failure board, and returns
  // what stands there: another rank's cause where that came first.
  Failure publish_failure(const Failure& cause);
  std::optional<Failure> peer_failure();    // returns the cause on the failure board; nothing where there is none
  void fail_pending(const Failure& cause);  // ends all operations in flight with the cause

 private:
  void submit_transfer(PendingOp& pending);
  void post_transfer(PendingOp& pending);
  bool post_loaded();      // posts the sends whose messages have come from the device, in order
  bool complete_stored();  // ends the operations whose results are on the device, in order
  void leave_devices();
  // Waits until all peers have finished this collective or left. Returns false where it is late, or the group fails.
  bool wait_for_peers(uint64_t sequence, SteadyTime until);
  void check_devices(SteadyTime now, SteadyTime& wake_at);
  bool advance_current();
  bool try_begin(PendingOp& pending);
  void finish_current();
  void count_moved();
  bool complete_transfers();  // ends the sends and receives whose messages are done
  bool match_any_source();    // gives receives from any source the first rank that has a message for them
  void fail_with(const std::exception& error);
  std::byte* resolve(Rank peer, uint64_t region, int64_t offset);
  void compare_at_close();  // compares the last operations with those of the peers, which may differ
  void end_pending();       // ends all operations in flight with failure_, but those whose results are here
  void end_storing();       // ends the others
  void end_storing_with_peers();
  void refresh_positions();  // asks peers on other hosts for their boards, before a report
  void show_status(SteadyTime now);
  void publish_position();  // writes on this rank's board in which step it waits, for the reports of others
  void check_peers(PendingOp& pending, SteadyTime now);
  void check_transfers(SteadyTime now, SteadyTime& wake_at);
  bool is_gone_or_left(Rank peer);
  Rank missing_source();
  void show_transfer(uint64_t note);  // says on the board which transfer waits
  std::vector<Rank> awaited() const;  // the peers that the current collective waits for
  uint64_t finished_by(Rank peer, uint64_t at_least);

  std::shared_ptr<ProgressEngine> engine_;
  std::mutex issuing_;  // taken before the engine's lock
  GroupSettings settings_;
  std::unique_ptr<transport::Channel> channel_;
  ScheduleCache schedules_;
  RegionViews regions_;
  ScheduleExecutor executor_;
  PendingOp* current_ = nullptr;  // the collective that runs; later ones follow it by `next`
  PendingOp* last_ = nullptr;
  OutstandingTransfers transfers_;
  DeviceLanesTable collective_lanes_, transfer_lanes_;
  std::shared_ptr<DeviceCollectives> device_collectives_;
  uint64_t last_on_device_ = 0;          // the last collective on a device that this rank has finished
  std::deque<PendingOp*> loading_;       // sends whose messages are on their way from a device, and those behind them
  std::vector<PendingOp*> storing_;      // operations whose results are on their way to a device, and those behind them
  uint64_t transfer_shown_ = 0;          // RankBoard::transfer
  uint64_t issued_ = 0;                  // sequence of the last collective issued
  uint64_t fingerprint_chain_ = 0;       // hash over the fingerprints of all collectives issued, which peers compare
  uint64_t counted_bytes_ = 0;           // bytes that the engine has counted for this group
  uint64_t stage_uses_ = 0;              // collectives so far that use stage memory
  uint64_t last_stage_use_[2] = {0, 0};  // by copy of stage memory: the last collective that uses it
  std::vector<uint64_t> finished_;       // by peer: last collective that the peer is known to have finished
  std::optional<Error> failure_;
  bool warned_ = false;         // whether the log has said that the current operation is late
  bool awaits_finish_ = false;  // copy of RankBoard::awaits_finish: a peer that finishes a collective wakes this rank
  bool same_host_ = true;       // all members are on one host
  std::vector<int> hosts_;      // by rank, numbered from 0 in the order of their first ranks; empty where there is one
  uint64_t completed_transfers_ = 0;
  SteadyTime checked_at_{};    // time of the last Channel::refresh_boards()
  SteadyTime status_shown_{};  // time of the last show_status()
};

}  // namespace herd::comm
