// Threads that run one function together and share out its work.
//
// A function is a list of operations, each cut into units that whoever comes takes. An operation is
// over when all its units are done, not when all threads have come: a thread that the system has
// put aside for another program holds nobody up, unless it is inside a unit.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lectern {

// Waits for what is microseconds away, and gives the core to others when it is not.
template <class Condition>
inline void spin_until(const Condition& condition) {
  for (int spins = 0; !condition(); ++spins) {
    if (spins < 2000) {
#if defined(__x86_64__)
      _mm_pause();
#endif
    } else {
      std::this_thread::yield();
    }
  }
}

// The units [0, total) of one operation. Which thread computes what never changes a result.
class WorkQueue {
 public:
  void reset() {
    next_.store(0, std::memory_order_relaxed);
    num_done_.store(0, std::memory_order_relaxed);
  }

  // Takes pieces of `grain` units until none is left, then waits until all are done. Each thread
  // calls it with the same arguments.
  template <class Function>
  void each(int64_t total, int64_t grain, const Function& function) {
    for (;;) {
      const int64_t begin = next_.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= total) break;
      const int64_t end = begin + grain < total ? begin + grain : total;
      function(begin, end);
      num_done_.fetch_add(end - begin, std::memory_order_release);
    }
    spin_until([&] { return num_done_.load(std::memory_order_acquire) >= total; });
  }

 private:
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<int64_t> num_done_{0};
};

// `run` is called by one thread at a time, which takes part.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads) : num_threads(num_threads) {
    try {
      for (int id = 1; id < num_threads; ++id) workers_.emplace_back([this, id] { work(id); });
    } catch (...) {
      end();
      throw;
    }
  }

  ~ThreadPool() { end(); }

  // Runs `task` here, as thread 0, and in the other threads; returns when it is over here and no
  // thread is inside it. Threads that come late find no work left. `task` must not throw.
  void run(const std::function<void(int)>& task) {
    if (num_threads > 1) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        task_ = &task;
        round_.fetch_add(1, std::memory_order_release);
      }
      wake_.notify_all();
    }
    task(0);
    if (num_threads > 1) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        task_ = nullptr;
      }
      spin_until([&] { return num_inside_.load(std::memory_order_acquire) == 0; });
    }
  }

  const int num_threads;

 private:
  void end() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      is_ending_ = true;
      round_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (auto& worker : workers_) worker.join();
    workers_.clear();
  }

  void work(int id) {
    for (unsigned seen = 0;;) {
      // The next step often follows within the time that sampling and scheduling take.
      for (int spins = 0; spins < kSpins; ++spins) {
        if (round_.load(std::memory_order_acquire) != seen) break;
#if defined(__x86_64__)
        _mm_pause();
#endif
      }
      const std::function<void(int)>* task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return round_.load(std::memory_order_relaxed) != seen; });
        if (is_ending_) return;
        seen = round_.load(std::memory_order_relaxed);
        task = task_;
        if (task != nullptr) num_inside_.fetch_add(1, std::memory_order_relaxed);
      }
      if (task == nullptr) continue;
      (*task)(id);
      num_inside_.fetch_sub(1, std::memory_order_release);
    }
  }

  static constexpr int kSpins = 10000;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<unsigned> round_{0};
  std::atomic<int> num_inside_{0};
  const std::function<void(int)>* task_ = nullptr;
  bool is_ending_ = false;
};

}  // namespace lectern
