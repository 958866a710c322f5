// Streams of the device "later": queues of jobs that run while a host thread waits.   Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace herd::later {

// A point in a stream.
struct Point {
  std::atomic<bool> reached{false};
  std::chrono::steady_clock::time_point at = {};  // when it was
};
using PointPtr = std::shared_ptr<Point>;

struct Job {
  std::function<void()> run = {};  // or one of the two
  PointPtr reaches = nullptr;
  PointPtr waits_for = nullptr;
};

struct Stream {
  int device = 0;
  std::deque<Job> jobs = {};
  uint32_t priority = 0;
  bool destroyed = false;
};

class Streams {
 public:
  static Streams& get();

  void seed(uint64_t seed);
  void set_num_devices(int count);
  int num_devices() const { return num_devices_; }

  Stream* default_stream(int device);
  Stream* create(int device);
  void destroy(Stream* stream);  // what is enqueued still runs
  Stream* from_pool(int device);

  void enqueue(Stream* stream, std::function<void()> run);
  PointPtr record(Stream* stream);
  void hold(Stream* stream, PointPtr point);
  // Runs jobs of any streams until the point is reached. Throws what a job threw since the last wait.
  void wait(const PointPtr& point);
  // Runs none or a few jobs and returns whether the point is reached.
  bool poll(const PointPtr& point);
  void run_all();
  uint64_t draw(uint64_t end);  // returns a number of [0, end)

 private:
  Streams() = default;
  // Runs one job of a stream that can go on, or waits while another thread runs one. False: nothing can run.
  bool advance(std::unique_lock<std::mutex>& lock, bool by_priority);
  Stream* choose(bool by_priority);
  void run(std::unique_lock<std::mutex>& lock, Stream* stream);
  void draw_priorities();
  void throw_error();

  // A thread that may run jobs. The memory stays open from one job to the next, and is shut once no thread waits.
  struct Runner {
    explicit Runner(Streams& of);
    ~Runner();
    Streams& streams;
    std::unique_lock<std::mutex> lock;
  };

  std::mutex mutex_;
  std::condition_variable job_done_;
  bool running_ = false;
  int num_runners_ = 0;
  std::mt19937_64 random_{1};
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<Stream*> default_streams_;
  std::vector<std::vector<Stream*>> pools_;
  size_t next_of_pool_ = 0;
  int num_devices_ = 1;
  std::string error_;
};

// Counts a wait of the host.
void note_synchronisation(const char* reason);

}  // namespace herd::later
